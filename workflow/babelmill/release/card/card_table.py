"""Write the tables of a model card."""

from typing import Any

from babelmill.core.escape import cell


def table(header: list[str], rows: list[list[Any]]) -> str:
    """Return a Markdown table, with columns of numbers aligned to the right.

    Text is escaped unless it is `escape.Markdown`.
    """
    aligned = ["---:" if isinstance(value, int | float) else "---" for value in rows[0]]
    lines = [[cell(name) for name in header], aligned, *([cell(_text(value)) for value in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _text(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
