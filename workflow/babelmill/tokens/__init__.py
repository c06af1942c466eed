"""Turn text into tokens: the pretokenizer, the tokenizer's file and its quality, documents, and shards."""
