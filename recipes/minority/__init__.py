"""The rare class: two recipes that train in different ways, and the comparison of their scores."""
