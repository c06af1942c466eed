"""From text to tokens: the pretokenizer, the tokenizer's file, its quality, documents and shards."""
