"""Write, load and prove the Hugging Face folder of a model."""
