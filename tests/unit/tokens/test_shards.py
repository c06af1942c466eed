"""The stage `shards`: documents in, documents out, whatever the number of threads; nothing damaged is read."""

import logging
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.bars import Bar
from babelmill.core.files import UserError, sha256
from babelmill.tokens.shard_file import ShardFile
from babelmill.tokens.tokenizer_file import load_tokenizer
from helpers.damage import flip_a_bit
from helpers.stages import run_stage, write_corpus

SPECIAL_TEXT = "a <s>name</s> <mask>"
DOCUMENTS = [
    *(f"Document {i}: {'text of some length, ' * (i % 40)}Ende: Straße № {i} 漢字仮名\n" for i in range(300)),
    SPECIAL_TEXT,
    " ",
    "long " * 60_000,
    "last",
]
HELD_OUT = ["Held out.", "Wir halten das zurück: 漢字"]


CONFIGURATION = Configuration([("test", {"tokenizer": {"vocab_size": 320}})])


@pytest.fixture
def inputs(tmp_path):
    """A folder with a corpus and a tokenizer that was trained on it."""
    corpus = write_corpus(tmp_path / "corpus", {"text": DOCUMENTS}, {"text": HELD_OUT}, rows=100)
    run_stage("tokenizer", CONFIGURATION, out=tmp_path / "tokenizer", corpora=[corpus])
    return tmp_path


def build(folder, out="out", threads=1):
    inputs = {"tokenizer": folder / "tokenizer", "corpus": folder / "corpus", "threads": threads}
    run_stage("shards", CONFIGURATION, out=folder / out, **inputs)
    return folder / out


def test_the_stream_is_the_documents(inputs, monkeypatch, caplog):
    """And it says how far it is, to the last document."""
    monkeypatch.setattr(Bar, "EVERY", 0.0)
    caplog.set_level(logging.INFO)
    out = build(inputs)
    for said in ("train: 304/304 documents", "validation: 2/2 documents"):
        assert f"tokenizing {said}" in caplog.text
    loaded = load_tokenizer(inputs / "tokenizer/tokenizer.json")
    for split, documents in (("train", DOCUMENTS), ("validation", HELD_OUT)):
        shard = ShardFile.open(out / f"{split}.safetensors")
        others = load_file(out / f"{split}.safetensors")  # as any reader of safetensors reads them
        assert isinstance(shard.tokens, np.memmap) and (others["tokens"] == shard.tokens).all()
        assert others.keys() == {"tokens", "offsets"} and (others["offsets"] == shard.offsets).all()
        assert shard.metadata == {"tokenizer_sha256": sha256(inputs / "tokenizer/tokenizer.json"), "vocab_size": "320"}
        assert shard.tokens.dtype == np.uint16 and len(shard.offsets) == len(documents) + 1
        for text, start, end in zip(documents, shard.offsets, shard.offsets[1:], strict=False):
            ids = shard.tokens[start:end].tolist()
            assert ids[0] == 1 and ids[-1] == 2
            assert min(ids[1:-1]) >= 16, "a special token's name in a document is ordinary text"
            assert loaded.decode(ids[1:-1], skip_special_tokens=False) == text
        figures = manifest.verify(out)["figures"]
        assert figures["documents"][split] == len(documents)
        assert figures["tokens"][split] == len(shard.tokens)
        assert figures["bytes"][split] == sum(len(text.encode()) for text in documents)


def test_the_same_bytes_on_every_run_and_for_every_number_of_threads(inputs, monkeypatch):
    monkeypatch.setattr("babelmill.tokens.documents.BATCH_BYTES", 3000)  # many batches under way at once
    folders = [build(inputs, out=str(threads), threads=threads) for threads in (1, 2, 7, 2)]
    for name in ("train.safetensors", "validation.safetensors", "manifest.json"):
        assert len({(folder / name).read_bytes() for folder in folders}) == 1
    monkeypatch.setattr("babelmill.tokens.documents.BATCH_BYTES", 1 << 20)
    whole = build(inputs, out="whole", threads=2)
    assert (whole / "train.safetensors").read_bytes() == (folders[0] / "train.safetensors").read_bytes()


@pytest.mark.parametrize("name", ["tokenizer/tokenizer.json", "corpus/train.parquet", "corpus/validation.parquet"])
def test_one_flipped_bit_is_refused_and_leaves_nothing(inputs, name):
    flip_a_bit(inputs / name)
    with pytest.raises(UserError, match=rf"{name}: damaged"):
        build(inputs)
    assert not (inputs / "out").exists()


def test_validation_without_documents_is_refused(inputs):
    shutil.rmtree(inputs / "corpus")
    write_corpus(inputs / "corpus", {"text": DOCUMENTS}, {"text": []})
    with pytest.raises(UserError, match=r"corpus of eng has no validation documents.*corpus\.validation_share"):
        build(inputs)
