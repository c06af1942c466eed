"""Compute a loss of codes that does not depend on their order (OccCANINE, Dahl et al., 2024, arXiv:2402.13604).

"Farmer and fisher" has two codes, and their order has no meaning. So each of a text's k codes is compared with each of
the first k blocks that the model predicts, by the mean cross-entropy of the code's symbols. The smallest of these k
numbers is the loss of the code. The blocks after the k-th are trained to be empty.

Only the first k blocks count. In training, the decoder sees the earlier codes, so it could otherwise repeat them in a
later block. The published code divides by the largest number of codes of a text in the batch. Here a batch may be cut
between any two rows, so losses are returned per code and per row.
"""

import torch


def block_losses(logits: torch.Tensor, blocks: torch.Tensor, pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the losses of codes and of empty blocks.

    Args:
        logits: [B, n s, V], scores of the symbols of n blocks with s symbols each.
        blocks: [B, n, s] int64, the symbols of each row's codes; blocks after its last code hold only `pad`.
        pad: the symbol of empty blocks.

    Returns:
        The loss of each code, [B, n], which is 0 at empty blocks. And for each row, [B], the sum of the mean
        cross-entropies of the blocks that should be empty, divided by n.
    """
    rows, count, size = blocks.shape
    log_probabilities = logits.view(rows, count, size, -1).log_softmax(-1)
    empty = (blocks == pad).all(-1)
    with torch.no_grad():
        shape = rows, count, count, size  # predicted block, code
        index = blocks[:, None].expand(shape)[..., None]
        costs = -log_probabilities[:, :, None].expand(*shape, -1).gather(-1, index).sum((-1, -2))
        best = costs.masked_fill(empty[:, :, None], torch.inf).argmin(1)  # [rows, code]
    row, place = torch.arange(rows, device=blocks.device), torch.arange(size, device=blocks.device)
    chosen = log_probabilities[row[:, None, None], best[:, :, None], place, blocks]
    of_codes = -(chosen.mean(-1)).masked_fill(empty, 0)
    of_empty = -(log_probabilities[..., pad].mean(-1)).masked_fill(~empty, 0)
    return of_codes, of_empty.sum(1) / count
