"""Draw how well the probabilities of a model of labels are calibrated, and what share of its codes is right."""

from pathlib import Path
from typing import IO, Any

from babelmill.core.files import atomic_write
from babelmill.release.card.training_history import COLOURS

PICTURE = "reliability.png"
BELOW: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "ncols": 3}  # below the curves


def draw(evaluation: dict[str, Any], variant: str, name: str, file: IO[bytes]) -> None:
    """Draw a PNG of two panels.

    The left panel shows the share of texts whose most probable code is right, over the probability of this code, and
    the number of texts in each bin. The right panel shows shares of texts that are right.

    Args:
        evaluation: evaluation.json.
        variant: the variant of the weights.
        name: the model's name, for the title.
        file: the file to write to.
    """
    from matplotlib.figure import Figure

    found = evaluation["labels"]["figures"][variant]
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot([0, 1], [0, 1], color="grey", lw=1, ls="--", label="perfect calibration")
    counts = left.twinx()
    for (method, figures), colour, marker in zip(found.items(), COLOURS, "os", strict=False):
        bins, error = figures["calibration"]["bins"], figures["calibration"]["expected_error"]
        known = [entry for entry in bins if entry["texts"]]
        points = [entry["chance"] for entry in known], [entry["right"] for entry in known]
        left.plot(*points, color=colour, marker=marker, lw=1.4, label=f"{method} (error {error:.3f})")
        edges = [i / len(bins) for i in range(len(bins) + 1)]
        counts.stairs([entry["texts"] for entry in bins], edges, color=colour, alpha=0.2, fill=True)
    counts.set(ylabel="texts in the bin (areas)", ylim=(0, 2.5 * counts.get_ylim()[1]))
    left.set(title="Reliability", xlabel="probability of the most probable code", ylabel="share that is right")
    left.set(xlim=(0, 1), ylim=(0, 1.02))
    left.grid(alpha=0.3)
    left.legend(fontsize="small", **BELOW)
    _bars(right, found)
    figure.suptitle(f"{name}: {evaluation['documents']['scored']:,} validation texts")
    figure.savefig(file, format="png", dpi=120, metadata={"Software": None})


def _bars(axes: Any, found: dict[str, Any]) -> None:
    """Draw the shares of texts that are right: all codes, one of the most probable codes, the first symbols."""
    names: list[str] = []
    width = 0.8 / len(found)
    for place, ((method, figures), colour) in enumerate(zip(found.items(), COLOURS, strict=False)):
        shares = {"exact": figures["exact"]} | {f"top\n{k}": figures[f"top_{k}"] for k in (1, 3, 5)}
        shares |= {f"first\n{n}": share for n, share in enumerate(figures["digits"][:8], 1)}
        names = list(shares)
        at = [i + (place - (len(found) - 1) / 2) * width for i in range(len(names))]
        axes.bar(at, list(shares.values()), width, color=colour, label=method)
    axes.set_xticks(range(len(names)), names, fontsize="small")
    axes.set(title="Share of texts that are right", ylim=(0, 1.02))
    axes.set(xlabel="n most probable codes; first n symbols of the code")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize="small", **BELOW)


def write(folder: Path, evaluation: dict[str, Any], variant: str, name: str) -> list[str]:
    """Write the picture. Return its name in a list."""
    with atomic_write(folder / PICTURE) as file:
        draw(evaluation, variant, name, file)
    return [PICTURE]
