"""How many tokens and scores exist at once: what a training and its plan have to agree on.

Without torch, so that a login node can compute with it.
"""

from babelmill.config import schema

CPU_TOKENS = 2048  # of a forward pass on a CPU
WHOLE_TOKENS = 16384  # of a micro-batch, where whole ones are dealt and train.micro_batch_tokens does not say
CHUNK = 2**26, 2**24  # scores that exist at once, on a GPU and (they fit into the cache) on a CPU


def whole_tokens(train: schema.Train) -> int:
    """Return the tokens of a micro-batch, where micro-batches are dealt to processes whole."""
    return train.micro_batch_tokens or WHOLE_TOKENS
