"""Compute the shape of a run: its steps, their rows and learning rates, sizes of passes, and shares of its languages.

Only the `train` settings and the number of tokens are needed, not torch, so a login node can describe a run in a
moment.
"""

import math
from bisect import bisect_left
from fractions import Fraction

import numpy as np

from babelmill.config import schema
from babelmill.core.files import UserError

CPU_TOKENS = 2048  # most tokens of a forward pass on a CPU: more are not faster
WHOLE_TOKENS = 16384  # tokens of a micro-batch, if processes get whole ones and train.micro_batch_tokens is not set
CHUNK = 2**26, 2**24  # scores that exist at once: on a GPU, and on a CPU (where they fit into the cache)
PERIOD = 2**16  # language proportions are multiples of 1 / PERIOD, so that their schedule repeats
VALIDATED_SHARE = 0.05  # of the tokens between two validations: how many a validation measures at most
LEAST_VALIDATED = 50_000  # tokens that each validation may measure


def learning_rate_factor(step: int, steps: int, warmup: float, cooldown: float, floor: float) -> float:
    """Return the learning rate at a step, as a share of the highest one.

    The schedule is the published one: linear warm-up, cosine down to `floor` (the cosine would reach it at the last
    step), linear cool-down to 0. `warmup` and `cooldown` are shares of all steps.
    """
    rising, falling = int(steps * warmup), int(steps * cooldown)
    if step < rising:
        return step / rising
    if step >= steps - falling:
        return floor * (steps - step) / falling
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * (step - rising) / (steps - rising)))


def mean_from(train: schema.Train, steps: int) -> int | None:
    """Return the first step after which the weights are part of the average of the last ones; None without one."""
    return steps - max(1, round(train.average_last * steps)) if train.average_last else None


def phase_starts(train: schema.Train, steps: int) -> list[int]:
    """Return the first step of each phase: ceil(share * steps), where the share is the exact decimal as written."""
    return [math.ceil(Fraction(str(share)) * steps) for share in train.phase_starts]


def rows_by_step(train: schema.Train, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the sequence length and the number of rows of each of `steps` steps, two [steps] int64 arrays.

    The batch grows linearly from 1 / batch_reduction of the global batch to all of it, and is rounded to whole rows.
    """
    step = np.arange(steps)
    lengths = np.array(train.sequence_lengths)[np.searchsorted(phase_starts(train, steps), step, side="right") - 1]
    growth = (1 / train.batch_reduction) * (1 - step / steps) + step / steps
    return lengths, np.maximum(1, np.floor(train.global_batch_tokens / lengths * growth + 0.5).astype(np.int64))


def validation_steps(run: schema.Run, steps: int) -> list[int]:
    """Return after which steps a run validates: the last one is among them."""
    every = run.validate_every or steps
    return [*range(every, steps, every), steps]


def validation_bound(run: schema.Run, train: schema.Train, steps: int) -> int:
    """Return the most tokens that a validation of a run of so many steps measures.

    A validation token takes about as long as one or two of training: it is measured for each kind of rows, with the
    weights and with their average.
    """
    if run.validation_tokens != "auto":
        return run.validation_tokens
    between = min(run.validate_every or steps, steps) * train.global_batch_tokens
    return max(LEAST_VALIDATED, int(VALIDATED_SHARE * between))


def micro_batch_tokens(run: schema.Run, on_gpu: bool) -> int:
    """Return the most tokens of a forward pass, where its size is no part of the result."""
    return run.micro_batch_tokens if on_gpu else min(run.micro_batch_tokens, CPU_TOKENS)


def whole_tokens(train: schema.Train) -> int:
    """Return the number of tokens of a micro-batch, if each process gets whole micro-batches."""
    return train.micro_batch_tokens or WHOLE_TOKENS


def fewest_steps(train: schema.Train, wanted: float) -> int:
    """Return the smallest number of steps whose rows have `wanted` tokens; a UserError says that it is too large."""

    def tokens_of(steps: int) -> int:
        lengths, rows = rows_by_step(train, steps)
        return int((lengths * rows).sum())

    mean = train.global_batch_tokens * (1 + 1 / train.batch_reduction) / 2  # tokens of a step; rounding takes a third
    most = min(schema.MAX_STEPS, 2 + int(2 * wanted / mean))
    steps = 1 + bisect_left(range(1, most + 1), wanted, key=tokens_of)
    if steps > schema.MAX_STEPS:
        length = f"train.max_words = {train.max_words:,}" if train.max_words else f"train.epochs = {train.epochs:g}"
        raise UserError(
            f"{length} ({wanted:,.0f} tokens) in batches of train.global_batch_tokens = {train.global_batch_tokens}"
            f" are more than {schema.MAX_STEPS:,} steps; lower the one or raise the other"
        )
    return steps


def whole_run(train: schema.Train, tokens: int, words_per_token: float, least: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the sequence length and the number of rows of each step of a run, two [steps] int64 arrays.

    A run of `max_words` ends with fewer rows.

    Args:
        train: the section `train`.
        tokens: the number of tokens of the text.
        words_per_token: the mean number of words per token of the run.
        least: see `end_with`.
    """
    if train.max_steps is not None:
        return rows_by_step(train, train.max_steps)
    wanted = train.max_words / words_per_token if train.max_words else train.epochs * tokens
    lengths, rows = rows_by_step(train, fewest_steps(train, wanted))
    return lengths, end_with(rows, lengths, wanted, least) if train.max_words else rows


def end_with(rows: np.ndarray, lengths: np.ndarray, wanted: float, least: int) -> np.ndarray:
    """Return the rows of each step, fewer at the end, so that they have `wanted` tokens, or less than a row more.

    `least`: the smallest number of rows of a step. Where the last step would have fewer, the steps before lose some.
    """
    rows = rows.copy()
    for step in range(len(rows) - 1, -1, -1):
        surplus = int(((lengths * rows).sum() - wanted) // lengths[step])
        rows[step] -= min(max(surplus, 0), max(rows[step] - least, 0))
        if surplus <= 0 or rows[step] > least:
            break
    return rows


def proportions(tokens: list[int], weights: float) -> np.ndarray:
    """Return how many of PERIOD rows belong to each language, at least one each, [languages] int64.

    Args:
        tokens: size of each language's stream.
        weights: exponent of the size (Conneau et al., 2020: 0.3).
    """
    size = np.array(tokens, dtype=np.float64) ** weights
    exact = size / size.sum() * PERIOD
    whole = np.maximum(1, np.floor(exact)).astype(np.int64)
    missing = PERIOD - int(whole.sum())
    if missing > 0:  # largest remainders first
        whole[np.argsort(whole - exact, kind="stable")[:missing]] += 1
    whole[whole.argmax()] += min(missing, 0)  # take back the rows that the smallest languages got, so that each has one
    return whole
