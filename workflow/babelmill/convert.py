"""Stage `convert`: the exported folder and its model card become the deliverable, `converted/{model}`.

    python -m babelmill.convert --settings results/settings/eng/convert.json --export results/exports/eng \\
        --evaluation results/evaluations/eng --corpora results/corpora/eng --tokenizer results/tokenizers/eng \\
        --model results/models/eng --out converted/eng

The card says only what a stage has measured or its user has declared. The folder is built beside its place and renamed
into it, with a manifest over every file.
"""

import argparse
import json
import logging
import sys
from importlib import metadata
from pathlib import Path

import pandas as pd

from babelmill import __version__, card, config, manifest, stage
from babelmill.files import atomic_folder, atomic_write, copy_file, read_json, sha256

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors")


def read_metrics(path: Path) -> pd.DataFrame:
    """metrics.jsonl as a table, one row a line."""
    with open(path, encoding="utf-8") as file:
        return pd.DataFrame([json.loads(line) for line in file])


def training_hours(metrics: pd.DataFrame) -> float:
    """Hours of training steps, over all attempts: tokens of each logged window over its tokens a second."""
    lines = metrics[metrics["kind"] == "train"]
    return float((lines["tokens"].diff().fillna(lines["tokens"]) / lines["tokens_per_second"]).sum() / 3600)


def draw_curve(metrics: pd.DataFrame, file) -> None:
    """A PNG of the loss by step: training by objective, validation of last and averaged weights."""
    import matplotlib

    matplotlib.use("Agg")
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    from matplotlib import pyplot

    train, validation = (metrics[metrics["kind"] == kind] for kind in ("train", "validation"))
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for column, label in (("loss_masked", "masked"), ("loss_causal", "causal")):
        if train[column].notna().any():
            axes.plot(train["step"], train[column].astype(float), linewidth=1, label=f"training, {label}")
    axes.plot(validation["step"], validation["loss"], "o-", markersize=3, label="validation, last weights")
    axes.plot(validation["step"], validation["ema_loss"], "o-", markersize=3, label="validation, averaged weights")
    axes.set(xlabel="step", ylabel="cross-entropy (nats a target)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file, format="png", dpi=120, metadata={"Software": None})
    pyplot.close(figure)


def convert(args: argparse.Namespace) -> None:
    """Verify what is read, draw, write the card, and put the folder into its place."""
    settings = config.read_settings(args.settings, "convert")
    export = manifest.verify(args.export)
    manifest.verify(args.evaluation, "evaluation.json")
    model = manifest.verify(args.model, "metrics.jsonl")
    manifest.verify_upstream(args.evaluation, args.export, *args.corpora)
    manifest.verify_upstream(args.export, args.model, args.tokenizer)
    evaluation = read_json(args.evaluation / "evaluation.json")
    metrics = read_metrics(args.model / "metrics.jsonl")
    facts = {
        "evaluation": evaluation,
        "corpora": {folder.name: manifest.read(folder) for folder in args.corpora},
        "export": export,
        "model": model,
        "hours": training_hours(metrics),
        "code": {name: entry["sha256"] for name, entry in export["files"].items() if name.endswith(".py")},
        "versions": {"babelmill": __version__} | {name: metadata.version(name) for name in PACKAGES},
    }
    with atomic_folder(args.out) as folder:
        for name in export["files"]:
            copy_file(args.export / name, folder / name)
        with atomic_write(folder / "training_curve.png") as file:
            draw_curve(metrics, file)
        with atomic_write(folder / "README.md", "w") as file:
            file.write(card.render(settings, facts))
        upstream = [args.export, args.evaluation, args.model, args.tokenizer, *args.corpora]
        files = [*export["files"], "training_curve.png", "README.md"]
        made_with = {path.as_posix(): sha256(path) for path in args.made_with}
        manifest.write(folder, settings, files, upstream, {"evaluation": evaluation, "made_with": made_with})


def main() -> int:
    """The command."""
    parser = stage.arguments(__doc__)
    parser.add_argument("--export", required=True, type=stage.folder, help="the exported folder")
    parser.add_argument("--evaluation", required=True, type=stage.folder, help="folder of its evaluation")
    parser.add_argument("--corpora", required=True, type=stage.folder, nargs="+", help="a folder for each language")
    parser.add_argument("--tokenizer", required=True, type=stage.folder, help="the tokenizer's folder")
    parser.add_argument("--model", required=True, type=stage.folder, help="the trained model's folder")
    parser.add_argument("--made-with", default=[], type=Path, nargs="+", help="settings files of the stages before")
    parser.add_argument("--out", required=True, type=Path, help="converted/{model}")
    return stage.run(convert, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
