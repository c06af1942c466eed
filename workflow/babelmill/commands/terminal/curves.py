"""Draw the losses of a training as a picture of characters, for terminals.

Each character of Braille has two columns and four rows of dots, so a picture of 40 x 8 characters has 80 x 32 dots.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

COLUMNS, ROWS = 2, 4  # dots of a character
# The bit of each dot, by row and column, in the character U+2800 + bits (The Unicode Standard, block Braille Patterns).
BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
BLANK = 0x2800
MEASURED = "◆"


class Point(NamedTuple):
    """A loss: after how many steps, and in nats per target."""

    step: int
    loss: float


def curves(trained: Sequence[Point], measured: Sequence[Point], last: int, width: int, height: int) -> list[str]:
    """Draw the losses of training, in the order of their steps, as a line, and those of validation as diamonds.

    The picture ends on the right at `last`, the last step of the whole run. It is a list of `height` lines of at most
    `width` characters, with the scale on the left and the steps below; [] if there is no number to draw or no room.
    """
    points = [point for point in (*trained, *measured) if math.isfinite(point.loss)]
    if not points:
        return []
    low, high = min(point.loss for point in points), max(point.loss for point in points)
    scale = [f"{high:.2f} ", f"{low:.2f} "]
    margin = max(map(len, scale))
    wide, high_enough = width - margin, height - 1
    if wide < 8 or high_enough < 2:
        return []
    last = max(last, *(point.step for point in points))

    def place(point: Point) -> tuple[int, int]:
        """Return the dot of a point, counted from the upper left corner."""
        down = (high - point.loss) / (high - low) if high > low else 0.5
        return round(point.step / last * (wide * COLUMNS - 1)), round(down * (high_enough * ROWS - 1))

    bits = [[0] * wide for _ in range(high_enough)]
    for x, y in line([place(point) for point in trained if math.isfinite(point.loss)]):
        bits[y // ROWS][x // COLUMNS] |= BITS[y % ROWS][x % COLUMNS]
    picture = [[chr(BLANK + each) if each else " " for each in row] for row in bits]
    for x, y in (place(point) for point in measured if math.isfinite(point.loss)):
        picture[y // ROWS][x // COLUMNS] = MEASURED
    left = [scale[0], *[""] * (high_enough - 2), scale[1]]
    steps = f"{'0':<{max(2, wide - len(f'{last:,}'))}}{last:,}"[:wide]
    lines = [f"{label:>{margin}}{''.join(row)}".rstrip() for label, row in zip(left, picture, strict=True)]
    return [*lines, " " * margin + steps]


def line(dots: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join dots by straight lines, from left to right."""
    joined = list(dots[:1])
    for (x, y), (to_x, to_y) in pairwise(dots):
        length = max(abs(to_x - x), abs(to_y - y), 1)
        joined += [
            (x + round(i * (to_x - x) / length), y + round(i * (to_y - y) / length)) for i in range(1, length + 1)
        ]
    return joined
