"""The demo: recipes, and the table that sums it up."""
