"""How a training run lives: processes, SLURM, locks, checkpoints, GPUs, its record. In no code digest."""
