"""Compute the figures of a tiny run that never changes, so that a claim of "same results" can be found wrong.

    python tests/stored_figures.py --write                       # store them: results have changed, and should have
    python tests/stored_figures.py --out found.json plan batches # compute some sections

`babelmill accept STAGE` says that edited code gives the same results; `tests/unit/test_stored_figures.py` compares
these figures with the stored ones (`tests/data/stored_figures.json`), after every edit and every change of a pin. There
are three kinds of figures:

* exact: documents, tokens, rows of the plan, integers of batches;
* float64 on one thread, within 1e-9: learning rates, losses, gradient norms, weights;
* float32, within a tolerance that was measured: {"centre", "tolerance"} in the file. `--write` computes them in six
  processes, for ATEN_CPU_CAPABILITY default, avx2 and avx512 with one and with two threads; the centre is the middle
  of the six, and the tolerance five times their spread (the widest of a list's numbers, at least a rounding step).

Each section makes its own data, so that a difference points at the code that made it: training does not go through the
tokenizer, whose tokens may change with the library. Modules are imported where they are used, so that a process loads
only what its sections need.
"""

import argparse
import copy
import gzip
import hashlib
import itertools
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import yaml

ROOT = Path(__file__).parents[1]
STORED = ROOT / "tests/data/stored_figures.json"
ABOUT = "Made by `python tests/stored_figures.py --write`, which says what the figures are; do not edit."
RELATIVE = 1e-9  # of float64 figures
SPREADS = 5  # times the spread: tolerance of float32 figures
ROUNDING = 2.0**-22  # relative: the least tolerance of a float32 figure
CONDITIONS = list(itertools.product(("default", "avx2", "avx512"), (1, 2)))

# All keys, as config/defaults.yaml has them, so that a new default changes no figure.
SETTINGS = yaml.safe_load("""
corpus: {files: [], builtin: null, hub: null, revision: "", validation_files: [], text_column: text, document: line,
  validation_share: 0.3, on_error: skip, normalization: NFC, control_characters: remove, min_characters: 8,
  deduplicate: true, categories: [], budget: null}
tokenizer: {source: null, revision: "", vocab_size: 400, min_frequency: 2}
mixture: {weights: 0.5}
model: {hidden_size: 24, intermediate_size: 32, num_attention_heads: 2, num_hidden_layers: 2,
  max_position_embeddings: 64, position_bucket_size: 8, hidden_dropout_prob: 0.1, attention_probs_dropout_prob: 0.1,
  layer_norm_eps: 1.0e-5, gate: true, layer_mixing: true}
train: {seed: 42, epochs: 3, max_steps: 40, global_batch_tokens: 256, batch_reduction: 2, micro_batch_tokens: 128,
  sequence_lengths: [16, 32, 64], phase_starts: [0.0, 0.5, 0.8], objective: hybrid, hybrid_ratio: 1/2,
  token_weighted: false, mask_rate_start: 0.3, mask_rate_end: 0.15, optimizer: lamb, learning_rate: 0.007,
  learning_rate_floor: 0.1, warmup: 0.1, cooldown: 0.1, betas: [0.9, 0.98], eps: 1.0e-8, weight_decay: 0.1,
  clip_norm: 0.5, z_loss_weight: 1.0e-4, ema_decay: 0.999, precision: fp32, activation_checkpointing: false,
  non_finite: stop}
""")
LANGUAGES = ["eng", "deu"]
WORDS = {
    "eng": "the quick brown fox's over-ripe 12345 jumps, lazy dogs while seven wizards boil «warm» water (slowly) again",
    "deu": "der schnelle Fuchs springt über 1984 faule Hunde, während Straßenbahnhaltestellenhäuschen sich «drehen» 水 и",
}
LONG_WORD = "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz"


def section(name: str, **values):
    """Return a section of the settings: these values over the ones above. (Keys added later have their default.)"""
    from babelmill.config.schema import SECTIONS

    defaults = yaml.safe_load((ROOT / "config/defaults.yaml").read_text(encoding="utf-8"))[name]
    return SECTIONS[name].model_validate({**defaults, **SETTINGS[name], **values})


def digest(array) -> str:
    """Return the beginning of the SHA-256 of an array's integers."""
    return hashlib.sha256(np.ascontiguousarray(np.asarray(array), "<i8").tobytes()).hexdigest()[:16]


# Documents and tokens.


def sentences(language: str, count: int) -> list[str]:
    """Return different documents of the language's words."""
    words = WORDS[language].split()
    return [
        " ".join(words[(i * step + step * step) % len(words)] for step in range(1, 4 + i % 9)) for i in range(count)
    ]


def write_sources(folder: Path) -> dict[str, list[str]]:
    """Write text files of several kinds, with what cleaning has to find; their paths by language."""
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
    """Run a stage's function with these settings, as no file has them; its manifest's figures."""
    from babelmill.core import manifest

    with mock.patch.object(module, "read_settings", lambda *_: settings):
        module.run(argparse.Namespace(settings=None, **arguments))
    return manifest.read(arguments["out"])["figures"]


def make_corpora(folder: Path) -> dict[str, dict]:
    """Build four corpora; the figures of each manifest."""
    from babelmill.corpus import __main__ as stage
    from babelmill.stages import CorpusSettings

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
        found[name] = run_stage(stage, settings, out=folder / name, download=[])
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
    from babelmill.stages import ShardsSettings, TokenizerSettings
    from babelmill.tokens.shard_file import ShardFile
    from babelmill.tokens.tokenizer_file import encode, load_tokenizer

    make_corpora(folder)
    values = {"tokenizer": section("tokenizer")}
    values |= {"mixture": section("mixture"), "source": None, "sources": {}}
    asked = TokenizerSettings(stage="tokenizer", name="both", languages=LANGUAGES, **values)
    out = folder / "tokenizer"
    corpora = [folder / language for language in LANGUAGES]
    found = run_stage(tokenizer, asked, corpora=corpora, out=out, threads=1)
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
        settings = ShardsSettings(stage="shards", name="both", languages=LANGUAGES)
        counts = run_stage(shards, settings, out=folder / "shards" / language, **arguments)
        for split in ("train", "validation"):
            shard = ShardFile.open(folder / "shards" / language / f"{split}.safetensors")
            entry = {"digest": digest(shard.tokens), "first": shard.tokens[:16].tolist(), "ends": digest(shard.offsets)}
            result[f"{language} {split}"] = {key: counts[key][split] for key in counts} | entry
    return result


# The plan and the batches, from tokens that no tokenizer made.


def token_documents(count: int, seed: int) -> list[np.ndarray]:
    """Return token sequences that can be learnt: each token follows from the one before, but for some noise."""
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
    """Return the shards of two languages, written if they are not there."""
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

    from babelmill.training.batches import TokenCounts, TokenStream

    files = shard_files(folder, split)
    stream = TokenStream(files, vocabulary(), SETTINGS["train"]["seed"], torch.device("cpu"))
    return stream, [TokenCounts(file.offsets) for file in files]


def plans(counts) -> Iterator[tuple[str, Any, list[int]]]:
    """Yield plans of each objective, and steps to look at."""
    from babelmill.training.plan import Plan

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
            for field in ("language", "row", "masked", "masked_targets", "causal_targets", "number"):
                rows[field] = getattr(step.rows, field).astype(int).tolist()
            numbers = {"length": step.length, "mask rate": step.mask_rate, "target weights": list(step.weights)}
            of_plan[f"step {number}"] = numbers | rows
        of_plan["all rows"] = digest(np.concatenate([plan.step(step).rows.row for step in range(plan.steps)]))
        result[name] = of_plan
    return result


def batch_figures(folder: Path) -> dict:
    """Return the integers of a batch of each kind, and of every token of the text masked at 30 %."""
    from babelmill.training.plan import every_row

    stream, counts = stream_and_counts(folder)
    rows = {name: (plan.step(steps[-1]).rows, plan.step(steps[-1]).length) for name, plan, steps in plans(counts)}
    rows["every row masked"] = every_row(counts, 64, 0.3, masked=True), 64
    rows["every row causal"] = every_row(counts, 16, 0.3, masked=False), 16
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


def small_model():
    """Return an embedding, a matrix and a bias, and a copy of them."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"embedding": torch.nn.Embedding(5, 3), "linear": torch.nn.Linear(3, 4)})
    return model, copy.deepcopy(model)


def optimizer_figures(_: Path) -> dict:
    """Return weights after three steps of each optimizer."""
    import torch

    from babelmill.training.optim import Optimizers

    result: dict[str, Any] = {}
    for name in ("lamb", "adamw", "muon"):
        model, _ = small_model()
        optimizers = Optimizers(model, section("train", optimizer=name))
        for step in range(3):
            for parameter in model.parameters():
                parameter.grad = torch.sin(torch.arange(1.0, parameter.numel() + 1) * (step + 1)).view_as(parameter)
            optimizers.step(0.1 / (step + 1), torch.ones(()))
        result[name] = {key: value.flatten().tolist() for key, value in model.state_dict().items()}
    return result


def averaging_figures(_: Path) -> dict:
    """Return clipped gradients, and a moving average after some steps, its decay at first below its limit."""
    import torch

    from babelmill.training.optim import MovingAverage, clip

    result: dict[str, Any] = {}
    for limit in (0.1, 2.0, 100.0):
        gradient = torch.arange(1.0, 5.0)
        norm, finite = clip(gradient, limit)
        result[f"clip to {limit}"] = [norm.item(), finite.item(), *gradient.tolist()]
    model, average = small_model()
    moving = MovingAverage(model, average, 0.05)
    for step in (0, 1, 2, 3, 100):
        with torch.no_grad():
            model["linear"].bias.fill_(step + 1)
        moving.update(step)
        result[f"average after {step}"] = average["linear"].bias.tolist()
    return result


def gradient_figures(folder: Path) -> dict:
    """Return the loss of one batch under both kinds of models, its sums, and the norm of each parameter's gradient."""
    import torch

    from babelmill.model.attention import position_buckets
    from babelmill.model.gpt_bert import GPTBert, GPTBertShape, training_mask
    from babelmill.training import objectives
    from babelmill.training.plan import every_row

    stream, counts = stream_and_counts(folder)
    rows = [every_row(counts, 64, 0.3, masked)[::5] for masked in (True, False)]
    result: dict[str, Any] = {
        "a bucket's distances": torch.bincount(position_buckets(1, 512, 32, 512)[0]).tolist(),
        "small buckets": position_buckets(5, 80, 8, 64)[2].tolist(),
    }
    for name, switches in (("GPT-BERT", {}), ("LTG-BERT", {"gate": False, "layer_mixing": False})):
        torch.manual_seed(1)
        model = GPTBert(GPTBertShape(vocab_size=vocabulary().size, **section("model", **switches).model_dump()))
        found: dict[str, Any] = {"losses": []}
        for part in rows:
            batch = stream.micro_batch(part, 64, (0.01, 0.002))
            hidden = model.encode(batch.input_ids, training_mask(batch.segments, batch.causal))
            features = model.classifier.features(hidden.flatten(0, 1)[batch.positions])
            output = model.embedding.word_embedding.weight, model.classifier.bias
            loss, sums = objectives.loss(features, *output, batch, 1e-4, 4)
            loss.backward()
            found["losses"] += [loss.item(), *sums.flatten().tolist()]
        result[name] = found | {key: p.grad.norm().item() for key, p in model.named_parameters()}
    return result


def make_trainer(folder: Path, model: dict, train: dict):
    """Return a trainer of two languages, alone on the CPU."""
    import torch

    from babelmill.model.gpt_bert import GPTBertShape
    from babelmill.runtime.processes import Processes
    from babelmill.stages import TrainSettings
    from babelmill.training.plan import Plan
    from babelmill.training.trainer import Trainer

    sections = {"model": section("model", **model), "train": section("train", **train)}
    settings = TrainSettings(stage="train", name="test", languages=LANGUAGES, mixture=section("mixture"), **sections)
    stream, counts = stream_and_counts(folder)
    validation_stream, validation_counts = stream_and_counts(folder, "validation")
    shape = GPTBertShape(vocab_size=vocabulary().size, **settings.model.model_dump())
    alone = Processes(rank=0, size=1, local_size=1, device=torch.device("cpu"))
    plan = Plan(settings.train, settings.mixture.weights, counts)
    return Trainer(settings, shape, plan, stream, (validation_counts, validation_stream), alone)


def projection(model) -> tuple[float, float]:
    """Return the norm of a model's weights, and a sum of them in which each counts differently."""
    import torch

    weights = torch.cat([parameter.detach().double().flatten() for parameter in model.parameters()])
    return weights.norm().item(), (weights * torch.arange(len(weights)).double().cos()).sum().item()


def train_steps(trainer, steps) -> dict[str, list[float]]:
    """Do steps of a run: losses, gradient norms, weights, validation."""
    found: dict[str, list[float]] = {"cross-entropy": [], "logsumexp^2": [], "gradient norm": []}
    for number in steps:
        outcome = trainer.run_step(number).read()
        rows = trainer.plan.step(number).rows
        targets = int(rows.masked_targets.sum() + rows.causal_targets.sum())
        found["cross-entropy"].append(float(outcome.sums[:, 0].sum()) / targets)
        found["logsumexp^2"].append(float(outcome.sums[:, 1].sum()) / targets)
        found["gradient norm"].append(outcome.norm)
    ends = [projection(model) for model in (trainer.model, trainer.average)]
    found["norms of weights and average"] = [norm for norm, _ in ends]
    found["projections of weights and average"] = [projected for _, projected in ends]
    measured = trainer.validate()
    found["validation"] = [measured[key] for key in ("loss", "ema_loss")]
    return found


RUNS: dict[str, tuple[dict, dict, list[int]]] = {
    "hybrid with lamb": ({}, {}, [2, 9, 25, 38]),
    "masked with adamw, LTG-BERT": (
        {"gate": False, "layer_mixing": False},
        {"objective": "masked", "optimizer": "adamw", "activation_checkpointing": True},
        [2, 35],
    ),
    "causal with muon": ({}, {"objective": "causal", "optimizer": "muon"}, [2, 35]),
}


def training_figures(folder: Path) -> dict:
    """Return losses, gradient norms and weights of a few steps of some runs, in float64.

    "types" are what the numbers are made in: a buffer that stayed float32 would hide small differences.
    """
    import torch

    from babelmill.model.dropout import keep_mask

    result: dict[str, Any] = {}
    for name, (model, train, steps) in RUNS.items():
        trainer = make_trainer(folder, model, train)
        result[name] = train_steps(trainer, steps)
        if name == next(iter(RUNS)):
            kinds = {str(p.dtype) for m in (trainer.model, trainer.average) for p in m.parameters()}
            kinds |= {str(parameter.grad.dtype) for parameter in trainer.model.parameters()}
            kinds |= {str(keep_mask(torch.Size([4]), 0.1).dtype)}
            kinds |= {str(tensor.dtype) for n, tensor in trainer.tensors().items() if not n.endswith(".step")}
            result["types"] = sorted(kinds)
    return result


def twenty_steps_figures(folder: Path) -> dict:
    """Return twenty steps in float32, as runs are made on a CPU."""
    return train_steps(make_trainer(folder, {}, {"max_steps": 20, "clip_norm": 2.0}), range(20))


def passes(folder: Path) -> dict[str, list]:
    """Return the rows of both scores of a validation text."""
    from babelmill.evaluation.scoring import causal_rows, masked_rows

    tokens, words = shard_files(folder, "validation")[0].tokens, vocabulary()
    return {"causal": [causal_rows(tokens, 32, words)], "masked": list(masked_rows(tokens, 32, 7, words))}


def scoring_figures(folder: Path) -> dict:
    """Return digests of the rows that evaluation scores."""
    fields = ("inputs", "targets", "scored")
    return {
        kind: {field: digest([getattr(part, field) for part in rows]) for field in fields}
        for kind, rows in passes(folder).items()
    }


def evaluation_figures(folder: Path) -> dict:
    """Return the scores of an exported model with random weights, in float32."""
    import torch

    from babelmill import evaluate
    from babelmill.evaluation.scoring import nats
    from babelmill.model.transformers.configuration_gpt_bert import GPTBertConfig
    from babelmill.model.transformers.modeling_gpt_bert import GPTBertForCausalLM, GPTBertForMaskedLM

    words, rows = vocabulary(), passes(folder)
    config = GPTBertConfig(vocab_size=words.size, pad_token_id=words.pad, **SETTINGS["model"])
    result: dict[str, Any] = {}
    for kind, model_class in (("causal", GPTBertForCausalLM), ("masked", GPTBertForMaskedLM)):
        torch.manual_seed(5)
        model = model_class(config).eval().requires_grad_(False)
        for parameter in model.parameters():
            parameter.mul_(3)  # so that it is sure of something
        total = sum(nats(model, part, words, lambda _: None) for part in rows[kind])
        result[f"{kind} bits per byte"] = [evaluate.entry(total, 100, 300)["bits_per_byte"]]
    tokens = [shard_files(folder, split)[0].tokens for split in ("train", "validation")]
    counts = [evaluate.occurrences(stream, words)[~words.is_special] for stream in tokens]
    result["unigram nats"] = evaluate.unigram_nats(*counts)
    return result


SECTIONS = {
    "corpus": corpus_figures,
    "tokens": token_figures,
    "plan": plan_figures,
    "batches": batch_figures,
    "scoring": scoring_figures,
    "gradients": gradient_figures,
    "optimizers": optimizer_figures,
    "averaging": averaging_figures,
    "training": training_figures,
    "twenty steps": twenty_steps_figures,
    "evaluation": evaluation_figures,
}
FLOAT64 = ("gradients", "optimizers", "averaging", "training")
FLOAT32 = ("twenty steps", "evaluation")


def compute(names: list[str], threads: int = 1) -> dict[str, dict]:
    """Return the figures of some sections."""
    result = {}
    for name in names:
        if name in (*FLOAT64, *FLOAT32):
            import torch

            torch.set_num_threads(threads)
            torch.set_default_dtype(torch.float64 if name in FLOAT64 else torch.float32)
        with tempfile.TemporaryDirectory() as folder:
            result[name] = SECTIONS[name](Path(folder))
    return result


# Comparison.


def leaves(figures: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of all figures: numbers, texts, lists of them, and those with a tolerance."""
    if isinstance(figures, dict) and set(figures) != {"centre", "tolerance"}:
        for key, value in figures.items():
            yield from leaves(value, f"{name}: {key}" if name else key)
    else:
        yield name, figures


def equal(stored: Any, found: Any, tolerance: float | None) -> bool:
    """Whether two numbers or texts are the same, as far as they can be."""
    if isinstance(stored, float) or isinstance(found, float):
        if tolerance is None:
            return math.isclose(stored, found, rel_tol=RELATIVE, abs_tol=1e-15)
        return abs(stored - found) <= tolerance
    return stored == found


def difference(stored: Any, found: Any) -> str | None:
    """Say how a found figure differs from the stored one; None if it does not."""
    tolerance = None
    if isinstance(stored, dict):
        stored, tolerance = stored["centre"], stored["tolerance"]
    if not isinstance(stored, list) or not isinstance(found, list):
        return None if equal(stored, found, tolerance) else f"stored {stored!r}, found {found!r}"
    if len(stored) != len(found):
        return f"stored {len(stored)} entries, found {len(found)}"
    wrong = [i for i, pair in enumerate(zip(stored, found, strict=True)) if not equal(*pair, tolerance)]
    if not wrong:
        return None
    first = f"number {wrong[0]}: stored {stored[wrong[0]]!r}, found {found[wrong[0]]!r}"
    allowed = "" if tolerance is None else f" (allowed: +-{tolerance:.1e})"
    return f"{len(wrong)} of {len(stored)} differ; {first}{allowed}"


def compare(stored: dict, found: dict) -> list[str]:
    """Return a line for each figure that is not the stored one."""
    missing = "nothing"
    before, after = dict(leaves(stored)), dict(leaves(found))
    pairs = {name: (before.get(name, missing), after.get(name, missing)) for name in (before | after)}
    lines = {name: difference(*pair) for name, pair in pairs.items()}
    return [f"{name}: {line}" for name, line in lines.items() if line]


def read_stored() -> dict[str, dict]:
    """Return the stored figures."""
    return json.loads(STORED.read_text(encoding="utf-8"))["figures"]


# Commands.


def in_a_process(names, capability: str | None = None, threads: int = 1, package: Path = ROOT / "workflow") -> dict:
    """Return the figures of some sections, computed in a process of its own.

    Args:
        names: of the sections.
        capability: ATEN_CPU_CAPABILITY, which PyTorch reads once; None for the processor's own.
        threads: of PyTorch.
        package: the folder with the package, which may be a copy.
    """
    environment = {name: value for name, value in os.environ.items() if name != "ATEN_CPU_CAPABILITY"}
    environment |= {"PYTHONPATH": str(package), "OMP_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": ""}
    if capability:
        environment["ATEN_CPU_CAPABILITY"] = capability
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        command = [sys.executable, __file__, "--out", str(out), "--threads", str(threads), *names]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return json.loads(out.read_text(encoding="utf-8"))


def with_tolerance(found: list[Any]) -> Any:
    """Return what six processes found as it is stored: centre and tolerance of lists of floats, else what all found."""
    first = found[0]
    if isinstance(first, dict):
        return {key: with_tolerance([one[key] for one in found]) for key in first}
    if not isinstance(first, list):
        if not all(equal(first, one, None) for one in found):
            raise RuntimeError(f"processors would not agree on it: {found}")
        return first
    values = np.array(found)
    low, high = values.min(0), values.max(0)
    spread = float((high - low).max())
    least = ROUNDING * float(np.abs(values).max())
    return {"centre": ((low + high) / 2).tolist(), "tolerance": float(f"{max(SPREADS * spread, least):.2g}")}


def measure() -> dict[str, dict]:
    """Return all figures as they are stored, and say how far the six conditions are apart."""
    exact = [name for name in SECTIONS if name not in (*FLOAT64, *FLOAT32)]
    figures = in_a_process(exact)
    found = [in_a_process([*FLOAT64, *FLOAT32], *condition) for condition in CONDITIONS]
    for name in FLOAT64:
        figures[name] = found[0][name]
        for condition, other in zip(CONDITIONS, found, strict=True):
            if lines := compare({name: figures[name]}, {name: other[name]}):
                raise RuntimeError(f"in float64, {condition} differs from {CONDITIONS[0]}:\n" + "\n".join(lines))
    for name in FLOAT32:
        figures[name] = with_tolerance([one[name] for one in found])
        for figure, value in leaves(figures[name], name):
            if isinstance(value, dict):
                largest = max(map(abs, value["centre"]))
                print(f"{figure}: tolerance {value['tolerance']:.1e} of {largest:.4g}")
    return figures


def write(figures: dict) -> None:
    """Store the figures, a list in a line."""
    text = json.dumps({"about": ABOUT, "figures": figures}, indent=1, ensure_ascii=False)
    text = re.sub(r"\[[^][{}]*\]", lambda found: f"[{' '.join(found[0][1:-1].split())}]", text)
    STORED.write_text(f"{text}\n", encoding="utf-8")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], help="all, if none is named")
    parser.add_argument("--write", action="store_true", help="store all figures: results have changed, and should have")
    parser.add_argument("--out", type=Path, help="write the figures of the sections to this file")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if args.write:
        write(measure())
    elif args.out:
        args.out.write_text(json.dumps(compute(args.sections or list(SECTIONS), args.threads)), encoding="utf-8")
    else:
        lines = compare(read_stored(), in_a_process(list(SECTIONS)))
        print(*(lines or ["all figures are the stored ones"]), sep="\n")
        sys.exit(bool(lines))


if __name__ == "__main__":
    main()
