"""Row numbers become tensors."""
