"""What a step holds: rows, objectives, rates. Nothing here imports PyTorch."""
