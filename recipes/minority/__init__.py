"""The rare class: two recipes that differ in balancing only, and the comparison of their scores."""
