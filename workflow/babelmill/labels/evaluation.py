"""Measure a label model on all labelled validation text, and write `evaluation.json`.

It has the same keys as for every model (`metrics`, `variants`, `languages`, `documents`). In addition it has
`most_frequent`, the scores of always predicting the most frequent code of the training text, and `labels`:

    code, most          the model's system of codes, and how many codes a text has at most
    method              the method that `variants` is about: `blocks` if codes are spelt, else `linear`
    codes               the codes that the model knows, the most frequent first: `code`, `name` (from the file
                        `metrics.codes`) and `training`, how many training texts have the code
    unknown_codes       true codes that the model does not know; they count as never predicted. How many `codes` there
                        are, in how many `texts`
    example             a text with one code that the default weights predicted correctly: `text`, `context` if it has
                        one, and the `likeliest` codes, each a `code` with its `chance`; null if there is no such text
    cut                 how many texts are longer than the model reads
    baseline            the figures (`metrics.figures`) of always predicting the most frequent code; its `top_k` predict
                        the k most frequent codes
    figures             for each variant and method: `metrics.figures` over all texts, and `languages`, `digits`,
                        `calibration_error`, `threshold` (only for `linear` with several codes per text) and `mistakes`
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from babelmill.config import schema
from babelmill.core import escape
from babelmill.core.files import UserError
from babelmill.evaluation.metrics import described
from babelmill.labels import metrics
from babelmill.labels.codes import CodeReader, Codes
from babelmill.labels.metrics import Predictions, indicator
from babelmill.labels.prediction import Pair, Predictor, Wanted
from babelmill.tokens.documents import Documents

WINDOW = 16_384  # texts that are sorted by length together, so that few positions are padding
MISTAKES = 10
METRICS = ("exact", "f1")

Predicted = dict[str, dict[str, Predictions]]  # by variant and method


class LabelledText:
    """The labelled validation text of all languages, one after another, without texts that have no code.

    A UserError says that a corpus has no labels, or that no text has a code.
    """

    def __init__(self, corpora: dict[str, Path], labels: schema.Labels, known: list[str]):
        numbers = {name: i for i, name in enumerate(known)}  # a new code gets the next number
        self.known, self.language_names = len(known), list(corpora)
        self.texts: list[Pair] = []
        self.documents: dict[str, dict[str, int]] = {}  # {language: counts} of all documents, and those with a code
        truth: list[list[int]] = []
        for language, folder in corpora.items():
            documents, reader, before = (
                Documents(folder / "validation.parquet", contexts=True),
                CodeReader(labels),
                len(truth),
            )
            if not documents.labelled:
                raise UserError(f"{documents.path}: has no labels; set corpus.label_columns and run the workflow again")
            for pair, (cells, origin) in zip(pairs_of(documents), documents.labels(), strict=True):
                if codes := reader.of_document(cells, origin):
                    self.texts.append(pair)
                    truth.append([numbers.setdefault(code, len(numbers)) for code in codes])
            size = len(truth) - before
            self.documents[language] = {"scored": size, "of": documents.count, "with_code": size}
        if not truth:
            raise UserError(f"no validation text of {escape.some(corpora)} has a code: there is nothing to measure")
        self.names = list(numbers)  # code i is `names[i]`; the model knows the first `known` ones
        self.truth = indicator(truth, len(self.names))  # [texts, codes]
        sizes = [counts["scored"] for counts in self.documents.values()]
        self.languages = np.repeat(np.arange(len(corpora)), sizes)  # [texts] int64, indices into `language_names`


def pairs_of(documents: Documents) -> Iterator[Pair]:
    """Yield the context and the text of each document."""
    for texts, _ in documents.batches():
        contexts = texts[::2] if documents.pieces == 2 else [""] * len(texts)
        yield from zip(contexts, texts[documents.pieces - 1 :: documents.pieces], strict=True)


def predict(
    predictor: Predictor, text: LabelledText, method: str, progress: Callable[[int], None]
) -> tuple[Predictions, int]:
    """Return what a model predicts of all texts, and how many texts were cut.

    `progress` is called with the number of texts that have just been predicted. A UserError says that a probability is
    not a number.
    """
    blocks, wanted = predictor.labels["blocks"], Wanted(max(*metrics.TOPS, predictor.labels["blocks"]), method)
    windows = [text.texts[i : i + WINDOW] for i in range(0, len(text.texts), WINDOW)]
    answers = (predictor.predict(window, wanted, progress) for window in windows)
    cut, codes, chances = map(np.concatenate, zip(*answers, strict=True))
    predicted = [list(dict.fromkeys(code for code in row if code >= 0)) for row in codes[:, :blocks].tolist()]
    return Predictions(indicator(predicted, len(text.names)), codes[:, blocks:], chances[:, blocks:]), int(cut.sum())


def always(frequent: list[int], text: LabelledText) -> Predictions:
    """Return the baseline's prediction for each text: the first of the codes `frequent`.

    The next codes in `frequent` are its next likeliest ones; all chances are 0.
    """
    texts, top = len(text.languages), frequent[: max(metrics.TOPS)]
    codes = indicator([top[:1]] * texts, len(text.names))
    return Predictions(codes, np.tile(np.array(top), (texts, 1)), np.zeros((texts, len(top))))


class Report:
    """Turns predictions into evaluation.json. `names` are those of codes that have one.

    `about` is `labels` in the exported folder's config.json; `training`, [codes], counts the training texts with each
    code.
    """

    def __init__(self, text: LabelledText, about: dict[str, Any], training: np.ndarray, names: dict[str, str]):
        self._text, self._about, self._names = text, about, names
        self._frequent = np.argsort(-training, kind="stable").tolist()
        self._training = training
        self._baseline = always(self._frequent, text)
        spelling = about["code"], about["block_size"], about.get("symbol_separator")
        self._spelt = Codes(text.names, *spelling).blocks

    def of(self, predicted: Predicted, variant: str, method: str, cut: int) -> dict[str, Any]:
        """Return evaluation.json, from the predictions of all variants and methods.

        `method`: the one whose scores are the model's. `cut`: how many texts were cut.
        """
        text = self._text
        unknown = text.truth[:, text.known :]  # the true codes that the model does not know
        documents = {
            key: sum(counts[key] for counts in text.documents.values()) for key in ("scored", "of", "with_code")
        }
        return {
            "metrics": described(list(METRICS)),
            **self._scores(predicted, method),
            "documents": documents,
            "languages": {
                language: self._scores(predicted, method, text.languages == i) | {"documents": text.documents[language]}
                for i, language in enumerate(text.language_names)
                if text.documents[language]["scored"]
            },
            "labels": {
                "code": self._about["code"],
                "most": self._about["blocks"],
                "method": method,
                "codes": [self._code(i) | {"training": int(self._training[i])} for i in self._frequent],
                "unknown_codes": {
                    "codes": len(np.unique(unknown.indices)),
                    "texts": int((metrics.sizes(unknown) > 0).sum()),
                },
                "example": self._example(predicted[variant][method]),
                "cut": cut,
                "baseline": metrics.figures(text.truth, self._baseline),
                "figures": {
                    variant: {name: self._figures(found, name) for name, found in methods.items()}
                    for variant, methods in predicted.items()
                },
            },
        }

    def _scores(self, predicted: Predicted, method: str, chosen: np.ndarray | slice = slice(None)) -> dict[str, Any]:
        """Return the scores of each variant and of the baseline on the texts that are `chosen`, [texts] bool."""
        truth = self._text.truth[chosen]
        return {
            "variants": {
                variant: metrics.headline(truth, methods[method].among(chosen))
                for variant, methods in predicted.items()
            },
            "most_frequent": metrics.headline(truth, self._baseline.among(chosen)),
        }

    def _code(self, number: int) -> dict[str, str]:
        code = self._text.names[number]
        return {"code": code, **({"name": self._names[code]} if self._names.get(code) else {})}

    def _example(self, found: Predictions) -> dict[str, Any] | None:
        """Return the first text with one code that was predicted correctly; None if there is none."""
        truth, sizes = self._text.truth, metrics.sizes
        ones = [sizes(each) == 1 for each in (truth, found.codes, truth.multiply(found.codes))]
        fit = np.flatnonzero(np.logical_and.reduce(ones))
        if not len(fit):
            return None
        best = int(fit[0])
        context, text = self._text.texts[best]
        pairs = list(zip(found.likeliest[best].tolist(), found.chances[best].tolist(), strict=True))[:3]
        likeliest = [{"code": self._text.names[code], "chance": chance} for code, chance in pairs if code >= 0]
        return {"text": text, **({"context": context} if context else {}), "likeliest": likeliest}

    def _figures(self, found: Predictions, method: str) -> dict[str, Any]:
        """Return all figures of a variant and a method."""
        text, truth = self._text, self._text.truth
        several = method == "linear" and self._about["blocks"] > 1
        return {
            **metrics.figures(truth, found),
            "languages": {
                language: metrics.figures(truth[text.languages == i], found.among(text.languages == i))
                for i, language in enumerate(text.language_names)
                if text.documents[language]["scored"]
            },
            "digits": metrics.digits(truth, found, self._spelt) if self._spelt.shape[1] else [],
            "calibration_error": metrics.calibration_error(truth, found),
            "threshold": metrics.threshold(truth, found, self._about["blocks"]) if several else None,
            "mistakes": self._mistakes(found),
        }

    def _mistakes(self, found: Predictions) -> list[dict[str, Any]]:
        """Return the most frequent mistakes, with the names of their codes and a text as example."""
        made = metrics.mistakes(self._text.truth, found, MISTAKES)
        return [
            {side: self._code(each[side]) if each[side] >= 0 else None for side in ("true", "predicted")}
            | {"count": each["count"], "example": self._text.texts[each["text"]][1]}
            for each in made
        ]
