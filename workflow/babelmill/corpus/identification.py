"""Find out which language a document is in (`corpus.language_filter`).

A document stays if the model finds the corpus' language in it with at least the asked probability. A short text tells
no language, and stays.

The models are fastText's (GlotLID, or a file of the user's own) and that of py3langid, which comes with the
package. Which labels of a model are the corpus' language says `config/identifiers.py`.
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow creates the functions of pyarrow.compute at import: a type checker cannot see them.)

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from babelmill.core.files import UserError
from babelmill.corpus.tally import Tally

LONGEST = 5000  # characters of a document that the model looks at
LEAST = 20  # letters; a shorter text tells no language, and stays
DIGITS = 4  # of probabilities; the last ones differ between processors
BEST = 3  # labels that are added up: one language may have several, such as the two kinds of Norwegian
UNKNOWN = "no letters"


class FastText:
    """A model of fastText."""

    def __init__(self, path: str) -> None:
        import fasttext  # only here, since few corpora need it

        try:
            self._model: Any = fasttext.load_model(path)
            every, shares = self._model.predict("x", k=-1)
            if not 0.5 < sum(shares) < 1.5:  # not true of NaN either
                raise ValueError(f"the probabilities of a text add up to {sum(shares):.3g}, not to 1")
        except (OSError, ValueError, RuntimeError, MemoryError) as error:
            problem = str(error) or "it ends early"
            raise UserError(f"{path}: no model of fastText that finds labels ({problem}); use another file") from None
        self._names = {label: label.removeprefix("__label__") for label in every}
        self.labels = list(self._names.values())

    def find(self, texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        """Return the most probable labels of each text, with their probabilities. A text is one line."""
        found = [zip(*self._model.predict(text, k=BEST), strict=True) for text in texts]
        return [[(self._names[label], round(share, DIGITS)) for label, share in pairs] for pairs in found]


class Py3Langid:
    """The model of py3langid. Its labels are codes of ISO 639-1, or of 639-3 where there is none."""

    def __init__(self) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        self._identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        self.labels = self._identifier.labels

    def find(self, texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        """Return the most probable labels of each text, with their probabilities. A text is one line."""
        return [
            [(label, round(float(share), DIGITS)) for label, share in self._identifier.rank(text)[:BEST]]
            if text.strip()
            else []
            for text in texts
        ]


@dataclasses.dataclass(frozen=True)
class Identification:
    """Says which language the documents of a corpus must be in."""

    model: str  # `py3langid`, or the path of a model of fastText
    labels: frozenset[str]  # the labels that stand for the language
    at_least: float  # the probability that it must have

    @property
    def knows(self) -> bool:
        """Return whether the model knows the language."""
        return not self.labels.isdisjoint(load(self.model).labels)


@functools.cache
def load(model: str) -> FastText | Py3Langid:
    """Return a model. Each process reads it once."""
    return Py3Langid() if model == "py3langid" else FastText(model)


def other_languages(text: pa.StringArray, asked: Identification, tally: Tally) -> list[str]:
    """Return what was found in each document that is not in the language; "" for the others.

    `tally` counts the languages that were found.
    """
    notes = [""] * len(text)
    looked_at = [row for row, each in enumerate(text.to_pylist()) if has_enough_letters(each)]
    beginnings = pc.utf8_slice_codeunits(text.take(pa.array(looked_at, pa.int64())), 0, LONGEST)
    lines = pc.replace_substring(beginnings, "\n", " ").to_pylist()
    for row, labels in zip(looked_at, load(asked.model).find(lines), strict=True):
        own = round(sum(share for label, share in labels if label in asked.labels), DIGITS)
        if own < asked.at_least:
            label, share = labels[0] if labels else (UNKNOWN, 0.0)
            notes[row] = f"{label} {share:.2f}"
            tally.languages[label] += 1
    return notes


def has_enough_letters(text: str) -> bool:
    """Return whether a text has enough letters to tell its language."""
    return next(itertools.islice(filter(str.isalpha, text), LEAST - 1, None), None) is not None
