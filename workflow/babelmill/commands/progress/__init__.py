"""What jobs of the workflow have done and would do, from the files alone."""
