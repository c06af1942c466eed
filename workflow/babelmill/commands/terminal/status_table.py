"""Show how far models are as a table, one line per model."""

from babelmill.commands.progress.model_status import STATES, Status
from babelmill.core import escape
from babelmill.core.words import aligned, clock, plural

RIGHT = ("step", "loss", "tokens/s", "left", "attempt")  # columns of numbers


def status_table(statuses: list[Status], width: int) -> str:
    """Return a heading, one line per model, cut at `width` characters, without empty columns, and the sums."""
    rows = [("model", "stage", "state", "step", "loss", "tokens/s", "left", "attempt", "job", "")]
    for s in statuses:
        rows.append(
            (
                s.model,
                s.stage,
                s.state,
                "" if s.steps is None else f"{s.step:,}/{s.steps:,}",
                "" if s.loss is None else f"{s.loss:.3f}",
                "" if s.tokens_per_second is None else f"{s.tokens_per_second:,.0f}",
                "" if s.left is None else clock(s.left),
                "" if s.attempt is None else str(s.attempt),
                s.job or "",
                escape.without_keys(s.note),
            )
        )
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    rows = list(zip(*columns, strict=True))
    lines = [line[:width] for line in aligned(rows, (column[0] in RIGHT for column in columns))]
    counts = {state: sum(s.state == state for s in statuses) for state in ("converted", *STATES)}
    lines.append(f"{plural(len(statuses), 'model')}: " + ", ".join(f"{n} {state}" for state, n in counts.items() if n))
    shown = ("failed", "stopped", *(["running"] if len(statuses) == 1 else []))
    lines += [f"{s.model}: {s.log}" for s in statuses if s.state in shown and s.log]
    return "\n".join(lines)
