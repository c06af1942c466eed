"""Manage a training run: processes, SLURM, locks, checkpoints, GPUs, its record. No code digest covers this folder."""
