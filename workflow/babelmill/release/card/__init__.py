"""Write the model card."""
