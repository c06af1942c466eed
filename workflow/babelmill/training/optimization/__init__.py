"""Gradients become weights, on all processes."""
