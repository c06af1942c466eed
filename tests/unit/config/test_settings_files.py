"""Which results another value of each key of the configuration asks for; what else stands in settings files.

Nothing runs here.
"""

import functools
import json
import os
from pathlib import Path
from typing import Any

import pytest
from test_config import TEXT, configuration

from babelmill.config import entries, inputs, schema
from babelmill.core.files import UserError, write_json
from babelmill.graph import Graph, Result, key_of
from babelmill.stages import STAGES, RunSettings, TrainStage
from helpers.stages import settings_of

COLUMNS = "text,other,good,bad,label,kind,ratio"
ROWS = "a,b,c,d,e,f,1\ng,h,i,j,k,l,2\n"
PAIRS = {"files": ["{language}.csv"], "languages": {"eng": "eng", "deu": "deu"}, "good": "good", "bad": "bad"}
TASK = {"train": ["a.csv"], "test": ["b.csv"], "language": "eng", "text": "{text}"}
OTHER = {"languages": ["eng"], "tokenizer": {"vocab_size": 300}, "model": {"source": None}}
BASE = {
    "preset": "tiny",
    "publish": {"username": "lab"},
    "evaluation": {"suites": ["own"], "tasks": ["own"], "task_seeds": [1]},
    "suites": {"own": PAIRS},
    "tasks": {"own": TASK},
    "languages": {code: {"corpus": {"files": [f"{code}.csv"]}} for code in ("eng", "deu")},
    "models": {"m": {"languages": ["eng", "deu"]}, "other": OTHER},
}


def train(**values: Any) -> dict:
    return {"train": values}


def corpora(**values: Any) -> dict:
    return {"languages": {code: {"corpus": values} for code in ("eng", "deu")}}


def a_text(**values: Any) -> dict:
    """Return a model of a text that is no language of the table."""
    about = {"name": "Talk", "corpus": {"files": ["other.csv"]}}
    return {"languages": {"talk": about | values}, "models": {"m": {"languages": ["talk"]}}}


OF_HUB = corpora(files=[])
FILTERED = {"corpus": {"language_filter": {"model": "py3langid"}}}
SAMPLE = OF_HUB | {"corpus": {"budget": 5}}
CAUSAL, MASKED = train(objective="causal"), train(objective="masked")
DIFFUSION = train(objective="diffusion")
NORBERT4 = {"model": {"architecture": "norbert4"}} | MASKED
GPT2 = {"model": {"architecture": "transformers", "config": {"model_type": "gpt2"}}} | CAUSAL
CONTINUED = {"model": {"source": "other"}}
OF_THE_HUB = {"model": {"source": "lab/model"}}
ADAPTERS = {"model": {"source": "lab/model", "architecture": "transformers"}} | train(
    objective="masked", optimizer="adamw", lora_rank=4
)
ADOPTED = {"tokenizer": {"source": "lab/tokenizer"}}
LABELS = {
    "preset": "labels_tiny",
    "corpus": {"label_columns": ["label"]},
    "predict": {"inputs": {"census": "census.csv"}, "text_column": "text"},
}
SPELT = LABELS | {"labels": {"code": "general"}}
OF_CHOICES = {key: PAIRS[key] for key in ("files", "languages")} | {"kind": "choices", "scored": "whole"}
WITH_A_LANGUAGE_MODEL = {
    "models": {"m": {"languages": ["eng", "deu"]}, "other": OTHER | {"preset": "tiny", "train": {"freeze": "none"}}}
}
CHOICES = {"suites": {"own": OF_CHOICES | {"options": ["{good}", "{bad}"]}}}
OF_CHALLENGE = {"suites": {"own": PAIRS | {"challenge_files": ["full_eval/{language}.csv"]}}}
ROWS_OF_CHALLENGE = {"tasks": {"own": TASK | {"train": ["{evaluation_data}/full_eval/eng.csv"]}}}
READING = {"suites": {"own": {key: PAIRS[key] for key in ("files", "languages")} | {"kind": "reading"}}}
OF_WORDS = {"kind": "tagging", "train": ["a.conll"], "test": ["b.conll"], "language": "eng", "word": 1, "label": 2}
WORDS = {"tasks": {"own": OF_WORDS}}
FEW = {"languages": ["eng", "deu"], "evaluation": {"suites": ["blimp"], "snapshot_suites": [], "tasks": []}}
FEW_WORDS = FEW | {"train": {"words": "1M", "max_steps": None}}
IN_NO_CHALLENGE = {"models": {"m": FEW_WORDS}}
IN_CHALLENGE = {"models": {"m": FEW_WORDS | {"submission": "babylm_2026_strict_small"}}}
SNAPSHOTS = {"run": {"snapshots": [1]}}


class Instead(dict):
    """Values that replace those of BASE, where a key does not change alone."""


# Each key; another value than in BASE; the first stages whose results get another key (what is made of them gets one,
# too, and nothing else does); and what is configured instead of parts of BASE, so that the key matters, or does not.
KEYS: list[tuple[Any, ...]] = [
    ("targets", ["deu"], ""),
    ("batches", {"mine": ["eng"]}, ""),
    ("preset", "small", "tokenizer"),
    ("preset", ["tiny", "tuned"], "train"),
    ("experiments", {"seeds": {"base": "m", "seeds": 2}}, ""),
    ("evaluation_data", "data", "suite", OF_CHALLENGE),
    ("evaluation_data", "more", "suite task", OF_CHALLENGE | ROWS_OF_CHALLENGE | {"evaluation_data": "data"}),
    ("models.languages", ["eng"], "tokenizer"),
    ("models.like", "other", "tokenizer"),
    ("models.preset", "small", "tokenizer"),
    ("models.preset", ["tiny", "tuned"], "train"),
    ("models.submission", "babylm_2026_strict_small", "submission", IN_NO_CHALLENGE),
    ("languages.name", "Anglic", "convert"),
    ("languages.language", Instead(a_text(language="eng")), "suite task", a_text()),
    ("languages.tier", 2, ""),
    ("languages.script", "Cyrl", "convert"),
    ("languages.script", "Cyrl", "corpus", FILTERED),
    ("languages.byte_premium", 2.0, ""),
    ("languages.byte_premium", 2.0, "train", train(words="10M")),
    ("languages.tag", "de", "convert"),
    # The text.
    ("corpus.files", ["other.csv"], "corpus", corpora()),
    ("corpus.builtin", "python-docs", "corpus"),
    ("corpus.hub", "lab/text", "download", OF_HUB),
    ("corpus.hub", [{"repository": "lab/text", "config": "small"}], "download", OF_HUB),
    ("corpus.hub", "lab/text", ""),
    ("corpus.revision", "v1", "download", OF_HUB),
    ("corpus.revision", "v1", ""),
    ("corpus.validation_files", ["other.csv"], "corpus"),
    ("corpus.text_column", "other", "corpus"),
    ("corpus.prompt_column", "other", "corpus"),
    ("corpus.label_columns", ["label"], "corpus"),
    ("corpus.context_column", "other", "corpus", LABELS),
    ("corpus.context", "here", "corpus", LABELS),
    ("corpus.delimiter", ";", "corpus"),
    ("corpus.encoding", "latin-1", "corpus"),
    ("corpus.format", "tsv", "corpus"),
    ("corpus.quoting", "none", "corpus"),
    *((f"corpus.{key}", value, "download", OF_HUB) for key, value in [("text_column", "other"), ("format", "txt")]),
    ("corpus.document", "line", "corpus"),
    ("corpus.document", "line", "corpus", OF_HUB),
    ("corpus.validation_share", 0.5, "corpus"),
    ("corpus.validation_share", 0.5, "", {"corpus": {"validation_files": ["other.csv"]}}),
    ("corpus.on_error", "skip", "corpus"),
    ("corpus.normalization", "NFC", "corpus"),
    ("corpus.control_characters", "remove", "corpus"),
    ("corpus.min_characters", 9, "corpus"),
    ("corpus.min_words", 9, "corpus"),
    ("corpus.deduplicate", False, "corpus"),
    ("corpus.categories", ["speech"], "corpus"),
    ("corpus.repair", "ftfy", "corpus"),
    ("corpus.cleaners", "speech", "corpus"),
    ("corpus.language_filter", {"model": "py3langid"}, "corpus"),
    ("corpus.language_filter", {"model": "glotlid"}, "identifier"),
    ("corpus.near_duplicates", 0.8, "corpus"),
    ("corpus.decontaminate", ["own"], "corpus"),
    ("corpus.budget", "5 documents", "corpus"),
    ("corpus.budget", 6, "download", SAMPLE),
    ("corpus.min_words", 9, "download", SAMPLE),
    ("corpus.near_duplicates", 0.8, "corpus", SAMPLE),
    ("languages.byte_premium", 2.0, "download", SAMPLE),
    # The tokenizer and the mixture.
    ("tokenizer.source", "lab/tokenizer", "tokenizer"),
    ("tokenizer.revision", "v1", "tokenizer", ADOPTED),
    ("tokenizer.revision", "v1", ""),
    ("tokenizer.vocab_size", 300, "tokenizer"),
    ("tokenizer.vocab_size", 300, "", ADOPTED),
    ("tokenizer.min_frequency", 3, "tokenizer"),
    ("tokenizer.min_frequency", 3, "", ADOPTED),
    ("tokenizer.prefix_space", True, "tokenizer"),
    ("mixture.weights", 0.5, "tokenizer"),
    ("mixture.weights", 0.5, "train", ADOPTED),
    ("mixture.weights", 0.5, "", {"models": {"m": {"languages": ["eng"]}}}),
    # The architecture.
    ("model.architecture", "norbert4", "train"),
    ("model.config", {"model_type": "gpt2", "n_embd": 64}, "train", GPT2),
    ("model.source", "other", "tokenizer"),
    ("model.source", "lab/model", "base_model"),
    ("model.source", "lab/other", "base_model", OF_THE_HUB),
    ("model.revision", "v1", "base_model", OF_THE_HUB),
    ("model.revision", "v1", ""),
    ("model.hidden_size", 64, "train"),
    ("model.hidden_size", 64, "", GPT2),
    ("model.intermediate_size", 64, "train"),
    ("model.num_attention_heads", 2, "train"),
    ("model.num_hidden_layers", 2, "train"),
    (
        "model.max_position_embeddings",
        64,
        "train",
        train(sequence_lengths=[16, 32, 64]) | {"evaluation": {"sequence_length": 64}},
    ),
    ("model.position_bucket_size", 16, "train"),
    ("model.position_bucket_size", 16, "", NORBERT4),
    ("model.hidden_dropout_prob", 0.2, "train"),
    ("model.hidden_dropout_prob", 0.2, "train", CONTINUED),
    ("model.attention_probs_dropout_prob", 0.2, "train"),
    ("model.layer_norm_eps", 1e-6, "train"),
    ("model.gate", False, "train"),
    ("model.layer_mixing", False, "train"),
    ("model.local_global_ratio", 3, "train", NORBERT4),
    ("model.local_window_length", 64, "train", NORBERT4),
    ("model.local_window_length", 64, ""),
    # The training.
    ("train.seed", 43, "train"),
    ("train.epochs", 3, "train"),
    ("train.epochs", 3, "", train(max_steps=9)),
    ("train.max_steps", 9, "train"),
    ("train.words", "10M", "train"),
    ("train.global_batch_tokens", 8192, "train"),
    ("train.batch_reduction", 2, "train"),
    ("train.micro_batch_tokens", 2048, "train"),
    ("train.sequence_lengths", [64, 128, 256], "train"),
    ("train.phase_starts", [0, 0.5, 0.9], "train"),
    ("train.order", "documents", "train"),
    ("train.objective", "causal", "train"),
    ("train.hybrid_ratio", "1/4", "train", train(objective="hybrid")),
    ("train.hybrid_ratio", "1/4", "", CAUSAL),
    ("train.token_weighted", True, "train"),
    ("train.token_weighted", True, "", MASKED),
    ("train.mask_rate_start", 0.5, "train"),
    ("train.mask_rate_start", 0.5, "", CAUSAL),
    ("train.mask_rate_end", 0.5, "train"),
    ("train.mask_rate_end", 0.5, "", DIFFUSION),
    ("train.mask_random", 0.2, "train"),
    ("train.mask_random", 0.2, "", CAUSAL),
    ("train.mask_keep", 0.2, "train"),
    ("train.noise", "cosine", "train", DIFFUSION),
    ("train.noise", "cosine", ""),
    ("train.optimizer", "adamw", "train"),
    ("train.learning_rate", 0.5, "train"),
    ("train.learning_rate_floor", 0.5, "train"),
    ("train.warmup", 0.3, "train"),
    ("train.cooldown", 0.3, "train"),
    ("train.betas", [0.5, 0.9], "train"),
    ("train.eps", 0.1, "train"),
    ("train.weight_decay", 0.5, "train"),
    ("train.clip_norm", 9, "train"),
    ("train.z_loss_weight", 0.5, "train"),
    ("train.ema_decay", 0.5, "train"),
    ("train.average_last", 0.5, "train"),
    ("train.lora_rank", 8, "train", ADAPTERS),
    ("train.lora_alpha", 4, "train", ADAPTERS),
    ("train.lora_alpha", 8, "", ADAPTERS),  # the usual one
    ("train.freeze", "encoder", "train", LABELS | CONTINUED | WITH_A_LANGUAGE_MODEL),
    ("train.unknown_context", 0.5, "train", LABELS),
    ("train.unknown_context", 0.5, ""),
    ("train.typos", 0.5, "train", LABELS),
    ("train.precision", "bf16", "train"),
    ("train.activation_checkpointing", True, "train"),
    ("train.non_finite", "skip", "train"),
    # Labels: how codes are read, and how they are learnt.
    ("labels.code", "hisco", "shards", LABELS),
    ("labels.code", "hisco", ""),
    ("labels.block_size", 6, "shards", SPELT),
    ("labels.block_size", 6, "", LABELS),
    ("labels.symbol_separator", ".", "shards", SPELT),
    ("labels.separator", ";", "shards", LABELS),
    ("labels.codes", "codes.csv", "shards", LABELS),
    ("labels.on_error", "skip", "shards", LABELS),
    ("labels.blocks_weight", 0.1, "train", SPELT),
    ("labels.blocks_weight", 0.1, "", LABELS),
    ("labels.decoder_layers", 1, "train", SPELT),
    ("labels.class_weights", "balanced", "train", LABELS),
    # What is made of a trained model.
    ("export.variants", ["ema"], "export"),
    ("export.default_variant", "main", "export"),
    ("export.logits_alignment", "mntp", "export"),
    ("evaluation.sequence_length", 64, "evaluate"),
    ("evaluation.diffusion_samples", 9, "evaluate", DIFFUSION),
    ("evaluation.documents", 9, "evaluate"),
    ("evaluation.documents", 9, "", LABELS),
    ("evaluation.suites", ["own", "english_basics"], "suite"),
    ("evaluation.pairs", 9, "score"),
    ("evaluation.masked_pairs", 9, "score"),
    ("evaluation.masked_pairs", 9, "", CAUSAL),
    ("evaluation.snapshots", True, "score", SNAPSHOTS),
    ("evaluation.snapshot_suites", ["own"], "score", SNAPSHOTS),
    ("evaluation.backend", "mlm", ""),
    ("evaluation.backend", "mlm", "submission", IN_CHALLENGE),
    ("evaluation.tasks", [], "convert"),
    ("evaluation.task_seeds", [2], "tune"),
    ("evaluation.keep_tuned", True, "tune"),
    *((f"card.{key}", value, "convert") for key, value in [("license", "mit"), ("authors", ["A"])]),
    *((f"card.{key}", value, "convert") for key, value in [("description", "D"), ("carbon_grams", 1)]),
    ("predict.inputs", {"census": "other.csv"}, "predict", LABELS),
    ("predict.top", 6, "predict", LABELS),
    ("predict.method", "linear", "predict", LABELS),
    ("predict.threshold", 0.1, "predict", LABELS),
    ("predict.review", 9, "predict", LABELS),
    ("predict.text_column", "other", "predict", LABELS),
    ("predict.context_column", "other", "predict", LABELS),
    ("predict.context", "here", "predict", LABELS),
    ("predict.delimiter", ",", "predict", LABELS),
    ("predict.encoding", "latin-1", "predict", LABELS),
    ("predict.quoting", "none", "predict", LABELS),
    ("publish.username", "me", "publish"),
    ("publish.repo_template", "lab/{model}", "publish"),
    ("publish.private", True, "publish"),
    # Suites: what their items are, how they are scored, and what is said of them.
    ("suites.title", "Own", "convert"),
    ("suites.repository", "lab/pairs", "suite"),
    ("suites.revision", "v1", "suite", {"suites": {"own": PAIRS | {"repository": "lab/pairs"}}}),
    ("suites.revision", "v1", ""),
    (
        "suites.language",
        "deu",
        "suite",
        {"suites": {"own": PAIRS | {"files": ["eng.csv"], "languages": {}, "language": "eng"}}},
    ),
    ("suites.languages", {"eng": "deu", "deu": "eng"}, "suite"),
    ("suites.delimiter", ",", "suite"),
    ("suites.encoding", "latin-1", "suite"),
    ("suites.license", "mit", ""),
    ("suites.note", "N", ""),
    ("suites.baselines", [{"language": "eng", "model": "m", "pipeline": "p", "score": 50}], "convert"),
    ("suites.kind", Instead(READING), "suite"),
    ("suites.files", ["{language}*.csv"], "suite"),
    ("suites.challenge_files", ["full_eval/{language}.csv"], ""),
    ("suites.good", "text", "suite"),
    ("suites.bad", "text", "suite"),
    ("suites.prompt", "{text}", "suite", CHOICES),
    ("suites.options", ["{good}", "{text}"], "suite", CHOICES),
    ("suites.right", 1, "suite", CHOICES),
    ("suites.scored", "completion", "score", CHOICES),
    ("suites.score", "mean", "score", CHOICES),
    ("suites.ties", "first", "score", CHOICES),
    ("suites.unknown", "wrong", "score", CHOICES),
    ("suites.drop", "x", "suite", CHOICES),
    ("suites.ratio", "ratio", "suite", CHOICES),
    ("suites.harness_ids", True, "suite", CHOICES),
    ("suites.phenomenon", "kind", "suite"),
    ("suites.paradigm", "kind", "suite"),
    ("suites.quoting", "none", "suite"),
    ("suites.headline", "phenomena", "score"),
    # Tasks, and the protocol by which a model is tuned.
    ("tasks.title", "Own", "convert"),
    ("tasks.repository", "lab/rows", "task"),
    ("tasks.revision", "v1", "task", {"tasks": {"own": TASK | {"repository": "lab/rows"}}}),
    ("tasks.language", "deu", "task"),
    (
        "tasks.languages",
        {"deu": "deu"},
        "task",
        {"tasks": {"own": {**TASK, "language": None, "languages": {"eng": "eng"}}}},
    ),
    ("tasks.delimiter", ",", "task"),
    ("tasks.encoding", "latin-1", "task"),
    ("tasks.license", "mit", ""),
    ("tasks.note", "N", ""),
    ("tasks.baselines", [{"language": "eng", "model": "m", "pipeline": "p", "score": 50}], "convert"),
    ("tasks.kind", Instead(WORDS), "task"),
    ("tasks.train", ["other.csv"], "task"),
    ("tasks.test", ["other.csv"], "task"),
    ("tasks.text", "{other}", "task"),
    ("tasks.pair", "{other}", "task"),
    ("tasks.label", "kind", "task"),
    ("tasks.word", 2, "task", WORDS),
    ("tasks.resplit", {"rows": 10}, "task", WORDS),
    ("tasks.joint", True, "tune"),
    ("tasks.metric", "f1", "tune"),
    ("tasks.metric", "span_f1", "task", WORDS),
    ("tasks.protocol", "babylm", "tune"),
    ("tasks.tuning", {"epochs": 3}, "tune"),
    ("tuning.title", "P", "convert"),
    ("tuning.head", "challenge", "tune"),
    ("tuning.pooling", "last", "tune"),
    ("tuning.padding", "left", "tune"),
    ("tuning.config_padding", "eos", "tune"),
    ("tuning.dropout", 0.5, "tune"),
    ("tuning.longest", 64, "tune"),
    ("tuning.same_length", True, "tune"),
    ("tuning.epochs", 3, "tune"),
    ("tuning.batch", 3, "tune"),
    ("tuning.learning_rate", 0.5, "tune"),
    ("tuning.weight_decay", 0.5, "tune"),
    ("tuning.warmup", 0.5, "tune"),
    ("tuning.schedule", "linear", "tune"),
    ("tuning.floor", 0.5, "tune"),
    ("tuning.clip_norm", 9, "tune"),
    ("tuning.shuffle", "state", "tune"),
    ("tuning.select", "last", "tune"),
    ("tuning.held_out", 0.5, "tune"),
    ("tuning.patience", 3, "tune"),
    ("tuning.threshold", 0.5, "tune"),
    ("tuning.test_batch", 9, "tune"),
    ("tuning.words_cut", "left_out", "tune"),
    ("tuning.plain_text", False, "tune"),
    ("tuning.seeds", [7], ""),
    ("tuning.seeds", [7], "tune", {"evaluation": {"tasks": ["own"]}}),
    # How a training is monitored and saved, and what it asks of the machine.
    ("run.checkpoint_every", 9, ""),
    ("run.checkpoint_minutes", 0.5, ""),
    ("run.keep", 9, ""),
    ("run.log_every", 9, ""),
    ("run.validate_every", 9, ""),
    ("run.validation_tokens", 9, ""),
    ("run.validation_documents", 9, ""),
    ("run.snapshots", [1, 2], ""),
    ("run.micro_batch_tokens", 4096, ""),
    ("run.compile", "never", ""),
    ("run.checkpoints", "file:///kept", ""),
    ("run.tracking", "wandb", ""),
    ("resources.gpus", 9, ""),
]
PLACES = {  # where the keys of entries are
    "suites": ("suites", "own"),
    "tasks": ("tasks", "own"),
    "tuning": ("tasks", "own", "tuning"),
    "languages": ("languages", "eng"),
    "models": ("models", "m"),
}


def layer(key: str, value: Any) -> dict[str, Any]:
    """Return the layer of configuration that sets a key."""
    group, _, name = key.rpartition(".")
    for part in (name, *reversed(PLACES.get(group, (group,) if group else ()))):
        value = {part: value}
    return value


@pytest.fixture
def project(folder):
    """The files that the configuration names."""
    for name in (
        "eng",
        "deu",
        "other",
        "a",
        "b",
        "census",
        *(f"{data}/full_eval/{code}" for data in ("data", "more") for code in ("eng", "deu")),
    ):
        Path(f"{name}.csv").parent.mkdir(parents=True, exist_ok=True)
        Path(f"{name}.csv").write_text(f"{COLUMNS}\n{ROWS}{name},b,c,d,e,f,3\n")
    for name in "ab":
        Path(f"{name}.conll").write_text(f"{name} B-X c\n")
    Path("codes.csv").write_text("code\ne\n")


@functools.cache
def titles_of(layers: str) -> dict[str, tuple[str, str, list[str]]]:
    """Return `asked` of layers that are written as JSON, once."""
    return asked(*json.loads(layers))


def results_of(graph: Graph) -> list[Result]:
    """Return all results of the model, also what is made of its converted folder."""
    results = graph.of_model("m")
    for stage in ("predict", "submission", "publish"):
        results += [graph.result(stage, "m", part) for part in STAGES[stage].parts(graph.configuration, "m")]
    return results


def asked(*layers: dict) -> dict[str, tuple[str, str, list[str]]]:
    """Return {title: (stage, key, titles of what it is made from)} of all results of the model."""
    results = results_of(Graph(configuration(*layers)))
    return {
        each.title_for("m"): (each.stage.stage, key_of(each.asked), [of.title_for("m") for of in each.upstream])
        for each in results
    }


@pytest.mark.parametrize(("key", "value", "first", "more"), [(*case[:3], (*case[3:], {})[0]) for case in KEYS])
def test_a_key_gives_another_key_to_what_depends_on_it_and_to_nothing_else(project, key, value, first, more):
    base = BASE | more
    before = titles_of(json.dumps([base]))
    now = asked(base | value) if isinstance(value, Instead) else asked(base, layer(key, value))
    changed = {title for title, (_, key, _) in now.items() if title not in before or before[title][1] != key}
    of_changed = {title for title, (_, _, made_from) in now.items() if changed & {*made_from}}
    assert {now[title][0] for title in changed - of_changed} == {*first.split()}
    assert of_changed <= changed


def test_the_table_above_has_every_key():
    kinds = {**schema.SECTIONS, "suites": entries.Suite, "tasks": entries.Task, "tuning": entries.Tuning}
    kinds |= {"languages": entries.LanguageEntry, "models": entries.ModelEntry}
    keys = {f"{group}.{key}" for group, kind in kinds.items() for key in kind.model_fields}
    keys -= {"languages.corpus", *(f"models.{section}" for section in schema.SECTIONS)}
    keys |= entries.User.model_fields.keys() - kinds.keys()
    assert {case[0] for case in KEYS} == keys


def test_every_stage_is_the_first_for_some_key():
    firsts = {stage for case in KEYS for stage in case[2].split()}
    assert firsts == STAGES.keys() - {"baseline"}, "which lists results, and has nothing of its own"


LLADA = {"model": {"source": "lab/LLaDA-8B", "architecture": "transformers"}, "train": {"objective": "diffusion"}}


@pytest.mark.parametrize(
    ("layer", "repository"),
    [
        ({}, "{username}/babybabellm-gptbert-eng"),
        ({"publish": {"username": "lab"}}, "lab/babybabellm-gptbert-eng"),
        ({"train": {"objective": "causal"}}, "{username}/babybabellm-gptbert-eng-causal"),
        ({"train": {"objective": "masked"}}, "{username}/babybabellm-gptbert-eng"),
        ({"export": {"variants": ["ema"]}}, "{username}/babybabellm-gptbert-eng-ema"),
        ({"export": {"variants": ["main"], "default_variant": "main"}}, "{username}/babybabellm-gptbert-eng"),
        ({"models": {"eng": {"publish": {"repo_template": "lab/my-english.v2"}}}}, "lab/my-english.v2"),
        (GPT2, "{username}/babybabellm-gpt2-eng-causal"),
        ({"preset": "bert_30m"}, "{username}/babybabellm-bert-eng"),
        ({"models": {"eng": LLADA}}, "{username}/babybabellm-llada-8b-eng"),
    ],
)
def test_the_repository_of_a_model(layer, repository):
    assert settings_of(configuration(layer), "eng", "publish")["repository"] == repository


@pytest.mark.parametrize(
    "publish",
    [
        {"username": "my lab"},
        {"username": "lab/eng"},
        {"repo_template": "lab/model--{model}"},
        {"repo_template": "lab/{model}.git"},
        {"repo_template": f"lab/{'x' * 97}"},
        {"repo_template": "lab/{model}-"},
    ],
)
def test_a_repository_that_the_hub_would_refuse_is_refused_before_anything_runs(publish):
    with pytest.raises(UserError, match=rf"layer0\.yaml: publish\.{min(publish)}: '.*a name of the Hub is expected"):
        settings_of(configuration({"publish": publish}), "eng", "publish")


def test_a_language_without_a_tag_of_its_own_has_one_that_the_hub_accepts():
    entries = {code: {"name": code, "corpus": {"builtin": "python-docs"}} for code in ("nds_Latn", "wikitext")}
    for code, tag in (("nds_Latn", "nds"), ("wikitext", "")):
        table = settings_of(configuration({"languages": entries}), code, "convert")["language_table"]
        assert table[code]["tag"] == tag


def test_source_files_enter_the_settings_by_their_content(folder):
    Path("a.txt").write_text("one")
    Path("b.txt").write_text("four")
    found = settings_of(configuration({"corpus": {"files": ["*.txt"]}}), "eng", "corpus")["sources"]
    assert (found["*.txt"]["files"], found["*.txt"]["bytes"]) == (2, 7)
    Path("b.txt").write_text("five")
    inputs._snapshot.cache_clear()
    assert settings_of(configuration({"corpus": {"files": ["*.txt"]}}), "eng", "corpus")["sources"] != found


@pytest.mark.parametrize(
    ("objective", "scores"), [("hybrid", ["causal", "masked"]), ("masked", ["masked"]), ("causal", ["causal"])]
)
def test_a_model_is_evaluated_by_the_scores_of_its_objective(objective, scores):
    made = settings_of(configuration({"train": {"objective": objective}}), "eng", "evaluate")
    assert made["scores"] == scores


@pytest.mark.parametrize(
    "more", [{}, LABELS, IN_CHALLENGE, OF_HUB | FILTERED], ids=["plain", "labels", "challenge", "hub"]
)
def test_stages_read_their_settings_as_they_were_configured(project, more):
    """What a file leaves out is filled in; sections are typed."""
    graph = Graph(made := configuration(BASE | more))
    for result in results_of(graph):
        graph.write(result)
        found = result.stage.read(result.settings_file)
        assert found.raw == result.asked and found.made_from == result.asked["made_from"]
        sections = {name: getattr(found, name) for name in result.stage.sections() if name in result.asked}
        assert {name: each.written() for name, each in sections.items()} == {
            name: result.asked[name] for name in sections
        }
        for name in {} if more else sections.keys() & {"train", "export", "card", "publish"}:
            assert sections[name] == getattr(made.model("m"), name)
    run = RunSettings.from_content(graph.run_settings("m").written(), "run.json")
    assert (run.name, run.run, run.gpus) == ("m", made.model("m").run, made.model("m").resources.gpus)


def test_settings_that_a_job_cannot_use_are_refused(tmp_path):
    """A job in the queue was submitted for the version of then; what it would make now is another result."""
    path, values = tmp_path / "settings.json", settings_of(configuration(), "eng", "train")
    for changed, message in [
        ({"version": 0}, "written for another version of stage train; run"),
        ({"stage": "export"}, "these are settings of the stage 'export', not of 'train'"),
        ({"model": values["model"] | {"hidden_size": "wide"}}, r"model\.hidden_size = 'wide': "),
        ({"model": values["model"] | {"depth": 3}}, r"unknown key model\.depth"),
        ({"depth": 3}, "depth = 3: "),
    ]:
        write_json(path, values | changed)
        with pytest.raises(UserError, match=rf"^\S*settings\.json: {message}") as error:
            TrainStage.read(path)
        assert "\n" not in str(error.value)
    for damaged in ("[]", "{", ""):
        path.write_text(damaged)
        with pytest.raises(UserError, match=r"^\S*settings\.json: "):
            TrainStage.read(path)


def test_settings_files_are_written_where_they_differ(folder):
    Graph(configuration(TEXT)).write_settings("eng")
    written = {
        path.relative_to("results/settings").parts[0]: path for path in Path("results/settings").glob("*/*.json")
    }
    assert {*written} == {"corpus", "tokenizer", "shards", "train", "export", "evaluate", "convert", "run"}
    for path in written.values():
        os.utime(path, (1, 1))
    written["train"].write_text("")  # as a crash may leave it
    Graph(configuration(TEXT, {"run": {"keep": 9}, "card": {"license": "mit"}})).write_settings("eng")
    again = {path for path in Path("results/settings").glob("*/*.json") if path.stat().st_mtime != 1}
    assert again == {written[stage] for stage in ("train", "convert", "run")}
    assert TrainStage.read(written["train"]).languages == ["eng"]


def test_without_an_average_main_is_the_one_variant():
    """As soon as it is said, and not before."""
    made = configuration({"train": {"ema_decay": 0}})
    assert settings_of(made, "eng", "export")["export"]["variants"] == ["main"]
    assert made.model("eng").export.default_variant == "main"
    assert configuration({}).model("eng").export.variants == ["main", "ema"]


def neutral(section: str) -> dict[str, Any]:
    """The values of a section's keys, for all keys that have a neutral value."""
    fields = schema.SECTIONS[section].model_fields
    return {key: field.default for key, field in fields.items() if not field.is_required()}


@pytest.mark.parametrize("section", schema.SECTIONS)
def test_sections_at_nothing_but_neutral_values_are_read_as_they_were_meant(project, section):
    """If all keys of a section have one, it is `{}` in the settings: labels of plain classes, for example."""
    values = {key: value for key, value in neutral(section).items() if key not in ("label_columns", "inputs")}
    base = BASE | LABELS
    for result in results_of(Graph(configuration(base, {section: values | base.get(section, {})}))):
        read = result.stage.from_content(result.asked, "x.json")
        for name in result.stage.sections().keys() & result.asked.keys():
            if result.asked[name] == {}:
                assert getattr(read, name).model_dump() == neutral(name), (result.title, name)


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (("suite", "eng", "blimp_nl"), "the suite blimp_nl has no pairs of eng"),
        (("base_model", "eng", ""), r"model eng: model\.source is no folder or repository"),
    ],
)
def test_a_job_that_a_language_or_model_does_not_have_is_refused(job, message):
    with pytest.raises(UserError, match=message):
        Graph(configuration(TEXT)).result(*job)


def test_predictions_of_a_model_without_labels_and_of_no_table_are_refused(project):
    with pytest.raises(UserError, match=r"model eng learns no labels \(train\.objective\)"):
        STAGES["predict"].refuse(configuration(TEXT), "eng", "census")
    made = configuration(BASE | LABELS)
    STAGES["predict"].refuse(made, "m", "census")
    Path("census.csv").unlink()
    with pytest.raises(UserError, match=r"predict\.inputs\.census of model m: census\.csv: no such file"):
        STAGES["predict"].refuse(made, "m", "census")
