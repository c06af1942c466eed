"""Compute figures of the tiny run of `stored_figures.py`: documents, tokens, rows of the plan, batches."""

import argparse
import gzip
import hashlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from helpers.figures.figure_settings import LANGUAGES, LONG_WORD, SETTINGS, WORDS, digest, section


def sentences(language: str, count: int) -> list[str]:
    """Return different documents of the language's words."""
    words = WORDS[language].split()
    return [
        " ".join(words[(i * step + step * step) % len(words)] for step in range(1, 4 + i % 9)) for i in range(count)
    ]


def write_sources(folder: Path) -> dict[str, list[str]]:
    """Write text files of several kinds that need cleaning. Return their paths by language."""
    folder.mkdir()
    eng, deu = sentences("eng", 30), sentences("deu", 30)
    lines = [*eng[:15], "12345678", "1234567", "  padded  ", " seven c ", "", eng[3], "cafe\u0301 noir", "café noir"]
    lines += ["a \x07bell\x00 rings", "a bell rings", "<mask> is text</s>"]
    (folder / "a.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    texts: list[str | None] = [*eng[15:25], eng[0], None, "\u0085\u00ad   ", "two\nlines of text", "\u200b" * 9]
    entries = [{"text": text, "category": ["books", "wiki", "web"][i % 3]} for i, text in enumerate(texts)]
    jsonl = "".join(json.dumps(entry) + "\n" for entry in entries) + "{broken\n"
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(jsonl.encode(), mtime=0))
    quoted = "".join(f'{i},"{text}, ""quoted"" and\nbroken"\n' for i, text in enumerate(eng[25:]))
    (folder / "c.csv").write_text(f"number,text\n{quoted}", encoding="utf-8")
    (folder / "d.txt").write_text("\n".join([*deu, *deu[:4], LONG_WORD, f"{LONG_WORD}s {LONG_WORD}"]), encoding="utf-8")
    return {"eng": [str(folder / name) for name in ("a.txt", "b.jsonl.gz", "c.csv")], "deu": [str(folder / "d.txt")]}


def run_stage(module, settings, **arguments) -> dict:
    """Run a stage's function with these settings, without a file. Return its manifest's figures."""
    from babelmill.core import manifest

    with mock.patch.object(module, "read_settings", lambda *_: settings):
        module.run(argparse.Namespace(settings=None, **arguments))
    return manifest.read(arguments["out"])["figures"]


def make_corpora(folder: Path) -> dict[str, dict]:
    """Build four corpora. Return the figures of each manifest."""
    from babelmill.config.stage_settings import CorpusSettings
    from babelmill.corpus import __main__ as stage

    sources = write_sources(folder / "texts")
    kinds: dict[str, tuple[str, dict]] = {
        "eng": ("eng", {}),
        "deu": ("deu", {"validation_share": 0.2}),
        "as it is": ("eng", {"normalization": "none", "control_characters": "keep", "deduplicate": False}),
        "sample": ("eng", {"budget": "20 documents"}),
        "wiki": ("eng", {"categories": ["wiki"], "min_characters": 0}),
    }
    found = {}
    for name, (language, values) in kinds.items():
        corpus = section("corpus", files=sources[language], **values)
        settings = CorpusSettings(stage="corpus", name=name, corpus=corpus, sources={}, byte_premium=1.0)
        found[name] = run_stage(stage, settings, out=folder / name, download=[], threads=1)
    return found


def corpus_figures(folder: Path) -> dict:
    """Return which documents are kept, in order, by their digests, and the counts of the others."""
    import pyarrow.parquet as pq

    from babelmill.corpus.__main__ import is_validation

    keys = np.array([[int(2**64 * random.Random(i).random()), 0] for i in range(1000)], np.uint64)
    result: dict[str, Any] = {"set aside of 1000": np.flatnonzero(is_validation(keys, 0.1)).tolist()}
    for name, manifest in make_corpora(folder).items():
        result[name] = {key: manifest[key] for key in ("read", "dropped", "changed", "bytes", "categories", "budget")}
        for split in ("train", "validation"):
            texts = pq.read_table(folder / name / f"{split}.parquet")["text"].to_pylist()
            result[name][split] = [hashlib.sha256(text.encode()).hexdigest()[:8] for text in texts]
    return result


def token_figures(folder: Path) -> dict:
    """Return a tokenizer of two languages, by its digest, what it reports, and the tokens of their shards."""
    from babelmill import shards, tokenizer
    from babelmill.config.stage_settings import ShardsSettings, TokenizerSettings
    from babelmill.tokens.shard_file import ShardFile
    from babelmill.tokens.tokenizer_file import encode, load_tokenizer

    make_corpora(folder)
    values = {"tokenizer": section("tokenizer")}
    values |= {"mixture": section("mixture"), "source": None, "sources": {}}
    asked = TokenizerSettings(stage="tokenizer", name="both", languages=LANGUAGES, **values)
    out = folder / "tokenizer"
    corpora = [folder / language for language in LANGUAGES]
    found = run_stage(tokenizer, asked, corpora=corpora, out=out, threads=1, source=[])
    loaded = load_tokenizer(out / "tokenizer.json")
    probe = f"The quick <mask> fox's 1984\n\n\tnaïve {LONG_WORD} 水 </s>"
    result = {
        "tokenizer": hashlib.sha256((out / "tokenizer.json").read_bytes()).hexdigest()[:16],
        "last merges": [loaded.id_to_token(i) for i in range(390, 400)],
        "report": found["report"],
        "ids": encode(loaded, [probe])[0].tolist(),
    }
    for language in LANGUAGES:
        arguments = {"language": language, "tokenizer": out, "corpus": folder / language, "threads": 1}
        settings = ShardsSettings(stage="shards", name="both", languages=LANGUAGES, labels=section("labels"))
        counts = run_stage(shards, settings, out=folder / "shards" / language, **arguments)
        for split in ("train", "validation"):
            shard = ShardFile.open(folder / "shards" / language / f"{split}.safetensors")
            entry = {"digest": digest(shard.tokens), "first": shard.tokens[:16].tolist(), "ends": digest(shard.offsets)}
            counted = {key: count[split] for key, count in counts.items() if key != "words"}  # later than these figures
            result[f"{language} {split}"] = counted | entry
    return result


# The plan and the batches, from tokens that no tokenizer made.


def token_documents(count: int, seed: int) -> list[np.ndarray]:
    """Return token sequences that can be learnt: each token follows from the one before, except for some noise."""
    draw, result = random.Random(seed).random, []
    for _ in range(count):
        tokens = [16 + int(80 * draw())]
        for _ in range(int(40 * draw())):
            tokens.append(16 + (int(80 * draw()) if draw() < 0.2 else (5 * (tokens[-1] - 16) + 1) % 80))
        result.append(np.array([1, *tokens, 2]))
    return result


def vocabulary():
    """Return the vocabulary of `token_documents`."""
    from babelmill.tokens.vocabulary import Vocabulary

    return Vocabulary(size=96, bos=1, eos=2, pad=3, mask=4, special=tuple(range(16)))


def shard_files(folder: Path, split: str = "train") -> list:
    """Return the shards of two languages. Write them if needed."""
    from babelmill.tokens.shard_file import ShardFile, write_shard

    files = []
    for seed, count in enumerate((40, 20) if split == "train" else (8, 6)):
        path = folder / f"{split} {seed}.safetensors"
        documents = token_documents(count, seed + len(split))
        with write_shard(path, count, vocabulary().size, "none") as writer:
            writer.append(np.concatenate(documents), np.array([len(document) for document in documents]))
        files.append(ShardFile.open(path))
    return files


def stream_and_counts(folder: Path, split: str = "train") -> tuple:
    """Return the tokens of both languages and their counts."""
    import torch

    from babelmill.training.batches.token_batches import TokenStream
    from babelmill.training.plan.layouts import Packed
    from babelmill.training.plan.objectives import objective_of

    files = shard_files(folder, split)
    seed, objective = SETTINGS["train"]["seed"], objective_of(section("train"))
    stream = TokenStream(files, vocabulary(), seed, torch.device("cpu"), objective)
    return stream, [Packed(file.offsets) for file in files]


def rows_of_kind(layouts, length: int, kind: int):
    """Return all rows of all languages once, masked at 30 % (0) or causal (1)."""
    from babelmill.training.plan.objectives import objective_of
    from babelmill.training.plan.plan import every_row

    return every_row(layouts, length, objective_of(section("train", mask_rate_end=0.3)), kind)


def plans(counts) -> Iterator[tuple[str, Any, list[int]]]:
    """Yield plans of each objective, and steps to look at."""
    from babelmill.training.plan.plan import Plan

    yield "hybrid", Plan(section("train"), 0.5, counts), [0, 3, 19, 20, 35, 39]
    quarter = section("train", hybrid_ratio="1/4", token_weighted=True, batch_reduction=1, seed=2**40 + 1)
    yield "hybrid 1/4", Plan(quarter, 1.0, counts), [10]
    yield "masked", Plan(section("train", objective="masked", max_steps=None), 0.0, counts), [4]
    yield "causal", Plan(section("train", objective="causal", max_steps=None, epochs=2.5), 1.0, counts), [4]


def plan_figures(folder: Path) -> dict:
    """Return rows, rates and numbers of targets of some steps of some plans."""
    result = {}
    for name, plan, steps in plans(stream_and_counts(folder)[1]):
        of_plan: dict[str, Any] = {"steps": plan.steps, "tokens": plan.tokens_until(plan.steps)}
        of_plan["learning rates"] = [plan.step(step).learning_rate for step in range(0, plan.steps, 3)]
        for number in steps:
            step, rows = plan.step(number), {}
            for field in ("language", "row", "number"):
                rows[field] = getattr(step.rows, field).tolist()
            rows["masked"] = (step.rows.kind == 0).astype(int).tolist()
            for kind, field in enumerate(("masked_targets", "causal_targets")):
                rows[field] = np.where(step.rows.kind == kind, step.rows.targets, 0).tolist()
            numbers = {"length": step.length, "mask rate": step.mask_rate, "target weights": list(step.weights)}
            of_plan[f"step {number}"] = numbers | rows
        of_plan["all rows"] = digest(np.concatenate([plan.step(step).rows.row for step in range(plan.steps)]))
        result[name] = of_plan
    return result


def batch_figures(folder: Path) -> dict:
    """Return the integers of a batch of each kind, and of every token of the text masked at 30 %."""
    stream, counts = stream_and_counts(folder)
    rows = {name: (plan.step(steps[-1]).rows, plan.step(steps[-1]).length) for name, plan, steps in plans(counts)}
    rows["every row masked"] = rows_of_kind(counts, 64, 0), 64
    rows["every row causal"] = rows_of_kind(counts, 16, 1), 16
    result = {}
    for name, (chosen, length) in rows.items():
        batch = stream.micro_batch(chosen, length, (0.25, 0.75), pad_rows_to=3)
        fields = ("input_ids", "segments", "causal", "positions", "targets", "groups")
        result[name] = {field: digest(getattr(batch, field).numpy()) for field in fields}
        result[name]["first row"] = batch.input_ids[0, :16].tolist()
        result[name]["first targets"] = batch.targets[:8].tolist()
        result[name]["sum of weights"] = float(batch.weights.double().sum())
    return result


# Training.
