"""Draw the validation losses of recipes over the steps of their runs: a thin line per seed, a thick one for the mean.

    python benchmarks/learning_curves.py FOLDER --panel "ten epochs" "published=big_ten_base_*" "tuned=big_ten_muon_*"

FOLDER is that of a workflow, which may still be running. A panel has a title and
recipes, each with a label and a pattern of its models' names; give `--panel` again for each other panel. The picture
has a row for causal and one for masked prediction, and a dotted line at the last mean loss of a panel's first recipe.
The command prints for each recipe how many seeds have ended, their last loss (mean and range), and after which share of
the steps the mean is as low as the first recipe's last one (linear between validations). Runs that have not ended are
drawn, but count in no mean.
"""

import argparse
import itertools
import json
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("svg")
from matplotlib import pyplot as plt

COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"]  # a colour-blind reader tells them apart
OBJECTIVES = ("causal", "masked")


def runs(folder: Path, pattern: str) -> list[tuple[list[dict], bool]]:
    """Return the validations of each run of the models that match, and whether the run has ended."""
    found = []
    for training in sorted(folder.glob(f"results/of/{pattern}/train")):  # links to results
        record = folder / "results/checkpoints" / training.readlink().name / "metrics.jsonl"
        if record.is_file():
            lines = map(json.loads, record.read_text(encoding="utf-8").splitlines())
            validations = [line for line in lines if line["kind"] == "validation" and line["step"]]
            ended = (training / "manifest.json").is_file()
            if ended and not validations:
                raise SystemExit(f"error: {record} has no validation (run.validate_every): leave its model out")
            found.append((validations, ended))
    if not found:
        raise SystemExit(f"error: {folder}/results/checkpoints has no training of a model {pattern}")
    return found


def share_to_reach(steps: np.ndarray, losses: np.ndarray, wanted: float) -> str:
    """Return after which share of the steps the loss is as low as `wanted`, as text."""
    below = np.flatnonzero(losses <= wanted)
    if not len(below):
        return "never"
    if (first := below[0]) == 0:
        return f"at most {steps[0] / steps[-1]:.2f}"
    between = (losses[first - 1] - wanted) / (losses[first - 1] - losses[first])
    return f"{(steps[first - 1] + between * (steps[first] - steps[first - 1])) / steps[-1]:.2f}"


def draw(axis, title: str, recipes: dict[str, list[tuple[list[dict], bool]]], objective: str) -> None:
    """Draw the runs of a panel for an objective, and print their lines of the table."""
    level = None
    for colour, (label, found) in zip(itertools.cycle(COLOURS), recipes.items(), strict=False):
        ended = []
        for validations, whole in found:
            steps, losses = ([line[key] for line in validations] for key in ("step", f"loss_{objective}"))
            axis.plot(steps, losses, color=colour, linewidth=0.6, alpha=0.6)
            if whole:
                ended.append((steps, losses))
        if not ended:
            axis.plot([], [], color=colour, linewidth=2, label=f"{label} (running)")
            continue
        if len({tuple(steps) for steps, _ in ended}) > 1:
            raise SystemExit(f"error: {label}: seeds were validated at different steps; give each its own label")
        steps, mean = np.array(ended[0][0]), np.mean([losses for _, losses in ended], 0)
        axis.plot(steps, mean, color=colour, linewidth=2, label=f"{label}, {len(ended)} seed{'s' * (len(ended) > 1)}")
        share = "" if level is None else share_to_reach(steps, mean, level)
        level = mean[-1] if level is None else level
        last = [losses[-1] for _, losses in ended]
        numbers = f"{mean[-1]:.3f} ({min(last):.3f} to {max(last):.3f})"
        print(f"| {title} | {objective} | {label} | {len(ended)} | {steps[-1]} | {numbers} | {share} |")
    if level is not None:
        axis.axhline(level, color="grey", linestyle=":", linewidth=1)
    axis.set(title=f"{title}, {objective}")
    axis.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Draw and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--panel", nargs="+", action="append", required=True, metavar="TITLE LABEL=MODELS")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("recipes.svg"))
    args = parser.parse_args()
    plt.rcParams |= {"svg.hashsalt": "recipes", "svg.fonttype": "none"}  # the same file from the same numbers
    size = (5 * len(args.panel), 8)
    figure, axes = plt.subplots(2, len(args.panel), figsize=size, sharex="col", squeeze=False, layout="constrained")
    print(f"| panel | objective | recipe | seeds | steps | last loss | as low as the first after |\n{'|---' * 7}|")
    for column, (title, *given) in enumerate(args.panel):
        if not given or not all("=" in each for each in given):
            parser.error(f"--panel {title!r}: give recipes after the title, such as published=big_ten_base_*")
        recipes = {label: runs(args.folder, models) for label, models in (each.split("=", 1) for each in given)}
        for row, objective in enumerate(OBJECTIVES):
            draw(axes[row, column], title, recipes, objective)
        axes[1, column].legend(edgecolor="none", loc="upper center", bbox_to_anchor=(0.5, -0.15))  # of both rows
        axes[1, column].set_xlabel("step")
    for axis in axes[:, 0]:
        axis.set_ylabel("validation loss, nats per token")
    figure.savefig(args.out, metadata={"Date": None})


if __name__ == "__main__":
    main()
