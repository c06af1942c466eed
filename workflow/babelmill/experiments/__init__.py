"""Experiments: the scores of all cells and seeds, compared with a reference cell."""
