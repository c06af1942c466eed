"""Small data and trainers, without the stages before."""
