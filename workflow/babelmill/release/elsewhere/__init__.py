"""Read checkpoints and repositories of other projects."""
