"""CANINE's tokenizer: which ids a text has, where the workflow takes it from, and what an exported folder has of it."""

import os
from pathlib import Path

import pytest
import transformers

from babelmill.config import inputs
from babelmill.config.resolve import Configuration
from babelmill.labels.data import frame_of
from babelmill.release.folder.hub_folder import copy_published
from babelmill.tokens import characters
from babelmill.tokens.shard_file import ShardFile
from babelmill.tokens.tokenizer_file import encode, load_tokenizer, vocab_size
from babelmill.tokens.vocabulary import Vocabulary
from helpers.stages import run_stage, write_corpus

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("folder")]

TEXTS = [
    "Küfer & Faßbinder\u00a0",
    "",
    "中文，日本語のテキスト。 ไทย हिन्दी ಕನ್ನಡ می‌خواهم עִבְרִית 한국어 ᏣᎳᎩ",
    "👩‍👩‍👧🏽 𝔘𝔫𝔦 \U0010fffd",
    "[CLS] <s> \ue000\ue003 \x00 e\u0301 ﬁ \r\n\t",
]
SCRATCH = {"architecture": "transformers", "config": {"model_type": "canine"}, "max_position_embeddings": 512}


TRAIN = {"objective": "labels", "sequence_lengths": [32], "phase_starts": [0], "optimizer": "adamw"}
CONFIGURATION = Configuration([("test", {"models": {"occ": {"languages": ["eng"], "model": SCRATCH, "train": TRAIN}}})])


def test_ids_are_code_points_as_transformers_has_them():
    characters.write_files(Path(), 64)
    ours, theirs = load_tokenizer("tokenizer.json"), transformers.CanineTokenizer()
    assert vocab_size(ours) == len(theirs) == characters.ENTRIES
    for text in TEXTS:
        alone, pair = (theirs(*given, split_special_tokens=True)["input_ids"] for given in ((text,), ("é 🧔", text)))
        assert ours.encode(text).ids == alone and alone[1:-1] == [ord(character) for character in text]
        assert ours.encode("é 🧔", text).ids == pair and pair[4:5] == [characters.SEP]
        assert ours.decode(ours.encode(text, add_special_tokens=False).ids, skip_special_tokens=False) == text
    tokens, lengths = encode(ours, ["a" * (1 << 20) + "é", "b"])
    assert lengths.tolist() == [(1 << 20) + 1, 1] and tokens[-2:].tolist() == [ord("é"), ord("b")]


def test_a_model_of_characters_has_transformers_tokenizer():
    """From scratch. (`e2e/test_canine.py` has one of the Hub.)"""
    texts, made = [text for text in TEXTS if text], Path("tokenizer")
    columns = {"text": texts} | {
        name: [value] * len(texts) for name, value in (("context", ""), ("labels", ["a"]), ("origin", "a.csv"))
    }
    corpus = write_corpus(Path("corpus"), columns, columns)
    figures = run_stage("tokenizer", CONFIGURATION, "occ", made, corpora=[corpus], source=[])
    assert figures["roles"] == characters.ROLES
    vocabulary = Vocabulary.read(made / "tokenizer.json", 0)
    named = {"bos_token_id": 0xE000, "eos_token_id": 0xE001, "pad_token_id": 0, "mask_token_id": 0xE003}
    assert vocabulary.ids == named
    frame = frame_of(load_tokenizer(made / "tokenizer.json"), vocabulary)
    assert (frame.alone, frame.pad) == (((0xE000,), (0xE001,)), 0)
    assert frame.pair == ((0xE000,), (0xE001,), (0xE001,))

    run_stage("shards", CONFIGURATION, "occ", "shards", tokenizer=made, corpus=corpus)
    shard = ShardFile.open(Path("shards/train.safetensors"))
    assert shard.tokens[1 : shard.offsets[1] - 1].tolist() == [ord(character) for character in TEXTS[0]]

    Path("export").mkdir()
    files = copy_published(made, Path("export"))
    assert sorted(files) == ["special_tokens_map.json", "tokenizer_config.json"] == sorted(os.listdir("export"))
    theirs = transformers.AutoTokenizer.from_pretrained("export")
    assert theirs.model_max_length == 512
    for text in TEXTS:
        assert theirs(text)["input_ids"] == load_tokenizer(made / "tokenizer.json").encode(text).ids


def test_a_canine_may_have_another_tokenizer():
    Path("words.json").write_text("{}")
    sections = {"model": SCRATCH, "train": TRAIN, "tokenizer": {"source": "words.json"}}
    assert inputs.characters(Configuration([("test", sections)]).model("eng")) is None
