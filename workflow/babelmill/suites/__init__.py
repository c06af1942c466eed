"""Evaluation suites: reading pairs of sentences, scoring them with a model, and what the scores mean."""
