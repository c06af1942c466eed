"""Make small models of transformers like those on the Hub: weights, configuration, and their kind of tokenizer.

GPT-2 has one special token for everything, BERT a lossy WordPiece, Llama a SentencePiece-like BPE without padding,
EuroBERT bytes and a mask. Weights and texts are the same on each call.
"""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = ["the quick brown fox jumps over a lazy dog while seven wizards boil warm water in large pots. 0123456789"] * 9
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
# By model type: its class, and the sizes of its configuration.
KINDS = {
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}),
    "bert": ("BertForMaskedLM", SIZES | {"max_position_embeddings": 64}),
    "llama": ("LlamaForCausalLM", SIZES | {"num_key_value_heads": 1, "max_position_embeddings": 64}),
    "eurobert": ("EuroBertForMaskedLM", SIZES | {"num_key_value_heads": 2, "max_position_embeddings": 64}),
}
NAMES = {
    "gpt2": dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>"),
    "bert": {f"{role}_token": f"[{role.upper()}]" for role in ("cls", "sep", "pad", "mask", "unk")},
    "llama": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
    "eurobert": {"bos_token": "<|begin|>", "eos_token": "<|end|>", "pad_token": "<|pad|>", "mask_token": "<|mask|>"},
}


def special(*names: str) -> list[AddedToken]:
    """Return special tokens, in this order."""
    return [AddedToken(name, special=True, normalized=False) for name in dict.fromkeys(names)]


def word_piece() -> Tokenizer:
    """Return BERT's kind of tokenizer: lower case, pieces of words, `[CLS] A [SEP]`."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    names = special("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    tokenizer.train_from_iterator(TEXT, trainers.WordPieceTrainer(vocab_size=150, special_tokens=names))
    ids = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ids)
    return tokenizer


def bytes_bpe(*names: str, front: str | None = None) -> Tokenizer:
    """Return a byte-level BPE with these special tokens at its end, as GPT-2's has it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=290, initial_alphabet=alphabet))
    tokenizer.add_special_tokens(special(*names))
    if front:
        template = processors.TemplateProcessing(
            f"{front} $A", f"{front} $A $B", [(front, tokenizer.token_to_id(front))]
        )
        tokenizer.post_processor = template
    return tokenizer


def sentence_piece_bpe() -> Tokenizer:
    """Return Llama's kind of tokenizer: spaces as a letter, bytes for what it does not know."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(parts)
    names = [*special("<unk>", "<s>", "</s>"), *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=330, special_tokens=names))
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)])
    return tokenizer


def tokenizer_of(kind: str) -> Tokenizer:
    """Return the tokenizer of a kind of models."""
    if kind == "bert":
        return word_piece()
    if kind == "llama":
        return sentence_piece_bpe()
    names = dict.fromkeys(NAMES[kind].values())
    return bytes_bpe(*names, front="<|begin|>" if kind == "eurobert" else None)


def publish(kind: str, folder: Path, rows: int = 0, **config) -> Path:
    """Write a model of a kind with all of its files. `rows` of the embedding may be more than the tokenizer needs."""
    import torch
    import transformers

    cls, sizes = KINDS[kind]
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer_of(kind), **NAMES[kind])
    values = sizes | {"vocab_size": rows or len(tokenizer)} | config
    values |= {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad", "mask")}
    torch.manual_seed(1)
    model = getattr(transformers, cls)(transformers.AutoConfig.for_model(kind, **values))
    for parameter in model.parameters():
        parameter.data += 0.05 * torch.randn(parameter.shape)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def publish_canine(folder: Path, **config) -> Path:
    """Write a small CANINE with the files that `google/canine-s` has: no tokenizer.json, and names without a prefix."""
    import torch
    import transformers

    values = SIZES | {"hidden_size": 32, "num_hash_buckets": 512, "max_position_embeddings": 512} | config
    torch.manual_seed(1)
    model = transformers.CanineModel(transformers.CanineConfig(**values))
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    model.config.architectures = ["CanineModel"]
    model.config.save_pretrained(folder)
    tokens = {"bos": "\ue000", "eos": "\ue001", "sep": "\ue001", "cls": "\ue000", "pad": "\x00", "mask": "\ue003"}
    about = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True}
    named = {f"{name}_token": {"content": token, **about} for name, token in tokens.items()}
    named["mask_token"]["lstrip"] = True
    marked = {name: {**token, "__type": "AddedToken"} for name, token in named.items()}
    settings = marked | {"add_prefix_space": False, "model_max_length": 256, "tokenizer_class": "CanineTokenizer"}
    for name, content in (("special_tokens_map.json", named), ("tokenizer_config.json", settings)):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder
