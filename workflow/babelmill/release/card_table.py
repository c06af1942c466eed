"""Write the tables of a model card."""

from typing import Any


def table(header: list[str], rows: list[list[Any]]) -> str:
    """Return a Markdown table, with columns of numbers aligned to the right."""
    lines = [header, ["---:" if isinstance(cell, int | float) else "---" for cell in rows[0]], *rows]
    return "\n".join("| " + " | ".join(_text(cell) for cell in line) + " |" for line in lines)


def _text(cell: Any) -> str:
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
