"""What a batch becomes: a loss. One file a kind of model."""
