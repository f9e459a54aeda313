"""Model families: load, adapt, freeze, tiny random twin."""
