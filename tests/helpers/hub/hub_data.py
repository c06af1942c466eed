"""Provide a small trained model with its tokenizer and shards, as the stages write them, and functions to export it.

The model has learnt three sentences by heart, with both objectives, so that tests can ask it for the right word.
"""

import contextlib
import dataclasses
import subprocess
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch.nn import functional as F

from babelmill.config.models import with_our_names
from babelmill.core import manifest
from babelmill.core.files import sha256, write_json
from babelmill.model.gpt_bert import GPTBert, GPTBertShape
from babelmill.model.norbert4 import NorBERT4, NorBERT4Shape
from babelmill.tokenizer import train
from babelmill.tokens.shard_file import write_shard
from babelmill.tokens.tokenizer_file import encode, load_tokenizer
from helpers.programs.prepared import run_module
from helpers.stages import any_settings, show_as, write_job

SENTENCES = [
    "The black cat sat on the mat near the old door.",
    "A brown dog runs through our green garden every day.",
    "Seven wizards boil warm water in very large pots.",
]
VOCABULARY = 420
BOS, EOS, PAD, MASK = 1, 2, 3, 4
FILES = ["model.safetensors", "ema.safetensors", "config.json"]  # of the trained model
WIDTHS = {"hidden_size": 48, "intermediate_size": 64, "num_attention_heads": 2}
# Of NorBERT4, a local layer, which sees three tokens on each side, and a global one.
LOCAL = {"num_layers": 2, "query_key_head_size": 24, "value_head_size": 24, "max_sequence_length": 512}
LOCAL |= {"local_global_ratio": 2, "local_window_length": 3, "global_window_length": 512}
KINDS: dict[str, tuple] = {
    "gpt_bert": (GPTBert, GPTBertShape, {"num_hidden_layers": 2}),
    "norbert4": (NorBERT4, NorBERT4Shape, LOCAL),
}


def learn(model: torch.nn.Module, rows: torch.Tensor, steps: int = 220, ahead: int = 1) -> None:
    """Teach the rows [B, T] (`<s>` first, padded) to a model: the next token, from the left or from both sides.

    `ahead` is 0 if the hidden token is learnt at its own position, as BabyBabelLM's code does it.
    """
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, foreach=True)
    real = rows != PAD
    both = (real[:, None, :] & real[:, :, None])[:, None]
    for step in range(steps):
        inputs, targets = rows.clone(), torch.where(real, rows, -100)
        if step % 2:
            hidden = (torch.rand(rows.shape, generator=generator) < 0.3) & (rows > 15)
            inputs[hidden], targets[~hidden] = MASK, -100
        logits = model(inputs, both if step % 2 else both.tril())
        ours = logits[:, : -ahead or None] if step % 2 else logits[:, :-1]
        loss = F.cross_entropy(ours.flatten(0, 1), targets[:, ahead if step % 2 else 1 :].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def write_manifest(folder: Path, name: str, files: list[str], upstream=()) -> None:
    """Write the manifest of a stage's folder below `folder`. Paths are relative, so that the whole can be copied."""
    with contextlib.chdir(folder):
        manifest.write(name, any_settings(name), files, upstream)


def write_shards(folder: Path) -> None:
    """Write the shards of the sentences, whose tokenizer is there."""
    tokenizer = load_tokenizer(folder / "tokenizer/tokenizer.json")
    tokens, lengths = encode(tokenizer, SENTENCES)
    digest = sha256(folder / "tokenizer/tokenizer.json")
    for split in ("train", "validation"):
        texts = np.split(tokens, np.cumsum(lengths)[:-1])
        batches = ((np.array([BOS, *text, EOS]), np.array([len(text) + 2]), None) for text in texts)
        write_shard(folder / f"shards/{split}.safetensors", tokenizer.get_vocab_size(), digest, batches)
    write_manifest(folder, "shards", ["train.safetensors", "validation.safetensors"], ["tokenizer"])


def rows_of(tokenizer: Tokenizer) -> torch.Tensor:
    """Return the sentences as rows with `<s>` and `</s>`, padded."""
    tokens, lengths = encode(tokenizer, SENTENCES)
    texts = torch.tensor(tokens.astype("int64")).split(lengths.tolist())
    rows = [torch.cat([torch.tensor([BOS]), text, torch.tensor([EOS])]) for text in texts]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


def write_model(folder: Path, architecture: str) -> None:
    """Train a model until it knows the sentences, and write it. The averaged weights are the last ones times 0.9."""
    torch.manual_seed(0)
    kind, shape_kind, sizes = KINDS[architecture]
    tokenizer = load_tokenizer(folder / "tokenizer/tokenizer.json")
    config = shape_kind(tokenizer.get_vocab_size(), **WIDTHS | sizes)
    written = dataclasses.asdict(config)
    if architecture == "norbert4":
        written = {"architecture": architecture} | with_our_names(written)
    model = kind(config).eval()  # it learns without dropout
    learn(model, rows_of(tokenizer))
    (folder / "model").mkdir()
    for name, scale in (("model", 1.0), ("ema", 0.9)):
        weights = {key: value * scale for key, value in model.state_dict().items()}
        save_file(weights, folder / f"model/{name}.safetensors", {"format": "pt"})
    ids = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD, "mask_token_id": MASK}
    write_json(folder / "model/config.json", written | ids)
    write_manifest(folder, "model", FILES, ["tokenizer", "shards"])


def export(folder: Path, out: str = "export", **changes) -> subprocess.CompletedProcess:
    """Run the stage in the folder, as the rule does, with these changes of the section `export`."""
    made_from = {"train": ["model"], "tokenizer": ["tokenizer"], "shards": ["shards"]}
    asked = {"variants": ["main", "ema"], "default_variant": "main"} | changes
    settings = write_job(folder, "export", out, made_from, languages=["eng"], export=asked)
    show_as(folder / out, folder / "results/export" / out)
    return run_module("babelmill.export", settings, cwd=folder)


def make_exported(folder: Path) -> None:
    """Train and export a NorBERT4 into a folder of this name, else a GPT-BERT."""
    (folder / "tokenizer").mkdir(parents=True)
    train(iter([SENTENCES * 3]), VOCABULARY, 2).save(str(folder / "tokenizer/tokenizer.json"))
    write_manifest(folder, "tokenizer", ["tokenizer.json"])
    write_shards(folder)
    write_model(folder, "norbert4" if folder.name == "norbert4" else "gpt_bert")
    done = export(folder)
    assert done.returncode == 0, done.stderr
