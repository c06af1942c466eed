"""Babelmill: raw text to published language models, one per language."""

__version__ = "0.2.0"
