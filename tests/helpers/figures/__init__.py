"""The figures of a tiny run that never changes."""
