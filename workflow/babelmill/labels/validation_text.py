"""Read all labelled validation text with its true codes, and let an exported model predict its codes."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from babelmill.config import schema
from babelmill.core import escape, manifest
from babelmill.core.files import UserError
from babelmill.core.words import NOT_A_NUMBER
from babelmill.labels.corpus_codes import CodeReader
from babelmill.labels.metrics import TOPS, Found, Sets
from babelmill.tokens.documents import Documents
from babelmill.tokens.shard_file import Labels

WINDOW = 16_384  # texts that are sorted by length together, so that few positions are padding
BATCH_TOKENS = 8_192  # positions per batch, which the decoder reads once per beam

Described = tuple[str, str]  # a text's context, "" if it has none, and the text


class LabelledText:
    """The labelled validation text of all languages, one after another, without texts that have no code.

    Args:
        corpora: {language: its corpus folder}.
        labels: the section `labels` of the settings.
        known: the codes that the model knows.

    Attributes:
        names: all codes, those that the model knows first: code i is `names[i]`.
        known: how many codes the model knows.
        truth: the codes of each text.
        languages, contexts: [texts] int64, indices into `language_names` and `context_names`.
        columns: {column of labels: the codes in it, for each text}; empty if there is only one column.
        documents: {language: counts}: `of`, all documents; `with_code`, those with a code; `scored`, the same ones.

    Raises:
        UserError: a corpus has no labels, or no text has a code.
    """

    def __init__(self, corpora: dict[str, Path], labels: schema.Labels, known: list[str]):
        self._numbers = {name: i for i, name in enumerate(known)}
        self._labels, self.known, self.language_names = labels, len(known), list(corpora)
        self._documents: list[Documents] = []
        self._chosen: list[np.ndarray] = []  # for each language, which documents have a code
        self._contexts: dict[str, int] = {}
        self._columns: dict[str, dict[int, list[int]]] = {}
        truth: list[list[int]] = []
        for folder in corpora.values():
            truth += self._read(folder, len(truth))
        if not truth:
            raise UserError(f"no validation text of {escape.some(corpora)} has a code: there is nothing to measure")
        sizes = [int(chosen.sum()) for chosen in self._chosen]
        self.documents = {
            language: {"scored": size, "of": documents.count, "with_code": size}
            for language, size, documents in zip(corpora, sizes, self._documents, strict=True)
        }
        self.truth, self.names = Sets.of(truth), list(self._numbers)
        self.languages = np.repeat(np.arange(len(corpora)), sizes)
        self.contexts = np.array(
            [self._contexts.setdefault(context, len(self._contexts)) for context, _ in self.texts()]
        )
        several = self._columns if len(self._columns) > 1 else {}
        self.columns = {name: Sets.of([codes.get(i, []) for i in range(len(truth))]) for name, codes in several.items()}

    def _read(self, folder: Path, begin: int) -> list[list[int]]:
        """Return the codes of the texts of a corpus that have a code; the first such text gets the number `begin`."""
        documents = Documents(folder / "validation.parquet", contexts=True)
        if not documents.labelled:
            raise UserError(f"{documents.path}: has no labels; set corpus.label_columns and run the workflow again")
        rows = list(documents.labels())
        found = self._codes(CodeReader(self._labels), rows)
        self._documents.append(documents)
        self._chosen.append(np.array([bool(codes) for codes in found], bool))
        self._read_columns(column_names(folder), [row for row, codes in zip(rows, found, strict=True) if codes], begin)
        return [codes for codes in found if codes]

    def _read_columns(self, names: list[str], rows: list[tuple[list[str | None], str]], begin: int) -> None:
        """Add the codes in each column of a corpus."""
        count = max((len(found) for found, _ in rows), default=0)
        names = names if len(names) == count else [f"column {place + 1}" for place in range(count)]
        for place, name in enumerate(names):
            reader = CodeReader(self._labels.model_copy(update={"on_error": "skip"}))  # rows were checked before
            filled = [i for i, (found, _) in enumerate(rows) if any(reader.parts(found[place]))]
            codes = self._codes(reader, (([rows[i][0][place]], rows[i][1]) for i in filled))
            mine = self._columns.setdefault(name, {})
            mine.update((begin + i, each) for i, each in zip(filled, codes, strict=True))

    @property
    def context_names(self) -> list[str]:
        """Return the contexts that occur."""
        return list(self._contexts)

    def _codes(self, reader: CodeReader, rows: Iterable[tuple[list[str | None], str]]) -> list[list[int]]:
        """Return the codes of documents as numbers; a new code gets the next number."""
        read: Labels = reader.read(rows)
        numbers = [-1] * len(read.names)
        for code in dict.fromkeys(read.codes.tolist()):
            numbers[code] = self._numbers.setdefault(read.names[code], len(self._numbers))
        codes = [numbers[code] for code in read.codes.tolist()]
        return [codes[a:b] for a, b in zip(read.offsets[:-1].tolist(), read.offsets[1:].tolist(), strict=True)]

    def _of(self, language: int) -> Iterator[Described]:
        """Yield the texts of a language that have a code."""
        documents, place = self._documents[language], 0
        for texts, sizes in documents.batches():
            contexts = texts[::2] if documents.pieces == 2 else [""] * len(sizes)
            for context, text in zip(contexts, texts[documents.pieces - 1 :: documents.pieces], strict=True):
                if self._chosen[language][place]:
                    yield context, text
                place += 1

    def texts(self) -> Iterator[Described]:
        """Yield all texts, in order."""
        for language in range(len(self._documents)):
            yield from self._of(language)


def column_names(corpus: Path) -> list[str]:
    """Return the names of a corpus's columns of labels; an empty list if its manifest does not name them."""
    return list(manifest.read(corpus)["settings"].get("corpus", {}).get("label_columns") or [])


class Tokens:
    """Turns texts into tokens, cut to the length that the model reads.

    Args:
        tokenizer: the exported folder's tokenizer, loaded by transformers.
        longest: how many tokens the model reads at most.

    Attributes:
        cut: how many texts were longer.
    """

    def __init__(self, tokenizer: Any, longest: int):
        self._tokenizer, self._longest, self.cut = tokenizer, longest, 0

    def of(self, window: Iterable[Described]) -> list[list[int]]:
        """Return the token ids of each text."""
        rows: list[list[int]] = []
        for context, text in window:
            given = (context, text) if context else (text,)
            ids = self._tokenizer(*given, verbose=False)["input_ids"]
            if len(ids) > self._longest:
                self.cut += 1
                ids = self._tokenizer(*given, truncation=True, max_length=self._longest)["input_ids"]
            rows.append(ids)
        return rows

    def padded(self, rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ids and attention mask (1 for tokens, 0 for padding), both [B, T] int64."""
        made = self._tokenizer.pad({"input_ids": rows}, return_tensors="pt")
        return made["input_ids"], made["attention_mask"]


def batches(lengths: list[int]) -> Iterator[list[int]]:
    """Yield the numbers of texts in batches of similar lengths.

    The longest come first, so that memory runs out at once or never.
    """
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def predict(
    model: Any, tokens: Tokens, text: LabelledText, methods: list[str], progress: Callable[[float], None]
) -> dict[str, Found]:
    """Return what a model predicts of all texts, by method.

    Args:
        model: a model with `predict`, see `modeling_codes.py`.
        tokens: turns texts into tokens.
        text: the texts.
        methods: `blocks`, `linear` or both.
        progress: is called with the number of texts that have just been predicted.

    Raises:
        UserError: a chance is not a number.
    """
    top = max(*TOPS, model.blocks)
    index = {code: number for number, code in enumerate(model.codes)}
    count = len(text.languages)
    codes: dict[str, list[list[int]]] = {method: [[] for _ in range(count)] for method in methods}
    likeliest = {method: np.full((count, top), -1, np.int64) for method in methods}
    chances = {method: np.zeros((count, top)) for method in methods}
    done = 0
    stream = text.texts()
    while window := list(islice(stream, WINDOW)):
        rows = tokens.of(window)
        for batch in batches([len(row) for row in rows]):
            ids, seen = (part.to(model.device) for part in tokens.padded([rows[number] for number in batch]))
            for method in methods:
                for number, each in zip(batch, model.predict(ids, seen, top=top, method=method), strict=True):
                    codes[method][done + number] = list(dict.fromkeys(index[code] for code, _ in each.codes))
                    for place, (code, chance) in enumerate(each.likeliest):
                        likeliest[method][done + number, place] = index[code]
                        chances[method][done + number, place] = chance
            progress(len(batch))
        done += len(window)
    for method in methods:
        if wrong := int((~np.isfinite(chances[method])).any(1).sum()):
            raise UserError(
                f"{method}: the chances of the codes of {wrong} of {count} texts are not numbers: {NOT_A_NUMBER}"
            )
    return {method: Found(Sets.of(codes[method]), likeliest[method], chances[method]) for method in methods}
