"""Train as a pure function of (settings, data, step): `plan.py` says what a step does, `loop.py` runs the steps."""
