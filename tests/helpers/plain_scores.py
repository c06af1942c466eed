"""Compute the scores of an evaluation without what it uses: one document part at a time, no attention mask, no batch."""

from collections.abc import Callable

import torch

MASKS, BOS, MASK, TEXT = 7, 1, 4, 16  # MASKS: passes of the masked score; TEXT: the first token that is text
Row = list[tuple[int, int, bool]]  # of each token: its number, its document, and whether it is scored


def parts(row: Row) -> list[Row]:
    """Return a row with `<s>` in front, cut before each `<s>`."""
    row = [(BOS, -1, False), *row]
    starts = [i for i, (token, _, _) in enumerate(row) if token == BOS]
    return [row[a:b] for a, b in zip(starts, [*starts[1:], len(row)], strict=True)]


def add_nats(model, shown: list[int], wanted: Row, total: list[float]) -> None:
    """Add -ln p of tokens, (position, token, document), to the documents', given the tokens that the model is shown."""
    if wanted:
        scores = model(torch.tensor([shown])).logits[0].double().log_softmax(-1)
        for position, token, document in wanted:
            total[document] -= scores[position, token].item()


def causal(model, rows_of: Callable[[int], list[Row]], documents: int, length: int) -> list[float]:
    """Return -ln p of each document, in rows of at most `length` tokens: of each token given those before it."""
    total = [0.0] * documents
    for part in (part for row in rows_of(length) for part in parts(row)):
        wanted = [(i, token, document) for i, (token, document, scored) in enumerate(part[1:]) if scored]
        add_nats(model, [token for token, _, _ in part], wanted, total)
    return total


def masked(model, rows_of: Callable[[int], list[Row]], documents: int, length: int) -> list[float]:
    """Return the same, but of each token given all others that are not hidden with it: every seventh one is."""
    total = [0.0] * documents
    for row in rows_of(length - 1):
        scored = [i for i, (_, _, counts) in enumerate(row) if counts]
        for turn in range(MASKS):
            hidden, done = set(scored[turn::MASKS]), -1
            for part in parts(row):
                wanted = [(i, token, document) for i, (token, document, _) in enumerate(part) if done + i in hidden]
                add_nats(model, [MASK if done + i in hidden else part[i][0] for i in range(len(part))], wanted, total)
                done += len(part)
    return total
