"""Say on how much text a tokenizer is trained. The memory of its job depends on it, so this module imports nothing."""

# The largest number of bytes of text to train on. Each byte of a new piece takes about 100 bytes of memory, and in
# scripts without spaces most pieces are new. More text does not help: a quarter of 5 MB of help pages gave the same 4.1
# bytes per token as all of it, with 4,096 entries.
TRAINING_BYTES = 100_000_000
