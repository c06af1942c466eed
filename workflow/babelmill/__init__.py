"""Babelmill: raw text to published language models, one per language."""

__version__ = "0.1.0"
