"""Compute the scores of an evaluation without what it uses: one window at a time, no attention mask, no batch."""

import functools

import torch

MASKS, BOS, MASK, TEXT = 7, 1, 4, 16  # MASKS: passes of the masked score; TEXT: the first token that is text
Document = list[tuple[int, bool]]  # of each token after `<s>`: its number, and whether it is scored


def nats(model, documents: list[Document], length: int, hide: bool) -> list[float]:
    """Return -ln p of each document, read in windows of `length` tokens, each with `<s>` in front.

    Each token is predicted from those before it; with `hide`, from all others that are not hidden with it: every
    seventh one is.
    """
    total = []
    for document in documents:
        total.append(0.0)
        for start in range(0, len(document), length - 1):
            window = [(BOS, False), *document[start : start + length - 1]]
            places = [place for place, (_, scored) in enumerate(window) if scored]
            for asked in [places[turn::MASKS] for turn in range(MASKS)] if hide else [places]:
                shown = [MASK if hide and place in asked else token for place, (token, _) in enumerate(window)]
                scores = model(torch.tensor([shown])).logits[0].double().log_softmax(-1)
                total[-1] -= sum(scores[place - (not hide), window[place][0]].item() for place in asked)
    return total


causal, masked = (functools.partial(nats, hide=hide) for hide in (False, True))
