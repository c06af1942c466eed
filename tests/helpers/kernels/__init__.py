"""What Triton's interpreter needs."""
