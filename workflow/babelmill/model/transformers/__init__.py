"""Define the transformers classes that load exported models. The files are shipped inside every exported folder."""
