"""Use the Hugging Face Hub: a client that repeats failed requests, sources, revisions, and the token."""
