"""Look at a sample of a text: `babelmill corpus` prints what stands out, and writes a page."""
