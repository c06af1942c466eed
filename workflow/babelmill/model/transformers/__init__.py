"""The transformers classes that exported models are loaded with. The files are shipped inside every exported folder."""
