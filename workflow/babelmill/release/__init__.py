"""From trained weights to a folder that others load: loading it, its proof, its card, conversion by hand."""
