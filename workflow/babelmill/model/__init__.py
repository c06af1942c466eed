"""Define GPT-BERT in plain PyTorch: the same files train here and are shipped inside exported models."""
