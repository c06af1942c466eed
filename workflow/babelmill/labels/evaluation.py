"""Measure a label model on all labelled validation text: what `evaluation.json` holds.

It has the same keys as for every model (`metrics`, `variants`, `languages`, `documents`). In addition it has
`most_frequent`, the scores of always predicting the most frequent code of the training text, and `labels`:

    code, most          the model's system of codes, and how many codes a text has at most
    method              the method that `variants` is about: `blocks` if codes are spelt, else `linear`
    codes               the codes that the model knows, the most frequent first: `code`, `name` (from the file
                        `labels.codes`) and `training`, how many training texts have the code
    unknown_codes       true codes that the model does not know; they count as never predicted. How many `codes` there
                        are, in how many `texts`
    example             a text with one code that the default weights predicted correctly: `text`, `context` if it has
                        one, and the `likeliest` codes, each a `code` with its `chance`; null if there is no such text
    cut                 how many texts are longer than the model reads
    baseline            the figures (`metrics.figures`) of always predicting the most frequent code
    figures             for each variant and method: `metrics.figures` over all texts, those of each of the `languages`,
                        and the most frequent `mistakes`, each with a text as example
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from babelmill.config import schema
from babelmill.evaluation.metrics import described
from babelmill.labels import metrics
from babelmill.labels.codes import CodeReader
from babelmill.labels.metrics import indicator
from babelmill.labels.prediction import Answers, Pair
from babelmill.tokens.documents import Documents

MISTAKES = 10
LIKELIEST = 3  # codes of the example
METRICS = ("exact", "f1")


class LabelledText:
    """The labelled validation text of all languages, one after another."""

    def __init__(self, corpora: dict[str, Path], labels: schema.Labels, known: list[str]):
        numbers = {name: i for i, name in enumerate(known)}  # a new code gets the next number
        reader, self.texts, languages = CodeReader(labels), list[Pair](), list[str]()
        truth: list[list[int]] = []
        for language, folder in corpora.items():
            documents = Documents(folder / "validation.parquet", contexts=True)
            self.texts += pairs_of(documents)
            languages += [language] * documents.count
            codes = (reader.of_document(*each) for each in documents.labels())
            truth += [[numbers.setdefault(code, len(numbers)) for code in each] for each in codes]
        self.known, self.names = len(known), list(numbers)  # code i is `names[i]`; the model knows the first ones
        self.truth = indicator(truth, len(self.names))  # [texts, codes]
        self.languages = np.array(languages)  # [texts]


def pairs_of(documents: Documents) -> Iterator[Pair]:
    """Yield the context and the text of each document."""
    for texts, _ in documents.batches():
        contexts = texts[::2] if documents.pieces == 2 else [""] * len(texts)
        yield from zip(contexts, texts[documents.pieces - 1 :: documents.pieces], strict=True)


class Report:
    """Turns what variants and methods answered, {variant: {method: answers}}, into evaluation.json.

    `about` is `labels` in the exported folder's config.json; `training`, [codes], counts the training texts with each
    code. `names` are those of codes that have one.
    """

    def __init__(
        self,
        text: LabelledText,
        about: dict[str, Any],
        training: np.ndarray,
        names: dict[str, str],
        answers: dict[str, dict[str, Answers]],
    ):
        self._text, self._about, self._names, self._training, self._answers = text, about, names, training, answers
        self._frequent = np.argsort(-training, kind="stable").tolist()
        self._baseline = indicator([self._frequent[:1]] * len(text.texts), len(text.names))
        self._predicted = {
            variant: {method: self._codes_of(found) for method, found in methods.items()}
            for variant, methods in answers.items()
        }
        self._each = {language: text.languages == language for language in dict.fromkeys(text.languages.tolist())}

    def _codes_of(self, answers: Answers) -> csr_array:
        """Return the predicted codes, [texts, codes]."""
        rows = answers.codes[:, : self._about["blocks"]].tolist()
        return indicator([list(dict.fromkeys(c for c in row if c >= 0)) for row in rows], len(self._text.names))

    def of(self, variant: str, method: str) -> dict[str, Any]:
        """Return evaluation.json of a model whose default weights are `variant`, and whose scores are of `method`."""
        text = self._text
        unknown = text.truth[:, text.known :]  # the true codes that the model does not know
        return {
            "metrics": described(list(METRICS)),
            **self._scores(method, slice(None)),
            "languages": {language: self._scores(method, chosen) for language, chosen in self._each.items()},
            "labels": {
                "code": self._about["code"],
                "most": self._about["blocks"],
                "method": method,
                "codes": [self._code(i) | {"training": int(self._training[i])} for i in self._frequent],
                "unknown_codes": {
                    "codes": len(np.unique(unknown.indices)),
                    "texts": int((metrics.sizes(unknown) > 0).sum()),
                },
                "example": self._example(variant, method),
                "cut": int(self._answers[variant][method].cut.sum()),
                "baseline": metrics.figures(text.truth, self._baseline),
                "figures": {
                    variant: {name: self._figures(found) for name, found in methods.items()}
                    for variant, methods in self._predicted.items()
                },
            },
        }

    def _scores(self, method: str, chosen: np.ndarray | slice) -> dict[str, Any]:
        """Return the scores of each variant and of the baseline on the texts that are `chosen`, [texts] bool."""
        truth = self._text.truth[chosen]
        return {
            "variants": {
                variant: metrics.headline(truth, methods[method][chosen])
                for variant, methods in self._predicted.items()
            },
            "most_frequent": metrics.headline(truth, self._baseline[chosen]),
            "documents": dict.fromkeys(("scored", "of"), len(metrics.sizes(truth))),
        }

    def _code(self, number: int) -> dict[str, str]:
        code = self._text.names[number]
        return {"code": code, **({"name": self._names[code]} if self._names.get(code) else {})}

    def _example(self, variant: str, method: str) -> dict[str, Any] | None:
        """Return the first text with one code that was predicted correctly; None if there is none."""
        truth, predicted, answers = self._text.truth, self._predicted[variant][method], self._answers[variant][method]
        ones = [metrics.sizes(each) == 1 for each in (truth, predicted, truth.multiply(predicted))]
        fit = np.flatnonzero(np.logical_and.reduce(ones))
        if not len(fit):
            return None
        context, text = self._text.texts[fit[0]]
        places = slice(self._about["blocks"], self._about["blocks"] + LIKELIEST)
        pairs = zip(answers.codes[fit[0], places].tolist(), answers.chances[fit[0], places].tolist(), strict=True)
        likeliest = [{"code": self._text.names[code], "chance": chance} for code, chance in pairs if code >= 0]
        return {"text": text, **({"context": context} if context else {}), "likeliest": likeliest}

    def _figures(self, found: csr_array) -> dict[str, Any]:
        """Return all figures of a variant and a method."""
        truth = self._text.truth
        made = [
            {side: self._code(each[side]) if each[side] >= 0 else None for side in ("true", "predicted")}
            | {"count": each["count"], "example": self._text.texts[each["text"]][1]}
            for each in metrics.mistakes(truth, found, MISTAKES)
        ]
        languages = {name: metrics.figures(truth[chosen], found[chosen]) for name, chosen in self._each.items()}
        return {**metrics.figures(truth, found), "languages": languages, "mistakes": made}
