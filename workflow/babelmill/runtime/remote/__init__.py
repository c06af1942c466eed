"""Keep the checkpoints of a run also in an object store or another folder (`run.checkpoints`)."""
