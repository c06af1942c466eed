"""Read the ends of the files that a stage writes while it runs: its log, and the metrics of a training."""

import json
from pathlib import Path
from typing import Any

TAIL = 2**16  # bytes read from the end of a file; a line of metrics has less than 2,000


def tail(path: Path) -> list[str]:
    """Return the last whole lines of a file; [] if there is no file."""
    try:
        with open(path, "rb") as file:
            start = max(0, path.stat().st_size - TAIL)
            file.seek(start)
            return file.read().decode("utf-8", errors="replace").splitlines()[start > 0 :]
    except OSError:
        return []


def metrics(run: Path) -> list[dict[str, Any]]:
    """Return the last lines of the metrics in a folder; the very last one may be only half written."""
    return [json.loads(line) for line in tail(run / "metrics.jsonl") if line.endswith("}")]


def last_words(log: Path) -> tuple[bool, str]:
    """Return whether a log contains an error, and the message of that error, or else the last line."""
    lines = [line for line in tail(log) if line.strip()]
    failed = [line for line in lines if "error: " in line]
    if not failed:
        return False, lines[-1] if lines else ""
    line = lines[-1] if "error: unexpected" in failed[-1] else failed[-1].partition("error: ")[2]
    return True, line.strip()
