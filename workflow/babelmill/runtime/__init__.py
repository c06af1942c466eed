"""Manage a training run: processes, SLURM, locks, checkpoints, GPUs, its record. Nothing in it changes a result."""
