"""Training as a pure function of (settings, data, step): see `plan.py` for what, `loop.py` for how."""
