"""Prediction: weights and records to a prediction folder."""
