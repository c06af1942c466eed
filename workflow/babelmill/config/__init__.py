"""The configuration: its schema, its layers, its languages, and how they resolve to what a model is asked."""
