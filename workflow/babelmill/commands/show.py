"""Show the scores of a converted model, and text that it completes.

    babelmill show converted/eng
    babelmill show converted/eng --masked "The cat <mask> on the mat." --prompt "The cat"
    babelmill show converted/eng --held-out 5

Only the converted folder is read, with the classes that its users load. So this is also the quickest check that the
folder works where it is. `--held-out` also reads the validation text, from `results/corpus`: it shows the first
sentences, each with a hidden word, the model's guesses and the right word.
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

from babelmill.core import bars, manifest
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


def validation_texts(folder: Path) -> Iterator[str]:
    """Yield the validation documents of a converted model. A UserError says where they are not."""
    import pyarrow.parquet as pq

    about = manifest.read(folder)
    upstream, corpora = about["upstream"], about["settings"].get("made_from", {}).get("corpora", [])
    if not corpora:
        raise UserError(f"--held-out: {folder} does not say which validation text it has not read")
    for corpus in map(Path, corpora):
        manifest.verify(corpus, "validation.parquet")
        if manifest.digest(corpus) != upstream[corpus.as_posix()]:
            raise UserError(f"--held-out: {folder} was made from another {corpus} than the present one")
        for batch in pq.ParquetFile(corpus / "validation.parquet").iter_batches(columns=["text"]):
            yield from batch["text"].to_pylist()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add("folder", type=converted_folder, metavar="FOLDER", help="a model, such as converted/eng (or just eng)")
    add("--masked", type=utf8, metavar="TEXT", help="let the model fill each <mask> in this text")
    add("--held-out", type=int, metavar="N", help="let the model guess a hidden word in N sentences it has not seen")
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
        print(pairs, flush=True)
    tried = not {args.masked, args.prompt, args.held_out} <= {None}
    if tried and not any(args.folder.glob("model*.safetensors")):
        raise UserError(
            f"{args.folder} holds only adapters (export.adapter: only), and its card says how to load them; to try the"
            " model here, set export.adapter: also"
        )
    if tried and "labels" in read_json(args.folder / "config.json"):
        raise UserError(f"{args.folder}: a label model cannot fill masks or write text; its card says how to use it")
    if args.held_out is not None and args.held_out < 1:
        raise UserError(f"--held-out {args.held_out}: give the number of sentences, 1 or more")
    if tried:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the folder holds everything
        bars.draw("loading transformers and the model")
        from transformers.utils import logging as of_transformers

        from babelmill.release.folder import trying  # imports PyTorch

        of_transformers.set_verbosity_error()
        of_transformers.disable_progress_bar()
        if args.held_out is not None:
            print("  sentences of the validation text with a hidden word, and the likeliest guesses")
            for line in trying.guess_hidden_words(args.folder, validation_texts(args.folder), args.held_out):
                print(line)
        if args.masked is not None:
            print(trying.fill_mask(args.folder, args.masked))
        if args.prompt is not None:
            print(trying.complete(args.folder, args.prompt, args.steps))
