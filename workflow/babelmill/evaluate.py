"""Stage `evaluate`: bits per byte of the validation text under the exported model, and what its tokenizer does.

    python -m babelmill.evaluate --settings results/settings/eng/evaluate.json --export results/exports/eng \\
        --corpora results/corpora/eng --shards results/shards/eng/eng --out results/evaluations/eng --threads 8

writes `evaluation.json` and `manifest.json`. What is measured is the folder that users get, loaded as they load it
(`AutoModelForCausalLM`, `AutoModelForMaskedLM`, every variant), not the training model.

Bits per byte is a text's negative log-likelihood over ln 2 and its number of UTF-8 bytes. It does not depend on the
tokenizer, so models of different vocabularies compare. Three scores are taken over the same targets: every token of
the text, exactly once. Special tokens are no text and add neither nats nor bytes (that a document ends is not scored).

* `causal`: each token given those before it.
* `masked`: each token given all others but those hidden with it. Every n-th token is hidden, n times over
  (`evaluation.disjoint_masks`). A pseudo-likelihood: it sees both sides, and is no code length.
* `unigram`: each token by its frequency in the training text of its language, add-one smoothed: what to beat.

The context is the document's part in a row of `evaluation.sequence_length` tokens, `<s>` included, as in training.
Each score comes with its standard error over documents. `evaluation.documents` scores a sample of them.
"""

import argparse
import logging
import sys
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM
from transformers.utils.logging import disable_progress_bar

from babelmill.config import schema
from babelmill.core import manifest, stage_entry
from babelmill.core.files import UserError, sha256, write_json
from babelmill.evaluation.scoring import causal_rows, masked_rows, nats
from babelmill.evaluation.validation_text import Score, Text, pooled
from babelmill.release.loading import load
from babelmill.runtime import gpu_claims
from babelmill.settings import read_settings, recorded
from babelmill.stages import EvaluateSettings, ExportSettings
from babelmill.tokens.quality import measure
from babelmill.tokens.tokenizer_file import load_tokenizer, use_threads, vocab_size
from babelmill.tokens.vocabulary import Vocabulary

log = logging.getLogger("babelmill.evaluate")

PROGRESS_SECONDS = 10
Scores = dict[str, dict[str, dict[str, Score]]]  # by language, variant and mode
CLASSES = {"causal": AutoModelForCausalLM, "masked": AutoModelForMaskedLM}


class ScoringProgress:
    """Logs how far one score is, every so often."""

    def __init__(self, name: str, tokens: int):
        self.name, self.tokens, self.done = name, tokens, 0
        self.began = self.reported = time.monotonic()

    def __call__(self, tokens: int) -> None:
        self.done += tokens
        now = time.monotonic()
        if now - self.reported > PROGRESS_SECONDS:
            self.reported = now
            rate = self.done / (now - self.began)
            log.info("%s: %.0f %%, %.0f targets/s", self.name, 100 * self.done / self.tokens, rate)


def evaluate_model(
    folder: Path, texts: dict[str, Text], vocabulary: Vocabulary, evaluation: schema.Evaluation
) -> Scores:
    """Score all variants of an exported model: {language: {variant: {"causal": entry, "masked": entry}}}."""
    exported = recorded(manifest.read(folder)["settings"], ExportSettings, folder).export
    device = "cuda" if torch.cuda.is_available() else "cpu"
    scores: Scores = {language: {} for language in texts}
    for variant in exported.variants:
        for mode in CLASSES:
            named = None if variant == exported.default_variant else variant
            model = load(CLASSES[mode], folder, named, use_cache=False, logits_alignment="mlm").to(device)
            for language, text in texts.items():
                length, masks = evaluation.sequence_length, evaluation.disjoint_masks
                if mode == "causal":
                    rows = causal_rows(text.tokens, length, vocabulary)
                else:
                    rows = masked_rows(text.tokens, length, masks, vocabulary)
                progress = ScoringProgress(f"{variant} {mode} {language}", text.count)
                score = text.score(nats(model, rows, vocabulary, progress))
                scores[language].setdefault(variant, {})[mode] = score
                log.info("%s %s %s: %.3f bits per byte", variant, mode, language, score["bits_per_byte"])
    return scores


def tokenizer_figures(tokenizer: Tokenizer, language: str, text: Text, lossy: bool) -> dict[str, float]:
    """Measure the tokenizer on the whole validation text.

    UserError if it does not give it back (see `Text.bytes`) and may not be `lossy`.
    """
    figures = measure(tokenizer, (batch for batch, _ in text.documents.batches()))
    if figures["round_trip_rate"] < 1 and not lossy:
        raise UserError(
            f"{language}: the tokenizer does not give every validation document back (rate"
            f" {figures['round_trip_rate']:.4f}), so bits per byte mean nothing; use a lossless tokenizer.source"
        )
    return figures | {"vocabulary_used": text.vocabulary_used}


def run(args: argparse.Namespace) -> None:
    """Evaluate an exported model."""
    settings = read_settings(args.settings, EvaluateSettings)
    gpu_claims.claim(args.gpus)
    use_threads(args.threads)
    disable_progress_bar()
    torch.set_num_threads(args.threads)
    manifest.verify(args.export)
    path = args.export / "tokenizer.json"
    tokenizer, digest = load_tokenizer(path), sha256(path)
    vocabulary = Vocabulary.read(path, vocab_size(tokenizer))
    texts = {
        language: Text(corpus, shards, tokenizer, digest, vocabulary, settings.evaluation.documents)
        for language, corpus, shards in zip(settings.languages, args.corpora, args.shards, strict=True)
    }
    scores = evaluate_model(args.export, texts, vocabulary, settings.evaluation)
    variants = recorded(manifest.read(args.export)["settings"], ExportSettings, args.export).export.variants
    languages = {
        language: {"variants": scores[language], "unigram": text.score(text.unigram), "documents": text.size}
        for language, text in texts.items()
    }
    whole = [text.whole_bytes for text in texts.values()]
    evaluation = {
        "variants": {
            variant: {mode: pooled([scores[language][variant][mode] for language in texts], whole) for mode in CLASSES}
            for variant in variants
        },
        "unigram": pooled([languages[language]["unigram"] for language in texts], whole),
        "documents": {key: sum(text.size[key] for text in texts.values()) for key in ("scored", "of")},
        "vocab_size": vocabulary.size,
        "sequence_length": settings.evaluation.sequence_length,
        "languages": languages,
        "tokenizer": {
            language: tokenizer_figures(tokenizer, language, text, settings.lossy) for language, text in texts.items()
        },
    }
    write_json(args.out / "evaluation.json", evaluation)
    manifest.write(args.out, settings, ["evaluation.json"], upstream=[args.export, *args.corpora, *args.shards])


def main() -> None:
    """Run the stage from the command line."""
    parser = stage_entry.arguments(__doc__)
    parser.add_argument("--export", required=True, type=stage_entry.folder, help="results/exports/{model}")
    parser.add_argument(
        "--corpora", required=True, nargs="+", type=stage_entry.folder, help="corpora, in order of languages"
    )
    parser.add_argument(
        "--shards", required=True, nargs="+", type=stage_entry.folder, help="shards, in order of languages"
    )
    parser.add_argument(
        "--out", required=True, type=stage_entry.folder, help="output folder, results/evaluations/{model}"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--gpus", type=int, default=0, help="1, or 0: the CPU")
    sys.exit(stage_entry.run(run, parser.parse_args()))


if __name__ == "__main__":
    main()
