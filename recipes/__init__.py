"""Recipes: schema, YAML files, launch configurations."""
