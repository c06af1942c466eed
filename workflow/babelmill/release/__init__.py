"""Turn trained weights into a folder that others can load: build it, prove it, write its card, convert by hand."""
