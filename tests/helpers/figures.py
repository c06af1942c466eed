"""Compute the figures of a tiny run that never changes, for `scripts/stored_figures.py`."""

import argparse
import gzip
import hashlib
import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
import yaml

from babelmill import shards, tokenizer
from babelmill.core import manifest
from babelmill.corpus import __main__ as corpus
from babelmill.corpus.choosing import is_validation
from babelmill.evaluation import rows
from babelmill.evaluation.metrics import entry
from babelmill.evaluation.rows import Row
from babelmill.evaluation.validation_text import occurrences, unigram_nats, windows
from babelmill.model.attention import position_buckets
from babelmill.model.gpt_bert import GPTBert, GPTBertShape
from babelmill.stages import CorpusStage, ShardsStage, Stage, TokenizerStage, TrainStage
from babelmill.tokens.shard_file import ShardFile
from babelmill.tokens.tokenizer_file import encode, load_tokenizer
from babelmill.training.kernels.dropout import keep
from babelmill.training.networks.gpt_bert import GPTBertNetwork, NorBERT4Network
from babelmill.training.networks.source_weights import new_shape
from babelmill.training.optimization.gradients import clip
from babelmill.training.optimization.optim import MovingAverage, make_optimizer
from babelmill.training.plan.plan import Plan
from babelmill.training.trainer import Trainer
from helpers.training import training_data
from helpers.training.tiny_trainer import ALONE
from helpers.training.training_data import VOCABULARY, every_row, write_documents

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
train: {seed: 42, epochs: 3, max_steps: 40, global_batch_tokens: 256, batch_reduction: 2, micro_batch_tokens: null,
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
    return training_data.section(name, **SETTINGS.get(name, {}) | values)


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


def run_stage(module, settings: Stage, out: Path) -> dict:
    """Run a stage's function with these settings, without a file. Return its manifest's figures."""
    module.run(argparse.Namespace(settings=settings, out=out, threads=1))
    return manifest.read(out)["figures"]


def make_corpora(folder: Path) -> dict[str, dict]:
    """Build four corpora. Return the figures of each manifest."""
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
        asked = section("corpus", files=sources[language], **values)
        settings = CorpusStage(languages=[language], corpus=asked, sources={}, byte_premium=1.0)
        found[name] = run_stage(corpus, settings, folder / name)
    return found


def corpus_figures(folder: Path) -> dict:
    """Return which documents are kept, in order, by their digests, and the counts of the others."""

    keys = np.array([[int(2**64 * random.Random(i).random()), 0] for i in range(1000)], np.uint64)
    result: dict[str, Any] = {"set aside of 1000": np.flatnonzero(is_validation(keys[:, 0], 0.1)).tolist()}
    for name, figures in make_corpora(folder).items():
        result[name] = {key: figures[key] for key in ("read", "dropped", "changed", "bytes", "categories", "budget")}
        for split in ("train", "validation"):
            texts = pq.read_table(folder / name / f"{split}.parquet")["text"].to_pylist()
            result[name][split] = [hashlib.sha256(text.encode()).hexdigest()[:8] for text in texts]
    return result


def tokens_figures(folder: Path) -> dict:
    """Return a tokenizer of two languages, by its digest, what it reports, and the tokens of their shards."""
    make_corpora(folder)
    values = {"tokenizer": section("tokenizer"), "mixture": section("mixture"), "source": None, "sources": {}}
    corpora = [str(folder / language) for language in LANGUAGES]
    out = folder / "tokenizer"
    found = run_stage(tokenizer, TokenizerStage(languages=LANGUAGES, made_from={"corpora": corpora}, **values), out)
    loaded = load_tokenizer(out / "tokenizer.json")
    probe = f"The quick <mask> fox's 1984\n\n\tnaïve {LONG_WORD} 水 </s>"
    result = {
        "tokenizer": hashlib.sha256((out / "tokenizer.json").read_bytes()).hexdigest()[:16],
        "last merges": [loaded.id_to_token(i) for i in range(390, 400)],
        "report": found["report"],
        "ids": encode(loaded, [probe])[0].tolist(),
    }
    for language in LANGUAGES:
        made_from = {"tokenizer": [str(out)], "corpus": [str(folder / language)]}
        settings = ShardsStage(languages=[language], made_from=made_from)
        counts = run_stage(shards, settings, folder / "shards" / language)
        for split in ("train", "validation"):
            shard = ShardFile.open(folder / "shards" / language / f"{split}.safetensors")
            entry = {"digest": digest(shard.tokens), "first": shard.tokens[:16].tolist(), "ends": digest(shard.offsets)}
            counted = {key: count[split] for key, count in counts.items() if key not in ("words", "summary")}
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


def shard_files(folder: Path, split: str = "train") -> list[ShardFile]:
    """Write the shards of two languages."""
    sizes = enumerate((40, 20) if split == "train" else (8, 6))
    texts = {seed: token_documents(count, seed + len(split)) for seed, count in sizes}
    return [write_documents(folder / f"{split} {seed}.safetensors", text) for seed, text in texts.items()]


def stream_and_counts(folder: Path, split: str = "train") -> tuple:
    """Return the tokens of both languages and their counts."""
    return training_data.stream(shard_files(folder, split), SETTINGS["train"]["seed"])


def plans(counts) -> Iterator[tuple[str, Any, list[int]]]:
    """Yield plans of each objective, and steps to look at."""
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
            step = plan.step(number)
            rows = {field: getattr(step.rows, field).tolist() for field in ("language", "row", "number")}
            rows["masked"] = (step.rows.kind == 0).astype(int).tolist()
            for kind, field in enumerate(("masked_targets", "causal_targets")):
                rows[field] = np.where(step.rows.kind == kind, step.rows.targets, 0).tolist()
            numbers = {"length": step.length, "mask rate": step.mask_rate, "target weights": list(step.weights)}
            of_plan[f"step {number}"] = numbers | rows
        of_plan["all rows"] = digest(np.concatenate([plan.step(step).rows.row for step in range(plan.steps)]))
        result[name] = of_plan
    return result


def batches_figures(folder: Path) -> dict:
    """Return the integers of a batch of each kind, and of every token of the text masked at 30 %."""
    stream, counts = stream_and_counts(folder)
    rows = {name: (plan.step(steps[-1]).rows, plan.step(steps[-1]).length) for name, plan, steps in plans(counts)}
    rows["every row masked"] = every_row(counts, 64, 0.3), 64
    rows["every row causal"] = every_row(counts, 16, None), 16
    result = {}
    for name, (chosen, length) in rows.items():
        batch = stream.micro_batch(chosen, length, (0.25, 0.75), pad_rows_to=3)
        fields = ("input_ids", "segments", "causal", "positions", "targets", "groups")
        result[name] = {field: digest(getattr(batch, field).numpy()) for field in fields}
        result[name]["first row"] = batch.input_ids[0, :16].tolist()
        result[name]["first targets"] = batch.targets[:8].tolist()
        result[name]["sum of weights"] = float(batch.weights.double().sum())
    return result


def options_figures(folder: Path) -> dict:
    """Return rows and batches of a step for another order than the usual one."""
    files, train = shard_files(folder), section("train", order="documents", objective="causal")
    stream, counts = training_data.stream(files, train.seed, objective="causal")
    step = Plan(train, 0.5, counts).step(25)
    batch = stream.micro_batch(step.rows, step.length, (1.0, 1.0))
    figures = {field: digest(getattr(batch, field).numpy()) for field in ("input_ids", "targets", "positions")}
    figures |= {"targets of rows": step.rows.targets.tolist(), "first targets": batch.targets[:8].tolist()}
    return {"order of documents": figures}


# Training.


def small_model():
    """Return an embedding, a matrix and a bias."""
    torch.manual_seed(0)
    return torch.nn.ModuleDict({"embedding": torch.nn.Embedding(5, 3), "linear": torch.nn.Linear(3, 4)})


def optimizers_figures(_: Path) -> dict:
    """Return weights after three steps of each optimizer."""

    result: dict[str, Any] = {}
    for name in ("lamb", "adamw", "muon"):
        model, train = small_model(), section("train", optimizer=name)
        optimizer = make_optimizer(dict(model.named_parameters()), train, matrices=["linear.weight"])
        for step in range(3):
            for parameter in model.parameters():
                parameter.grad = torch.sin(torch.arange(1.0, parameter.numel() + 1) * (step + 1)).view_as(parameter)
            optimizer.update(0.1 / (step + 1), torch.ones(()))
        result[name] = {key: value.flatten().tolist() for key, value in model.state_dict().items()}
    return result


def averaging_figures(_: Path) -> dict:
    """Return clipped gradients, and a moving average after some steps, its decay at first below its limit."""

    result: dict[str, Any] = {}
    for limit in (0.1, 2.0, 100.0):
        gradient = torch.arange(1.0, 5.0)
        norm, finite = clip([gradient], gradient.norm(), limit)
        result[f"clip to {limit}"] = [norm.item(), finite.item(), *gradient.tolist()]
    model = small_model()
    moving = MovingAverage(dict(model.named_parameters()), 0.05)
    for step in (0, 1, 2, 3, 100):
        with torch.no_grad():
            model["linear"].bias.fill_(step + 1)
        moving.update(step)
        result[f"average after {step}"] = moving.tensors["linear.bias"].tolist()
    return result


def gradients_figures(folder: Path) -> dict:
    """Return the loss of one batch under both kinds of models, its sums, and the norm of each parameter's gradient."""

    stream, counts = stream_and_counts(folder)
    result: dict[str, Any] = {
        "a bucket's distances": torch.bincount(position_buckets(1, 512, 32, 512)[0]).tolist(),
        "small buckets": position_buckets(5, 80, 8, 64)[2].tolist(),
    }
    networks = {}
    for name, switches in (("GPT-BERT", {}), ("LTG-BERT", {"gate": False, "layer_mixing": False})):
        shape = GPTBertShape(vocab_size=VOCABULARY.size, **section("model", **switches).shape())
        networks[name] = GPTBertNetwork(shape, section("train", seed=7), ALONE)
        torch.manual_seed(1)
        networks[name].model.load_state_dict(GPTBert(shape).state_dict())
    sizes = section("model", architecture="norbert4", local_global_ratio=2, local_window_length=6)
    networks["NorBERT4"] = NorBERT4Network(new_shape(sizes, VOCABULARY.size), section("train"), ALONE)
    for name, network in networks.items():
        losses = []
        for rate in (0.3, None):
            batch = stream.micro_batch(every_row(counts, 64, rate)[::5], 64, (0.01, 0.002))
            loss, sums = network.forward(batch, 4)
            loss.backward()
            losses += [loss.item(), *sums.flatten().tolist()]
        norms = {key: parameter.grad.norm().item() for key, parameter in network.model.named_parameters()}
        result[name] = {"losses": losses} | norms
    return result


def make_trainer(folder: Path, model: dict, train: dict):
    """Return a trainer of two languages, alone on the CPU."""

    sections = {"model": section("model", **model), "train": section("train", **train)}
    settings = TrainStage(languages=LANGUAGES, mixture=section("mixture"), **sections)
    stream, counts = stream_and_counts(folder)
    validation_stream, validation_counts = stream_and_counts(folder, "validation")
    shape = GPTBertShape(vocab_size=VOCABULARY.size, **settings.model.shape())
    plan = Plan(settings.train, settings.mixture.weights, counts)
    network = GPTBertNetwork(shape, settings.train, ALONE)
    return Trainer(settings, network, plan, stream, (validation_counts, validation_stream), ALONE, 128)


def projection(parameters) -> tuple[float, float]:
    """Return the norm of weights, and a sum of them in which each counts differently."""
    weights = torch.cat([parameter.detach().double().flatten() for parameter in parameters])
    return weights.norm().item(), (weights * torch.arange(len(weights)).double().cos()).sum().item()


def train_steps(trainer, steps) -> dict[str, list[float]]:
    """Do steps of a run. Return losses, gradient norms, weights, validation."""
    found: dict[str, list[float]] = {"cross-entropy": [], "logsumexp^2": [], "gradient norm": []}
    for number in steps:
        outcome = trainer.run_step(number)
        targets = int(trainer.plan.step(number).rows.targets.sum())
        found["cross-entropy"].append(float(outcome.sums[:, 0].sum()) / targets)
        found["logsumexp^2"].append(float(outcome.sums[:, 1].sum()) / targets)
        found["gradient norm"].append(float(outcome.norm))
    ends = [projection(weights) for weights in (trainer.model.parameters(), trainer.average.tensors.values())]
    found["norms of weights and average"] = [norm for norm, _ in ends]
    found["projections of weights and average"] = [projected for _, projected in ends]
    measured = trainer.validation.measure()
    found["validation"] = [measured[key] for key in ("loss", "ema_loss")]
    return found


RUNS: dict[str, tuple[dict, dict, list[int]]] = {
    "hybrid with lamb": ({}, {}, [2, 9, 25, 38]),
    "masked with adamw, LTG-BERT": (
        {"gate": False, "layer_mixing": False},
        {"objective": "masked", "optimizer": "adamw", "activation_checkpointing": True},
        [2, 35],
    ),
    "causal with adamw": ({}, {"objective": "causal", "optimizer": "adamw"}, [2, 35]),
}


def training_figures(folder: Path) -> dict:
    """Return losses, gradient norms and weights of a few steps of some runs, in float64.

    "types" are what the numbers are made in: a buffer that stayed float32 would hide small differences.
    """

    result: dict[str, Any] = {}
    for name, (model, train, steps) in RUNS.items():
        trainer = make_trainer(folder, model, train)
        result[name] = train_steps(trainer, steps)
        if name == next(iter(RUNS)):
            kinds = {str(p.dtype) for p in (*trainer.model.parameters(), *trainer.average.tensors.values())}
            kinds |= {str(parameter.grad.dtype) for parameter in trainer.model.parameters()}
            kinds |= {str(keep(torch.zeros(1, dtype=torch.int32), 4, 0.1).dtype)}
            state = trainer.state.tensors()
            kinds |= {str(state[name].dtype) for name in state if not name.startswith("optimizer.step.")}
            result["types"] = sorted(kinds)
    return result


def twenty_steps_figures(folder: Path) -> dict:
    """Return twenty steps in float32, as runs are made on a CPU.

    The weights of layer mixing do not begin as usual: there, the gradient of the last one is 0 but for rounding, of
    which LAMB would make a whole update.
    """
    trainer = make_trainer(folder, {}, {"max_steps": 20, "clip_norm": 2.0})
    with torch.no_grad():
        for alphas in trainer.model.transformer.dwa_modules.alphas:
            alphas.add_(0.1)
    return train_steps(trainer, range(20))


def scored_rows(folder: Path) -> dict[str, list[Row]]:
    """Return the rows of both scores of a validation text, whose longer documents are cut."""
    shard = shard_files(folder, "validation")[0]
    documents = [shard.tokens[begin:end] for begin, end in itertools.pairwise(shard.offsets)]
    texts = [text for ids in documents for text in windows(ids, ~VOCABULARY.is_special[ids], 7)]
    return {
        "causal": [row for text in texts for row in rows.causal(text)],
        "masked": [row for text in texts for row in rows.masked(text, VOCABULARY.mask, 3)],
    }


def scoring_figures(folder: Path) -> dict:
    """Return digests of the rows that evaluation scores."""
    result: dict[str, Any] = {}
    for kind, found in scored_rows(folder).items():
        numbers = {
            name: [each for row in found for each in getattr(row, name)] for name in ("ids", "places", "targets")
        }
        result[kind] = {name: digest(each) for name, each in numbers.items()}
    return result


def evaluation_figures(folder: Path) -> dict:
    """Return the scores of an exported model with random weights, in float32."""
    from babelmill.evaluation.likelihood import Model
    from babelmill.model.transformers.configuration_gpt_bert import GPTBertConfig
    from babelmill.model.transformers.modeling_gpt_bert import GPTBertForCausalLM, GPTBertForMaskedLM

    made = scored_rows(folder)
    config = GPTBertConfig(vocab_size=VOCABULARY.size, pad_token_id=VOCABULARY.pad, **SETTINGS["model"])
    result: dict[str, Any] = {}
    for kind, model_class in (("causal", GPTBertForCausalLM), ("masked", GPTBertForMaskedLM)):
        torch.manual_seed(5)
        model = model_class(config).eval().requires_grad_(False)
        for parameter in model.parameters():
            parameter.mul_(3)  # so that it is sure of something
        found = -Model(model, argparse.Namespace(pad_token_id=VOCABULARY.pad), kind == "causal").sums(made[kind])
        score = entry(found, np.full(len(found), 300 / len(found)), 100)
        result[f"{kind} bits per byte"] = [score["value"]]
        result[f"{kind} standard error"] = [score["standard_error"]]
    shards = (shard_files(folder, split)[0] for split in ("train", "validation"))
    training, text = (occurrences(shard.tokens, VOCABULARY) for shard in shards)
    ordinary = ~VOCABULARY.is_special
    result["unigram nats"] = float((text[ordinary] * unigram_nats(training, VOCABULARY)[ordinary]).sum())
    return result


SECTIONS = {
    name.removesuffix("_figures").replace("_", " "): function
    for name, function in list(globals().items())
    if name.endswith("_figures")
}
FLOAT64 = ("gradients", "optimizers", "averaging", "training")
FLOAT32 = ("twenty steps", "evaluation")
