"""`babelmill show converted/eng`: what a converted model is, how good it is, and what it says.

Everything is read from the converted folder alone, by the classes that its users load, so this is also the quickest
check that the folder works where it stands.
"""

import argparse
import os
from pathlib import Path

from babelmill.core import manifest
from babelmill.core.files import UserError


def figures(folder: Path) -> str:
    """Bits per byte for each variant, with standard errors, beside a unigram model."""
    from babelmill.release.card import scored_text, with_error

    evaluation = manifest.read(folder)["figures"]["evaluation"]
    unigram = evaluation["unigram"]
    lines = [f"  bits per byte of {scored_text(evaluation)} (a unigram model needs {with_error(unigram)})"]
    for variant, scores in evaluation["variants"].items():
        below = 1 - scores["causal"]["bits_per_byte"] / unigram["bits_per_byte"]
        side = "below" if below >= 0 else "above"
        causal, masked = with_error(scores["causal"]), with_error(scores["masked"])
        lines.append(f"    {variant:<6} causal {causal} ({abs(below):.0%} {side} that), masked {masked}")
    return "\n".join(lines)


def fill_mask(folder: Path, text: str) -> str:
    """The five likeliest words for `<mask>`."""
    from transformers import pipeline

    if "<mask>" not in text:
        raise UserError(f"--masked {text!r}: write <mask> in place of a word")
    alignment = {"logits_alignment": "mlm"}  # whatever the folder says: it is how this pipeline reads the scores
    fill = pipeline("fill-mask", model=str(folder), trust_remote_code=True, model_kwargs=alignment)
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
