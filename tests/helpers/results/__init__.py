"""Results that no stage made, and what is in those of a stage."""
