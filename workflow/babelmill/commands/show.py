"""Show the scores of a converted model, and text that it completes.

    babelmill show converted/eng
    babelmill show converted/eng --masked "The cat <mask> on the mat." --prompt "The cat"

Only the converted folder is read, with the classes that its users load. So this is also the quickest check that the
folder works where it is.
"""

import argparse
import os
from pathlib import Path

from babelmill.core import manifest
from babelmill.core.files import UserError, read_json
from babelmill.core.stage_entry import utf8
from babelmill.release.elsewhere.given_model import converted_folder, meant


def figures(folder: Path) -> str:
    """Return the scores of each variant, with standard errors, next to those of a unigram model."""
    from babelmill.evaluation.metrics import metrics_of, shown, units
    from babelmill.release.card.card import scored_text

    evaluation = manifest.read(folder)["figures"]["evaluation"]
    metrics, measured = metrics_of(evaluation), f"  {units(evaluation)} of {scored_text(evaluation)}"
    if "labels" in evaluation:
        frequent = {"always the most frequent code": evaluation["most_frequent"]}
        lines = [
            f"    {name:<6} {', '.join(f'{metric} {shown(score)}' for metric, score in scores.items())}"
            for name, scores in (evaluation["variants"] | frequent).items()
        ]
        return "\n".join([measured, *lines])
    unigram = evaluation["unigram"]
    lines = [f"{measured} (a unigram model needs {shown(unigram)})"]
    for variant, scores in evaluation["variants"].items():
        found = []
        for name, score in scores.items():
            below = 1 - score["value"] / unigram["value"]
            beside = f" ({abs(below):.0%} {'below' if below >= 0 else 'above'} that)"
            found.append(f"{name} {shown(score, metrics[name])}{beside if metrics[name].perplexity else ''}")
        lines.append(f"    {variant:<6} {', '.join(found)}")
    return "\n".join(lines)


def suites(folder: Path) -> str:
    """Return the scores on the suites, "" if there are none."""
    from babelmill.release.card.card import SuiteScores, percent

    scored = [
        SuiteScores(name, found, []) for name, found in manifest.read(folder)["figures"].get("scores", {}).items()
    ]
    lines = [
        f"    {suite.title} {code}: {', '.join(f'{name} {percent(suite.score(code, name))}' for name in suite.methods)}"
        for suite in scored
        for code in suite.found["languages"]
    ]
    measures = sorted({f"{suite.title}: {suite.measure} x 100" for suite in scored if suite.measure})
    what = "minimal pairs" if all(suite.kind == "pairs" for suite in scored) else "suites"
    title = "; ".join([f"  {what}: % that are right, with 95 % intervals", *measures])
    return "\n".join([title, *lines] if lines else [])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add("folder", type=converted_folder, metavar="FOLDER", help="a model, such as converted/eng (or just eng)")
    add("--masked", type=utf8, metavar="TEXT", help="let the model fill each <mask> in this text")
    add("--prompt", type=utf8, metavar="TEXT", help="let the model continue this text")
    add("--steps", type=int, metavar="N", help="masked diffusion: use N passes (default: one per token); few are fast")


def run(args: argparse.Namespace) -> None:
    """Print the figures of a converted model, a filled mask and a continuation."""
    if not args.folder.is_dir():
        expected = "; a converted model is expected, such as converted/eng"
        raise UserError(f"{args.folder}: no such folder{meant(args.folder.name) or expected}")
    if "evaluation" not in manifest.verify(args.folder)["figures"]:
        raise UserError(f"{args.folder}: not a converted model; name a folder such as converted/eng")
    print(args.folder.resolve())
    print(figures(args.folder))
    if pairs := suites(args.folder):
        print(pairs)
    tried = args.masked is not None or args.prompt is not None
    if tried and not any(args.folder.glob("model*.safetensors")):
        raise UserError(
            f"{args.folder} holds only adapters (export.adapter: only), and its card says how to load them; to try the"
            " model here, set export.adapter: also"
        )
    if tried and "labels" in read_json(args.folder / "config.json"):
        raise UserError(f"{args.folder}: a label model cannot fill masks or write text; its card says how to use it")
    if tried:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the folder holds everything
        from transformers.utils import logging

        from babelmill.release.folder import trying  # imports PyTorch

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        if args.masked is not None:
            print(trying.fill_mask(args.folder, args.masked))
        if args.prompt is not None:
            print(trying.complete(args.folder, args.prompt, args.steps))
