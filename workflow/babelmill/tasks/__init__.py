"""Fine-tuning tasks: their rows, the classifier that is tuned, the training, and the scores of its predictions."""
