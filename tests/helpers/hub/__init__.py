"""A Hugging Face Hub on this machine, and what is on it."""
