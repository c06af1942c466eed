"""The network: a client of the Hugging Face Hub with patience, sources, revisions, credentials."""
