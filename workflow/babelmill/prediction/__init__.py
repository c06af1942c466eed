"""Predict the codes of every row of a table."""
