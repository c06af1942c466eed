"""Compare replicas: processes that each have all weights, which should be the same to the last bit."""

from collections import Counter

from babelmill.core.files import UserError
from babelmill.runtime.processes import Processes


def refuse_others(processes: Processes, checksums: list[int]) -> None:
    """Raise an error that names the processes whose weights differ from those of the majority.

    Args:
        processes: the processes.
        checksums: checksum of the weights of each process.

    Raises:
        UserError: the processes do not all have the same weights.
    """
    usual, times = Counter(checksums).most_common(1)[0]
    odd = [rank for rank, checksum in enumerate(checksums) if checksum != usual or 2 * times <= len(checksums)]
    if len(set(checksums)) > 1:
        raise UserError(
            f"the weights of {' or '.join(map(processes.describe, odd))} differ from those of the others: its GPU or"
            " its memory may be faulty, or its machine may be of another kind; run the workflow again without this"
            " machine, and it continues from the last checkpoint"
        )
