"""Measure a label model on all labelled validation text: what `evaluation.json` holds.

It has the same keys as for every model (`metrics`, `variants`, `languages`, `documents`). In addition it has
`most_frequent`, the scores of always predicting the most frequent code of the training text, and `labels`:

    code, most          the model's system of codes, and how many codes a text has at most
    method              the method that `variants` is about: `blocks` if codes are spelt, else `linear`
    codes               the codes that the model knows, the most frequent first: `code`, `name` (from the file
                        `labels.codes`) and `training`, how many training texts have the code
    unknown_codes       true codes that the model does not know; they count as never predicted. How many `codes` there
                        are, in how many `texts`
    cut                 how many texts are longer than the model reads
    baseline            the figures (`metrics.figures`) of always predicting the most frequent code
    figures             for each variant and method: `metrics.figures` over all texts
"""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from babelmill.config import schema
from babelmill.evaluation.metrics import described
from babelmill.labels import metrics
from babelmill.labels.codes import CodeReader
from babelmill.labels.metrics import indicator
from babelmill.labels.prediction import Pair
from babelmill.tokens.documents import Documents


class LabelledText:
    """The labelled validation text of all languages, one after another."""

    def __init__(self, corpora: dict[str, Path], labels: schema.Labels, known: list[str]):
        numbers = {name: i for i, name in enumerate(known)}  # a new code gets the next number
        reader, self.texts, languages = CodeReader(labels), list[Pair](), list[str]()
        truth: list[list[int]] = []
        for language, folder in corpora.items():
            documents = Documents(folder / "validation.parquet", contexts=True)
            texts = [text for batch, _ in documents.batches() for text in batch]  # after each context, if there are any
            contexts = texts[::2] if documents.pieces == 2 else [""] * len(texts)
            self.texts += zip(contexts, texts[documents.pieces - 1 :: documents.pieces], strict=True)
            languages += [language] * documents.count
            codes = (reader.of_document(*each) for each in documents.labels())
            truth += [[numbers.setdefault(code, len(numbers)) for code in each] for each in codes]
        self.known, self.names = len(known), list(numbers)  # code i is `names[i]`; the model knows the first ones
        self.truth = indicator(truth, len(self.names))  # [texts, codes]
        self.languages = np.array(languages)  # [texts]


def report(
    text: LabelledText,
    about: dict[str, Any],
    training: np.ndarray,
    names: dict[str, str],
    answers: dict[str, dict[str, np.ndarray]],
) -> dict[str, Any]:
    """Turn what variants and methods predicted, {variant: {method: `Predictor.predict`}}, into evaluation.json.

    Its scores are those of the first method. `about` is `labels` in the exported folder's config.json; `training`,
    [codes], counts the training texts with each code. `names` are those of codes that have one.
    """
    frequent = np.argsort(-training, kind="stable").tolist()
    baseline = indicator([frequent[:1]] * len(text.texts), len(text.names))
    predicted = {
        variant: {method: codes_of(found, about["blocks"], len(text.names)) for method, found in methods.items()}
        for variant, methods in answers.items()
    }
    (method, first), *_ = next(iter(answers.values())).items()
    unknown = text.truth[:, text.known :]  # the true codes that the model does not know

    def scores(chosen: np.ndarray | slice) -> dict[str, Any]:
        """Return the scores of each variant and of the baseline on the texts that are `chosen`, [texts] bool."""
        truth = text.truth[chosen]
        return {
            "variants": {
                variant: metrics.headline(truth, methods[method][chosen]) for variant, methods in predicted.items()
            },
            "most_frequent": metrics.headline(truth, baseline[chosen]),
            "documents": dict.fromkeys(("scored", "of"), len(metrics.sizes(truth))),
        }

    def code(number: int) -> dict[str, Any]:
        name = text.names[number]
        named = {"name": names[name]} if names.get(name) else {}
        return {"code": name, **named, "training": int(training[number])}

    return {
        "metrics": described(["exact", "f1"]),
        **scores(slice(None)),
        "languages": {each: scores(text.languages == each) for each in dict.fromkeys(text.languages.tolist())},
        "labels": {
            "code": about["code"],
            "most": about["blocks"],
            "method": method,
            "codes": [code(number) for number in frequent],
            "unknown_codes": {
                "codes": len(np.unique(unknown.indices)),
                "texts": int((metrics.sizes(unknown) > 0).sum()),
            },
            "cut": int(first[:, 0].sum()),
            "baseline": metrics.figures(text.truth, baseline),
            "figures": {
                variant: {name: metrics.figures(text.truth, found) for name, found in methods.items()}
                for variant, methods in predicted.items()
            },
        },
    }


def codes_of(found: np.ndarray, blocks: int, codes: int) -> csr_array:
    """Return the predicted codes, [texts, codes], of at most `blocks` of each text; see `Predictor.predict`."""
    rows = found[:, 1 : 1 + blocks].astype(int).tolist()
    return indicator([[code for code in row if code >= 0] for row in rows], codes)
