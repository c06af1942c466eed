"""Results that no stage made, and checkouts of an edited Babelmill."""
