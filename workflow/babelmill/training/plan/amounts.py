"""Define how many tokens and scores exist at once: a training and its plan must use the same numbers.

This file does not import torch, so that a login node can use it.
"""

from babelmill.config import schema

CPU_TOKENS = 2048  # tokens of a forward pass on a CPU
WHOLE_TOKENS = 16384  # tokens of a micro-batch, if processes get whole ones and train.micro_batch_tokens is not set
CHUNK = 2**26, 2**24  # scores that exist at once: on a GPU, and on a CPU (where they fit into the cache)


def whole_tokens(train: schema.Train) -> int:
    """Return the number of tokens of a micro-batch, if each process gets whole micro-batches."""
    return train.micro_batch_tokens or WHOLE_TOKENS
