"""Compute the scores of an evaluation without what it uses: one window at a time, no attention mask, no batch."""

import torch

MASKS, BOS, MASK, TEXT = 7, 1, 4, 16  # MASKS: passes of the masked score; TEXT: the first token that is text
Document = list[tuple[int, bool]]  # of each token after `<s>`: its number, and whether it is scored


def add_nats(model, shown: list[int], wanted: list[tuple[int, int]]) -> float:
    """Return -ln p of tokens, (position, token), given the tokens that the model is shown."""
    if not wanted:
        return 0.0
    scores = model(torch.tensor([shown])).logits[0].double().log_softmax(-1)
    return -sum(scores[position, token].item() for position, token in wanted)


def windows(document: Document, length: int) -> list[Document]:
    """Return a document in windows of `length` tokens, each with `<s>` in front."""
    return [[(BOS, False), *document[i : i + length - 1]] for i in range(0, len(document), length - 1)]


def causal(model, documents: list[Document], length: int) -> list[float]:
    """Return -ln p of each document: of each token given those before it."""
    total = []
    for document in documents:
        total.append(0.0)
        for window in windows(document, length):
            wanted = [(i, token) for i, (token, scored) in enumerate(window[1:]) if scored]
            total[-1] += add_nats(model, [token for token, _ in window[:-1]], wanted)
    return total


def masked(model, documents: list[Document], length: int) -> list[float]:
    """Return the same, but of each token given all others that are not hidden with it: every seventh one is."""
    total = []
    for document in documents:
        total.append(0.0)
        for window in windows(document, length):
            places = [i for i, (_, scored) in enumerate(window) if scored]
            for turn in range(MASKS):
                hidden = places[turn::MASKS]
                shown = [MASK if i in hidden else token for i, (token, _) in enumerate(window)]
                total[-1] += add_nats(model, shown, [(i, window[i][0]) for i in hidden])
    return total
