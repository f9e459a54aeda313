"""Training: recipe to weights."""
