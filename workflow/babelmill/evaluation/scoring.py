"""Score a text with an exported model: sum the negative log-likelihoods of each document's tokens, each token once.

The token stream is cut into rows as in training. An exported model attends across `<s>`, so the rows are cut again
where documents begin. These parts are batched by length: the parts of all rows and, if a text is scored in several
passes, of all passes. Special tokens and prompts are only context and are not scored. In a text with prompts, a
document that fits into a row is not cut, so that every token of a response is predicted with its whole prompt.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from babelmill.tokens.vocabulary import Vocabulary

BATCH_TOKENS = {"cpu": 2048, "cuda": 65536}


@dataclass(frozen=True)
class ScoringRows:
    """Rows to score, [rows, length] int64 arrays."""

    inputs: np.ndarray  # what the model is given where nothing is hidden
    targets: np.ndarray  # the token to score at each position
    turns: np.ndarray  # the pass in which a position is scored, -1 if never
    documents: np.ndarray  # the number of the document that a position's target belongs to
    hides: bool  # whether the tokens that are scored in a pass are hidden from the model
    # The number of passes of `diffusion_rows`, each of which hides a random part of the positions with turn 0; 0 for
    # other rows.
    samples: int = 0


class ScoringStream(NamedTuple):
    """A stream of documents to score."""

    tokens: np.ndarray  # [tokens] ids
    prompts: np.ndarray | None = None  # [tokens] bool, which tokens belong to prompts; None if there are no prompts

    def is_text(self, vocabulary: Vocabulary) -> np.ndarray:
        """Return which tokens are scored: [tokens] bool."""
        text = ~vocabulary.is_special[self.tokens]
        return text if self.prompts is None else text & ~self.prompts


class DocumentPart(NamedTuple):
    """The part of a document that lies in a row, from `start` up to but not including `end`, in the pass `turn`."""

    row: int
    start: int
    end: int
    turn: int

    @property
    def length(self) -> int:
        return self.end - self.start


def places(stream: ScoringStream, length: int, vocabulary: Vocabulary) -> np.ndarray:
    """Return the places of a stream's tokens in rows of `length`, counted through all rows: [tokens] int64.

    With prompts, a document that does not fit into the rest of a row begins in the next row.
    """
    everywhere = np.arange(len(stream.tokens))
    if stream.prompts is None:
        return everywhere
    begins = np.flatnonzero(stream.tokens == vocabulary.bos)
    sizes, moved, free = np.diff(begins, append=len(everywhere)), np.zeros(len(begins), np.int64), 0
    for document, size in enumerate(sizes.tolist()):
        here = (begins[document] + free) % length
        if here + size > length:
            free += -here % length
        moved[document] = free
    return everywhere + np.repeat(moved, sizes)


def cut(values: np.ndarray, where: np.ndarray, length: int, filling: int) -> np.ndarray:
    """Return the values of tokens as rows, [rows, length] int64: at the places `where`, and `filling` elsewhere."""
    rows = np.full((-(-(int(where[-1]) + 1) // length), length), filling, np.int64)
    rows.reshape(-1)[where] = values
    return rows


def with_bos(rows: np.ndarray, bos: int) -> np.ndarray:
    """Put `<s>` before each row: [rows, length] -> [rows, length + 1]."""
    return np.concatenate([np.full((len(rows), 1), bos), rows], 1)


def numbered(tokens: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """Return the number of the document that each token of a stream belongs to, counted from 0: [tokens]."""
    return np.cumsum(tokens == vocabulary.bos) - 1


def causal_rows(stream: ScoringStream, length: int, vocabulary: Vocabulary) -> ScoringRows:
    """Return rows as in training: `<s>` and length - 1 tokens are the input, all `length` tokens are the targets."""
    where = places(stream, length, vocabulary)
    targets = cut(stream.tokens, where, length, vocabulary.pad)
    inputs = with_bos(targets, vocabulary.bos)[:, :-1]
    turns = cut(stream.is_text(vocabulary), where, length, 0) - 1
    return ScoringRows(inputs, targets, turns, cut(numbered(stream.tokens, vocabulary), where, length, 0), hides=False)


def masked_rows(stream: ScoringStream, length: int, masks: int, vocabulary: Vocabulary) -> ScoringRows:
    """Return rows of `<s>` and length - 1 tokens, scored in `masks` passes; each hides every `masks`-th token of text.

    The scores at a position are for the token at it (`logits_alignment` "mlm"), so the row holds all tokens to score.
    """
    where = places(stream, length - 1, vocabulary)
    targets = with_bos(cut(stream.tokens, where, length - 1, vocabulary.pad), vocabulary.bos)
    documents = with_bos(cut(numbered(stream.tokens, vocabulary), where, length - 1, 0), 0)
    text = with_bos(cut(stream.is_text(vocabulary), where, length - 1, 0), 0).astype(bool)
    turns = np.where(text, (np.cumsum(text, 1) - 1) % masks, -1)
    return ScoringRows(targets, targets, turns, documents, hides=True)


def diffusion_rows(stream: ScoringStream, length: int, samples: int, vocabulary: Vocabulary) -> ScoringRows:
    """Return rows as `masked_rows` does; each of `samples` passes hides a part of the text, see `hidden_at_once`."""
    rows = masked_rows(stream, length, 1, vocabulary)
    return replace(rows, samples=samples)


def hidden_at_once(rows: ScoringRows, part: DocumentPart) -> tuple[np.ndarray, float]:
    """Return which positions of a part are scored (and hidden) in its pass, [length] bool, and the weight of each.

    For `diffusion_rows`, sample j of n hides k = 1 + floor(t e) random tokens of the part's e tokens of text, where
    t = (j + u) / n, with one random u for all samples (stratified). The cross-entropy of each hidden token has the
    weight e / (k n). The sum over samples is then an unbiased estimate of the negative evidence lower bound (LLaDA,
    arXiv:2502.09992, equations 5 and 6). For other rows, the weight is 1.
    """
    turns = rows.turns[part.row, part.start : part.end]
    if not rows.samples:
        return turns == part.turn, 1.0
    text = np.flatnonzero(turns == 0)
    place = part.row, part.start  # they seed the random numbers, so that a part is always hidden in the same ways
    time = (part.turn + np.random.default_rng(place).random()) / rows.samples
    count = min(len(text), 1 + int(time * len(text)))
    order = np.random.default_rng((*place, part.turn + 1)).permutation(len(text))
    chosen = np.zeros(part.length, bool)
    chosen[text[order < count]] = True
    return chosen, len(text) / count / rows.samples


def parts(rows: ScoringRows, vocabulary: Vocabulary) -> list[DocumentPart]:
    """Return the documents' parts in the rows, once per pass that scores tokens of the part, the shortest first."""
    found = []
    for row, (inputs, turns) in enumerate(zip(rows.inputs, rows.turns, strict=True)):
        starts = np.flatnonzero(inputs == vocabulary.bos)
        for start, end in zip(starts, [*starts[1:], np.count_nonzero(inputs != vocabulary.pad)], strict=True):
            passes = np.unique(turns[start:end]).tolist()
            if rows.samples and passes[-1] == 0:
                passes = range(rows.samples)
            found += [DocumentPart(row, int(start), int(end), turn) for turn in passes if turn >= 0]
    return sorted(found, key=lambda part: part.length)


def batches(found: list[DocumentPart], size: int) -> Iterator[list[DocumentPart]]:
    """Yield parts in batches of at most `size` positions, padding included; a longer part is a batch of its own."""
    batch: list[DocumentPart] = []
    for part in found:
        if batch and (len(batch) + 1) * part.length > size:
            yield batch
            batch = []
        batch.append(part)
    if batch:
        yield batch


def arrays(rows: ScoringRows, batch: list[DocumentPart], vocabulary: Vocabulary) -> tuple[np.ndarray, ...]:
    """Return inputs, targets, whether each target is scored, its document and its weight: [parts, longest part]."""
    shape = len(batch), max(part.length for part in batch)
    inputs, targets = np.full(shape, vocabulary.pad), np.full(shape, vocabulary.pad)
    scored, documents, weights = np.zeros(shape, bool), np.zeros(shape, np.int64), np.zeros(shape)
    for i, part in enumerate(batch):
        row, start, end, _ = part
        here = slice(0, end - start)
        inputs[i, here] = rows.inputs[row, start:end]
        targets[i, here] = rows.targets[row, start:end]
        scored[i, here], weights[i] = hidden_at_once(rows, part)
        documents[i, here] = rows.documents[row, start:end]
    if rows.hides:
        inputs[scored] = vocabulary.mask
    return inputs, targets, scored, documents, weights


@torch.inference_mode()
def nats(
    model: torch.nn.Module, rows: ScoringRows, vocabulary: Vocabulary, progress: Callable[[float], None]
) -> np.ndarray:
    """Return the weighted sum of -ln p over the scored targets of each document: [documents] float64.

    `progress` is called with the number of scored targets of each batch.
    """
    device = next(model.parameters()).device
    total = torch.zeros(int(rows.documents.max()) + 1, dtype=torch.float64, device=device)
    for batch in batches(parts(rows, vocabulary), BATCH_TOKENS[device.type]):
        inputs, targets, scored, documents, weights = (
            torch.from_numpy(array).to(device) for array in arrays(rows, batch, vocabulary)
        )
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            given = vocabulary.given(inputs)
            logits = model(input_ids=given, attention_mask=inputs != vocabulary.pad).logits
        losses = F.cross_entropy(logits[scored].float(), targets[scored], reduction="none")
        total.index_add_(0, documents[scored], losses.double() * weights[scored])
        progress(int(scored.sum()))
    return total.cpu().numpy()
