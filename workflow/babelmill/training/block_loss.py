"""The loss of a sequence of codes that does not depend on their order (OccCANINE, Dahl et al., 2024, arXiv:2402.13604).

"Farmer and fisher" has two codes, and which comes first means nothing. So each of a text's k codes is compared with
each of the first k blocks that the model predicts, and its loss is the smallest one: the mean cross-entropy of its
symbols. The blocks after the k-th are pushed towards being empty.

Only the first k blocks count, since a decoder that is shown the codes that came before could otherwise repeat them in a
later block, where it knows them. The published code divides by the most codes that a text of the same batch has; here a
batch may be cut anywhere, so the parts are returned by code and by row.
"""

import torch


def block_losses(logits: torch.Tensor, blocks: torch.Tensor, pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the losses of codes and of empty blocks.

    Args:
        logits: [B, n s, V], of the symbols of n blocks of s.
        blocks: [B, n, s] int64, the symbols of each row's codes; after its last code all is `pad`.
        pad: the symbol of empty blocks.

    Returns:
        [B, n], the loss of each code, 0 where there is none, and [B], the mean over n blocks of the cross-entropy of
        those that should be empty.
    """
    rows, count, size = blocks.shape
    log_probabilities = logits.view(rows, count, size, -1).log_softmax(-1)
    empty = (blocks == pad).all(-1)
    with torch.no_grad():
        shape = rows, count, count, size  # block that is predicted, code
        index = blocks[:, None].expand(shape)[..., None]
        costs = -log_probabilities[:, :, None].expand(*shape, -1).gather(-1, index).sum((-1, -2))
        best = costs.masked_fill(empty[:, :, None], torch.inf).argmin(1)  # [rows, code]
    row, place = torch.arange(rows, device=blocks.device), torch.arange(size, device=blocks.device)
    chosen = log_probabilities[row[:, None, None], best[:, :, None], place, blocks]
    of_codes = -(chosen.mean(-1)).masked_fill(empty, 0)
    of_empty = -(log_probabilities[..., pad].mean(-1)).masked_fill(~empty, 0)
    return of_codes, of_empty.sum(1) / count
