"""Measure an exported model: score the validation text, and describe the metrics."""
