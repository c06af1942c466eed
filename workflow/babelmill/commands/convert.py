"""Convert a model of the published GPT-BERT code to a Hugging Face folder by hand, wherever its files are.

    babelmill convert owner/name --out FOLDER
    babelmill convert model.bin --config base.json --tokenizer tokenizer.json --out FOLDER

SOURCE is a repository that was published with this code, on the Hub or as a folder, or a checkpoint; its average,
model_ema.bin beside model.bin, is converted too. The new folder is built and proven as in the workflow. Its card
contains what the files say; no scores are measured. `babelmill rehost` does this for all repositories of an owner.
"""

import argparse
import logging
import os
import re
from pathlib import Path

from babelmill.core.files import UserError

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add("source", metavar="SOURCE", type=os.path.expanduser, help="a repository on the Hub, a folder, or a checkpoint")
    add("--out", required=True, type=Path, help="the folder to make; it must not exist")
    target = "masked positions predict the next token (GPT-BERT) or the same one (BabyBabelLM's code); default: tested"
    add("--masked-target", choices=["next", "same"], help=target)
    tokenizer = "take this repository's tokenizer, or this file (default: the one beside the weights)"
    add("--tokenizer", metavar="ID_OR_PATH", type=os.path.expanduser, help=tokenizer)
    add("--config", type=Path, metavar="FILE", help="read the shape from this JSON file, if there is no config.json")


def run(args: argparse.Namespace) -> None:
    """Convert the model."""
    log.info("loading PyTorch")
    from babelmill.release.elsewhere import rehosting  # imports PyTorch

    try:
        model = rehosting.model_of(args.source, args.config)
    except rehosting.Skipped as why:
        raise UserError(f"{args.source}: {why}") from None
    name = re.sub(r"[^\w.-]+", "-", args.out.name)  # as a repository on the Hub
    rehosting.convert(model, args.tokenizer, args.masked_target, args.out, name, {})
