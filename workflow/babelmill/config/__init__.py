"""The configuration: its schema, its layers, its languages, and how they resolve to the settings of a model."""
