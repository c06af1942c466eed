"""Measure bits per byte of the validation text by the exported model, and its tokenizer's quality (stage `evaluate`).

    python -m babelmill.evaluate results/settings/evaluate/eng-180b95474d.json --threads 2

This writes `evaluation.json`, `documents.parquet` (one row per scored document, for `babelmill compare`; not for models
of labels) and `manifest.json`. It measures not the training model, but the folder that users get,
loaded as they load it (`AutoModelForCausalLM`, `AutoModelForMaskedLM`, every variant).

Bits per byte is a text's negative log-likelihood over ln 2 and its number of UTF-8 bytes. It does not depend on the
tokenizer, so models with different vocabularies can be compared. All scores use the same targets: every token of the
text, exactly once. Special tokens are not text and add neither nats nor bytes (so the end of a document is not scored).
The objective decides which scores are computed (`config/objectives.py`), and `evaluation.json` describes each one.

* `causal`: each token is predicted from those before it.
* `masked`: each token is predicted from all tokens that are not hidden. Every seventh token is hidden, in seven passes.
  This is a pseudo-likelihood: it sees both sides, so it is not a code length.
* `diffusion`: the evidence lower bound of masked diffusion, estimated with `evaluation.diffusion_samples` hidden shares
  of each text: an *upper bound* of the bits per byte that the model needs.
* `unigram`: each token is predicted by its frequency in the training text of its language, with add-one smoothing: the
  baseline to beat.

A label model is measured on all validation texts, with the same predictions that `predict` of its folder makes:
`labels/metrics.py` has its metrics, `labels/evaluation.py` says what `evaluation.json` holds then. The rest of
this text is about other models.

The context is the document's part in a row of `evaluation.sequence_length` tokens, `<s>` included, as in training. If a
document has a prompt (`corpus.prompt_column`), only the response is scored, given the prompt: both are in the same row
unless they are longer than a row.
Each score comes with its standard error over documents. With `evaluation.documents`, a sample of the documents is
scored. A published model's tokenizer may lose text, such as capitals: `documents.changed` counts the documents where it
does, and every place that shows a score shows this count, too.
"""

import contextlib
import logging
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM
from transformers.utils.logging import disable_progress_bar

from babelmill.config import schema
from babelmill.core import manifest, stage_entry
from babelmill.core.bars import Bar
from babelmill.core.files import UserError, atomic_write, read_json, sha256, write_json
from babelmill.core.stage_entry import Job
from babelmill.core.words import NOT_A_NUMBER
from babelmill.evaluation.metrics import DOCUMENTS, Score, described, in_words, pooled
from babelmill.evaluation.scoring import ScoringRows, ScoringStream, causal_rows, diffusion_rows, masked_rows, nats
from babelmill.evaluation.validation_text import Text, of_documents
from babelmill.labels.corpus_codes import listed
from babelmill.labels.evaluation import LabelledText, Predicted, Report, predict
from babelmill.labels.predictor import Predictor
from babelmill.release.folder.loading import aligned, load
from babelmill.runtime import gpu_claims
from babelmill.stages import EvaluateStage, ExportStage
from babelmill.tokens.quality import measure
from babelmill.tokens.shard_file import ShardFile
from babelmill.tokens.tokenizer_file import load_tokenizer, use_threads, vocab_size
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training.kernels.compilation import scoring_device
from babelmill.training.networks.transformers_models import longest_row

if TYPE_CHECKING:
    from transformers.models.auto.auto_factory import _BaseAutoModelClass

log = logging.getLogger("babelmill.evaluate")

Scores = dict[str, dict[str, dict[str, Score]]]  # by language, variant and metric
Nats = dict[str, dict[str, dict[str, np.ndarray]]]  # the same of each document


class ScoringProgress:
    """Shows the progress of one score."""

    def __init__(self, name: str, tokens: int, part: float = 1, unit: str = "targets"):
        """Start the clock; `part`: which part of a token each one that is scored stands for."""
        self.name, self.tokens, self.part, self.done, self.unit = name, tokens, part, 0, unit
        self.bar, self.began = Bar(tokens), time.monotonic()

    def __call__(self, tokens: float) -> None:
        self.done += self.part * tokens
        rate = self.done / (time.monotonic() - self.began)
        # The tokens of some scores are an estimate: the bar ends when it is closed.
        self.bar.show(min(self.done, 0.99 * self.tokens), f"{self.name}: {rate:,.0f} {self.unit}/s")


# For each metric, the class that loads the model; `rows_of` says how it is measured.
SCORERS: "dict[str, type[_BaseAutoModelClass]]" = {
    "causal": AutoModelForCausalLM,
    "masked": AutoModelForMaskedLM,
    "diffusion": AutoModelForMaskedLM,
}


def rows_of(metric: str, stream: ScoringStream, vocabulary: Vocabulary, evaluation: schema.Evaluation) -> ScoringRows:
    """Return the rows in which a model predicts the tokens of a text, as a metric measures it.

    The nats of each document over the rows of `diffusion` are an estimate of its negated evidence lower bound.
    """
    length = evaluation.sequence_length
    if metric == "causal":
        return causal_rows(stream, length, vocabulary)
    if metric == "masked":
        return masked_rows(stream, length, schema.MASKS, vocabulary)
    return diffusion_rows(stream, length, evaluation.diffusion_samples, vocabulary)


def evaluate_model(
    folder: Path, texts: dict[str, Text], vocabulary: Vocabulary, settings: EvaluateStage
) -> tuple[Scores, Nats]:
    """Score all variants of an exported model: {language: {variant: {metric: score}}}, and the nats of each document.

    A UserError says that a score is not a number.
    """
    exported = ExportStage.from_content(manifest.read(folder)["settings"], folder).export
    device = scoring_device()
    scores: Scores = {language: {} for language in texts}
    found_nats: Nats = {language: {} for language in texts}
    for variant in exported.variants:
        for metric in settings.scores:
            named = None if variant == exported.default_variant else variant
            model = load(SCORERS[metric], folder, named, **aligned(folder)).to(device)
            model.config.use_cache = False  # pyright: ignore (not every class takes it as an argument)
            for language, text in texts.items():
                rows = rows_of(metric, text.stream, vocabulary, settings.evaluation)
                part = 2 / rows.samples if rows.samples else 1  # a sample scores half of the tokens on average
                progress = ScoringProgress(f"{variant} {metric} {language}", text.count, part)
                with contextlib.closing(progress.bar):
                    found = nats(model, rows, vocabulary, progress)
                if wrong := int((~np.isfinite(found)).sum()):
                    raise UserError(
                        f"{folder}: the {metric} scores ({variant}) of {wrong} of {len(found)} validation documents of"
                        f" {language} are not numbers: {NOT_A_NUMBER}"
                    )
                found_nats[language].setdefault(variant, {})[metric] = found
                score = scores[language].setdefault(variant, {})[metric] = text.score(found)
                log.info("%s %s %s: %.3f bits per byte", variant, metric, language, score["value"])
    return scores, found_nats


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


def tokenizer_figures(tokenizer: Tokenizer, language: str, text: Text, lossy: bool) -> dict[str, float]:
    """Measure the tokenizer on the whole validation text.

    A UserError says that decoding does not give the text back (see `Text.bytes`), and the tokenizer may not be `lossy`.
    """
    figures = measure(tokenizer, (batch for batch, _ in text.documents.batches()))
    if figures["round_trip_rate"] < 1 and not lossy:
        raise UserError(
            f"{language}: decoding does not give every validation document back (rate"
            f" {figures['round_trip_rate']:.4f}), so bits per byte mean nothing; use a lossless tokenizer.source"
        )
    return figures | {"vocabulary_used": text.vocabulary_used}


def overall(scores: Scores, texts: dict[str, Text], metrics: list[str]) -> dict[str, Any]:
    """Return the entries of evaluation.json for all languages together."""
    whole = [text.whole_bytes for text in texts.values()]
    return {
        "metrics": described([*metrics, "unigram"]),
        "variants": {
            variant: {
                metric: pooled([scores[language][variant][metric] for language in texts], whole) for metric in metrics
            }
            for variant in next(iter(scores.values()))
        },
        "unigram": pooled([text.score(text.unigram) for text in texts.values()], whole),
        "documents": dict(sum((Counter(text.size) for text in texts.values()), Counter())),
    }


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
    methods = ["blocks", "linear"] if about["decoder_layers"] else ["linear"]
    exported = ExportStage.from_content(manifest.read(folder)["settings"], folder).export
    predicted: Predicted = {}
    cut = 0
    for variant in exported.variants:
        named = None if variant == exported.default_variant else variant
        progress = ScoringProgress(variant, len(text.languages) * len(methods), unit="texts")
        try:
            with contextlib.closing(progress.bar):
                predictor = Predictor(folder, scoring_device(), named)
                found = {method: predict(predictor, text, method, progress) for method in methods}
            predicted[variant] = {method: each for method, (each, _) in found.items()}
            cut = found[methods[0]][1]
        except UserError as error:
            raise UserError(f"{folder} ({variant}): {error}") from None
    names = listed(settings.labels.codes, settings.labels) if settings.labels.codes else {}
    return Report(text, about, training, names).of(predicted, exported.default_variant, methods[0], cut)


def run(job: Job[EvaluateStage]) -> None:
    """Evaluate an exported model."""
    settings, out = job.settings, job.out
    gpu_claims.claim(job.gpus)
    use_threads(job.threads)
    disable_progress_bar()
    torch.set_num_threads(job.threads)
    export = settings.folder("export")
    variant = ExportStage.from_content(manifest.verify(export)["settings"], export).export.default_variant
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
    texts = {
        language: Text(corpus, shards, tokenizer, digest, vocabulary, settings.evaluation.documents, settings.lossy)
        for language, corpus, shards in zip(settings.languages, corpora, shards_folders, strict=True)
    }
    for language, text in texts.items():
        if text.changed:
            log.warning(
                "%s: the tokenizer changes %d of %d scored documents: bits per byte are about the changed text",
                *(language, text.changed, text.size["scored"]),
            )
    scores, nats = evaluate_model(export, texts, vocabulary, settings)
    log.info("measuring the tokenizer")
    evaluation = overall(scores, texts, settings.scores) | {
        "vocab_size": vocabulary.entries,
        "sequence_length": settings.evaluation.sequence_length,
        "languages": {
            language: {"variants": scores[language], "unigram": text.score(text.unigram), "documents": text.size}
            for language, text in texts.items()
        },
        "tokenizer": {
            language: tokenizer_figures(tokenizer, language, text, settings.lossy) for language, text in texts.items()
        },
    }
    return evaluation, of_documents(texts, nats)


if __name__ == "__main__":
    sys.exit(stage_entry.main(EvaluateStage, run, __doc__))
