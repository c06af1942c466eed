"""Show the scores of a converted model, and text that it completes.

    babelmill show converted/eng
    babelmill show converted/eng --held-out 5
    babelmill show converted/eng --masked "The cat <mask> on the mat." --prompt "The cat"

Only the converted folder is read, with the classes that its users load. So this is also the quickest check that the
folder works where it is. `--held-out` also reads the validation text, from `results/corpus`: it shows the first
sentences, each with a hidden word, the model's guesses and the right word.
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

from babelmill.commands.by_hand import converted_folder, meant, quiet_transformers
from babelmill.core import bars, manifest
from babelmill.core.files import UserError, read_json
from babelmill.core.words import aligned


def scores(folder: Path) -> list[str]:
    """Return a heading and a line for each score of the variant that users load."""
    from babelmill.release.card.card import scored_text
    from babelmill.reporting.results import ModelResults  # imports pandas
    from babelmill.reporting.table import ALL, rows_of, shown, unit_text

    about = manifest.read(folder)
    found = {key: about["figures"].get(key, {}) for key in ("evaluation", "scores")}
    model = ModelResults(folder.name, {}, about["settings"].get("languages", []), **found)
    rows = [["", "language", "method", "score", "95 % interval", "simple", "unit", ""]]
    for row in rows_of(model):
        if row.phenomenon == row.paradigm == ALL and row.million_words is None:
            of = [row.suite or "validation text", row.language, row.method, shown(row.score, row.unit), row.ends]
            worse = "not better than simple" if row.is_worse else ""
            rows.append([*of, shown(row.simple, row.unit), unit_text(row.unit), worse])
    lines = aligned(rows, (name in ("score", "simple") for name in rows[0]))
    lines += [f"validation text: {scored_text(found['evaluation'])}"]
    lines += ["simple: a unigram model, always the most frequent code, or guessing"]
    return [f"  {line}" for line in lines]


def validation_texts(folder: Path) -> Iterator[str]:
    """Yield the validation documents of a converted model. A UserError says where they are not."""
    import pyarrow.parquet as pq

    corpora = manifest.read(folder)["settings"].get("made_from", {}).get("corpora", [])
    if not corpora:
        raise UserError(f"--held-out: {folder} does not say which validation text it has not read")
    manifest.verify_upstream(folder, *corpora)
    for corpus in map(Path, corpora):
        manifest.verify(corpus, "validation.parquet")
        for batch in pq.ParquetFile(corpus / "validation.parquet").iter_batches(columns=["text"]):
            yield from batch["text"].to_pylist()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add("folder", type=converted_folder, metavar="FOLDER", help="a model, such as converted/eng (or just eng)")
    add("--masked", metavar="TEXT", help="let the model fill each <mask> in this text")
    add("--held-out", type=int, metavar="N", help="let the model guess a hidden word in N sentences it has not seen")
    add("--prompt", metavar="TEXT", help="let the model continue this text")


def run(args: argparse.Namespace) -> None:
    """Print the figures of a converted model, a filled mask and a continuation."""
    if not args.folder.is_dir():
        expected = "; a converted model is expected, such as converted/eng"
        raise UserError(f"{args.folder}: no such folder{meant(args.folder.name) or expected}")
    if "evaluation" not in manifest.verify(args.folder)["figures"]:
        raise UserError(f"{args.folder}: not a converted model; name a folder such as converted/eng")
    print(args.folder.resolve())
    print(*scores(args.folder), sep="\n", flush=True)
    if {args.masked, args.prompt, args.held_out} == {None}:
        return
    if args.held_out is not None and args.held_out < 1:
        raise UserError(f"--held-out {args.held_out}: give the number of sentences, 1 or more")
    if "labels" in read_json(args.folder / "config.json"):
        raise UserError(f"{args.folder}: a label model cannot fill masks or write text; its card says how to use it")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the folder holds everything
    bars.draw("loading transformers and the model")
    from babelmill.release.folder import trying  # imports PyTorch

    quiet_transformers()
    if args.held_out is not None:
        print("  sentences of the validation text with a hidden word, and the likeliest guesses")
        print(*trying.guess_hidden_words(args.folder, validation_texts(args.folder), args.held_out), sep="\n")
    if args.masked is not None:
        print(trying.fill_mask(args.folder, args.masked))
    if args.prompt is not None:
        print(trying.complete(args.folder, args.prompt))
