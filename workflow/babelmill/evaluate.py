"""Measure bits per byte of the validation text by the exported model, and its tokenizer's quality (stage `evaluate`).

    python -m babelmill.evaluate results/settings/evaluate/eng-180b95474d.json --threads 2

This writes `evaluation.json`, `documents.parquet` (one row per scored document, for `babelmill compare`; not for models
of labels) and `manifest.json`. It measures not the training model, but the folder that users get,
loaded as they load it (`AutoModelForCausalLM`, `AutoModelForMaskedLM`, every variant).

Bits per byte is a text's negative log-likelihood over ln 2 and its number of UTF-8 bytes. It does not depend on the
tokenizer, so models with different vocabularies can be compared. All scores use the same targets: every token of the
text, exactly once. Special tokens are not text and add neither nats nor bytes (so the end of a document is not scored).
The objective decides which scores are computed (`config/models.py`; of a model from elsewhere, its class does), and
`evaluation.json` describes each one.

* `causal`: each token is predicted from those before it.
* `masked`: each token is predicted from all tokens that are not hidden. Every seventh token is hidden, in seven passes.
  This is a pseudo-likelihood: it sees both sides, so it is not a code length.
* `diffusion`: the evidence lower bound of masked diffusion, estimated with SAMPLES hidden shares of each text: an
  *upper bound* of the bits per byte that the model needs.
* `unigram`: each token is predicted by its frequency in the training text of its language, with add-one smoothing: the
  baseline to beat. A model from elsewhere has none, since its training text is not here.

A label model is measured on all validation texts, with the same predictions that `predict` of its folder makes:
`labels/metrics.py` has its metrics, `labels/evaluation.py` says what `evaluation.json` holds then. The rest of
this text is about other models.

The context of a token is its whole document, from `<s>` on. A document of more than `evaluation.sequence_length` tokens
(`<s>` included) is cut into windows of this length, each with its own `<s>`. If a document has a prompt
(`corpus.prompt_column`), only the response is scored, given the prompt.
Each score comes with its standard error over documents. With `evaluation.max_documents`, a sample of the documents is
scored. A published model's tokenizer may lose text, such as capitals: `documents.changed` counts the documents where it
does, and every place that shows a score shows this count, too.
"""

import contextlib
import itertools
import logging
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModel

from babelmill.config import schema
from babelmill.core import manifest, stage_entry
from babelmill.core.bars import Bar
from babelmill.core.files import UserError, atomic_write, read_json, sha256, write_json
from babelmill.core.stage_entry import Job
from babelmill.core.words import plural
from babelmill.evaluation.likelihood import Model
from babelmill.evaluation.metrics import DOCUMENTS, described, in_words, pooled
from babelmill.evaluation.rows import Row, of_method
from babelmill.evaluation.validation_text import ValidationText, of_documents, windows
from babelmill.labels.codes import listed
from babelmill.labels.evaluation import LabelledText, report
from babelmill.labels.prediction import Predictor
from babelmill.release.folder.loading import begin, methods_of
from babelmill.stages import EvaluateStage, ExportStage
from babelmill.suites.scoring_model import ScoringModel
from babelmill.tokens.shard_file import ShardFile
from babelmill.tokens.tokenizer_file import load_tokenizer, measure, vocab_size
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training.kernels.compilation import scoring_device
from babelmill.training.networks.transformers_models import longest_row

log = logging.getLogger("babelmill.evaluate")

SAMPLES = 16  # passes over a text for the metric `diffusion`


def score_documents(
    folder: Path, texts: dict[str, ValidationText], mask: int, settings: EvaluateStage, metrics: list[str]
) -> None:
    """Score the documents of all languages by each variant of an exported model and each metric: `nats` of the texts.

    `mask`: the id of the token that hides others. A UserError says that a score is not a number.
    """
    exported, scoring, length = export_of(folder), ScoringModel(folder), settings.evaluation.sequence_length
    for variant in exported.variants:
        for metric in metrics:
            named = None if variant == exported.default_variant else variant
            model, _ = scoring.load(metric, named, extra=not is_ours(folder))
            for language, text in texts.items():
                name = f"{variant} {metric} {language}"
                nats = nats_of(text, model, metric, mask, length, name)
                text.nats.setdefault(variant, {})[metric] = nats
                log.info("%s: %.3f bits per byte", name, text.score(nats)["value"])


def nats_of(text: ValidationText, model: Model, metric: str, mask: int, length: int, name: str) -> np.ndarray:
    """Return -ln p of each document to score, [documents], read in windows of `length` tokens."""

    def rows_of(number: int) -> list[list[Row]]:
        parts, seed = windows(text.tokens[number], text.scored[number], length), int(text.chosen[number])
        how: dict[str, Any] = {"samples": SAMPLES, "passes": schema.MASKS}
        return [[row for i, part in enumerate(parts) for row in of_method(metric, part, mask, seed, i, **how)]]

    found, done = np.zeros(len(text.tokens)), 0
    order = sorted(range(len(found)), key=lambda i: len(text.tokens[i]))
    with contextlib.closing(Bar(text.count)) as bar:
        for numbers, sums in model.groups(order, rows_of):
            found[numbers] = [-total for (total,) in sums]
            done += sum(int(text.scored[number].sum()) for number in numbers)
            bar.show(done, f"{name}: {done:,} of {plural(text.count, 'token')}")
    return found


def metrics_of(folder: Path) -> list[str]:
    """Return the metrics of a model from elsewhere: those of its class."""
    methods = methods_of(folder)
    return ["diffusion"] if "bound" in methods else [name for name in methods if name != "fused"]


def is_ours(folder: Path) -> bool:
    """Return whether the stage `export` wrote a folder, and not the stage `base_model`."""
    return manifest.read(folder)["stage"] == ExportStage.stage


def export_of(folder: Path) -> schema.Export:
    """Return which variants a folder has; a model from elsewhere has one."""
    if is_ours(folder):
        return ExportStage.from_content(manifest.read(folder)["settings"], folder).export
    return schema.Export(variants=["main"], default_variant="main")


def check_length(folder: Path, length: int) -> None:
    """Raise a UserError if rows are longer than a transformers model can read; a GPT-BERT reads rows of any length."""
    if "auto_map" in read_json(folder / "config.json"):
        return
    with torch.device("meta"):
        positions = longest_row(AutoModel.from_config(AutoConfig.from_pretrained(folder)))
    if length > positions:
        raise UserError(
            f"evaluation.sequence_length = {length} is more than the {positions} positions of {folder}, the most that"
            " the model can read; lower the length"
        )


def tokenizer_figures(tokenizer: Tokenizer, language: str, text: ValidationText, lossy: bool) -> dict[str, float]:
    """Measure the tokenizer on the whole validation text.

    A UserError says that decoding does not give the text back, and the tokenizer may not be `lossy`.
    """
    figures = measure(tokenizer, (batch for batch, _ in text.documents.batches()))
    if figures["round_trip_rate"] < 1 and not lossy:
        raise UserError(
            f"{language}: decoding does not give every validation document back (rate"
            f" {figures['round_trip_rate']:.4f}), so bits per byte mean nothing; use a lossless tokenizer.source"
        )
    return figures | text.used


def training_codes(shards: list[Path], corpora: list[Path], known: list[str]) -> np.ndarray:
    """Return how many training texts have each code that the model knows, [codes]."""
    counts, index = np.zeros(len(known), np.int64), {code: i for i, code in enumerate(known)}
    for folder, corpus in zip(shards, corpora, strict=True):
        manifest.verify(folder, "train.safetensors", remember=True)
        manifest.verify(corpus, "validation.parquet")
        manifest.verify_upstream(folder, corpus)
        if labels := ShardFile.open(folder / "train.safetensors").labels:
            np.add.at(counts, np.array([index[name] for name in labels.names])[labels.codes], 1)
    return counts


def evaluate_labels(settings: EvaluateStage) -> dict[str, Any]:
    """Return the evaluation of a label model."""
    folder, corpora = settings.folder("export"), settings.folders("corpora")
    about = read_json(folder / "config.json")["labels"]
    training = training_codes(settings.folders("shards"), corpora, about["codes"])
    text = LabelledText(dict(zip(settings.languages, corpora, strict=True)), settings.labels, about["codes"])
    methods = [schema.Predict(method="blocks")] if about["decoder_layers"] else []
    methods.append(schema.Predict(method="linear"))
    exported = export_of(folder)
    answers: dict[str, dict[str, np.ndarray]] = {}
    for variant in exported.variants:
        named = None if variant == exported.default_variant else variant
        try:
            predictor = Predictor(folder, scoring_device(), named)
            answers[variant] = {asked.method: predictor.predict(text.texts, asked) for asked in methods}
        except UserError as error:
            raise UserError(f"{folder} ({variant}): {error}") from None
    names = listed(settings.labels.codes, settings.labels) if settings.labels.codes else {}
    return report(text, about, training, names, answers)


def run(job: Job[EvaluateStage]) -> None:
    """Evaluate an exported model."""
    settings, out = job.settings, job.out
    begin(job)
    export = settings.folder("export")
    manifest.verify(export)
    variant = export_of(export).default_variant
    files = ["evaluation.json"]
    if settings.labelled:
        evaluation = evaluate_labels(settings)
    else:
        evaluation, documents = evaluate_text(settings)
        with atomic_write(out / DOCUMENTS) as file:
            pq.write_table(documents, file, compression="zstd")
        files.append(DOCUMENTS)
    write_json(out / "evaluation.json", evaluation)
    upstream = [export, *settings.folders("corpora"), *settings.folders("shards")]
    manifest.write(out, settings, files, upstream, {"summary": in_words(evaluation, variant)})


def evaluate_text(settings: EvaluateStage) -> tuple[dict[str, Any], pa.Table]:
    """Return the evaluation of a model that predicts tokens, and the table of its documents."""
    export, corpora, shards_folders = settings.folder("export"), settings.folders("corpora"), settings.folders("shards")
    path = export / "tokenizer.json"
    tokenizer, digest = load_tokenizer(path), sha256(path)
    vocabulary = Vocabulary.read(path, vocab_size(tokenizer))
    check_length(export, settings.evaluation.sequence_length)
    log.info("reading the validation text of %s", " ".join(settings.languages))
    sample, lossy = settings.evaluation.max_documents, settings.lossy
    texts: dict[str, ValidationText] = {}
    for language, corpus, shards in itertools.zip_longest(settings.languages, corpora, shards_folders):
        texts[language] = text = ValidationText(corpus, tokenizer, vocabulary, sample, lossy)
        if shards:
            text.learn(shards, corpus, digest)
        if text.changed:
            log.warning(
                "%s: the tokenizer changes %d of %d scored documents: bits per byte are about the changed text",
                *(language, text.changed, text.size["scored"]),
            )
    metrics = settings.scores or metrics_of(export)
    score_documents(export, texts, vocabulary.mask, settings, metrics)
    log.info("measuring the tokenizer")
    each, whole = [text.figures() for text in texts.values()], [text.whole_bytes for text in texts.values()]
    unigram = {"unigram": pooled([one["unigram"] for one in each], whole)} if shards_folders else {}
    evaluation = {
        "metrics": described([*metrics, *unigram]),
        "variants": {
            variant: {metric: pooled([one["variants"][variant][metric] for one in each], whole) for metric in metrics}
            for variant in each[0]["variants"]
        },
        **unigram,
        "documents": dict(sum((Counter(text.size) for text in texts.values()), Counter())),
        "vocab_size": vocabulary.entries,
        "sequence_length": settings.evaluation.sequence_length,
        "languages": dict(zip(texts, each, strict=True)),
        "tokenizer": {
            language: tokenizer_figures(tokenizer, language, text, settings.lossy) for language, text in texts.items()
        },
    }
    return evaluation, of_documents(texts)


if __name__ == "__main__":
    sys.exit(stage_entry.main(EvaluateStage, run, __doc__))
