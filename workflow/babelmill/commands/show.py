"""`babelmill show converted/eng`: what a converted model is, how good it is, and what it says.

Everything is read from the converted folder alone, by the classes that its users load, so this is also the quickest
check that the folder works where it stands.
"""

import argparse
import os
from pathlib import Path

from babelmill.core import manifest
from babelmill.core.files import UserError
from babelmill.tokens.vocabulary import Roles


def figures(folder: Path) -> str:
    """Return the scores of each variant, with standard errors, beside a unigram model's."""
    from babelmill.evaluation.metrics import metrics_of, shown, units, value_of
    from babelmill.release.card import scored_text

    evaluation = manifest.read(folder)["figures"]["evaluation"]
    metrics, unigram = metrics_of(evaluation), evaluation["unigram"]
    lines = [f"  {units(evaluation)} of {scored_text(evaluation)} (a unigram model needs {shown(unigram)})"]
    for variant, scores in evaluation["variants"].items():
        found = []
        for name, score in scores.items():
            below = 1 - value_of(score) / value_of(unigram)
            beside = f" ({abs(below):.0%} {'below' if below >= 0 else 'above'} that)"
            found.append(f"{name} {shown(score, metrics[name])}{beside if metrics[name].perplexity else ''}")
        lines.append(f"    {variant:<6} {', '.join(found)}")
    return "\n".join(lines)


def fill_mask(folder: Path, text: str) -> str:
    """Return the five likeliest words for the mask."""
    from transformers import pipeline

    from babelmill.release.loading import aligned

    mask = Roles.of(folder / "tokenizer.json").mask
    if mask not in text:
        raise UserError(f"--masked {text!r}: write {mask} in place of a word")
    # Whatever the folder says, this is how the pipeline reads the scores.
    fill = pipeline("fill-mask", model=str(folder), trust_remote_code=True, model_kwargs=aligned(folder))
    answers = ", ".join(f"{answer['token_str']!r} {answer['score']:.2f}" for answer in fill(text))
    return f"  {text}\n    {answers}"


def complete(folder: Path, prompt: str) -> str:
    """The prompt and the model's greedy continuation."""
    from transformers import pipeline

    generate = pipeline("text-generation", model=str(folder), trust_remote_code=True)
    text = generate(prompt, max_new_tokens=40, do_sample=False, repetition_penalty=1.2)[0]["generated_text"]
    return f"  {prompt} ...\n    {text!r}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("folder", type=Path, help="converted/{model}")
    parser.add_argument("--masked", help="a text with <mask> in it")
    parser.add_argument("--prompt", help="the beginning of a text")


def run(args: argparse.Namespace) -> None:
    """Print the figures of a converted model, a filled mask and a continuation."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the folder holds everything
    if not args.folder.is_dir():
        raise UserError(f"{args.folder}: no such folder; a converted model is expected, such as converted/eng")
    if "evaluation" not in manifest.read(args.folder)["figures"]:
        raise UserError(f"{args.folder}: is no converted model; name one such as converted/eng")
    print(f"{args.folder.resolve()}")
    print(figures(args.folder))
    if args.masked or args.prompt:
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
    if args.masked:
        print(fill_mask(args.folder, args.masked))
    if args.prompt:
        print(complete(args.folder, args.prompt))
