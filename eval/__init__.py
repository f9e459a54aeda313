"""Scoring: prediction folders to scores, intervals and a report; imports no torch."""
