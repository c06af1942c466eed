"""Convert the results of training to a Hugging Face folder, without the workflow, wherever the files are.

    babelmill convert-training results/models/eng --tokenizer results/tokenizers/eng --out FOLDER

The folder is built and proven as in the workflow. Its card contains what the files say; no scores are measured.
"""

import argparse
import logging
from pathlib import Path

from babelmill.core.stage_entry import folder

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add("source", type=folder, help="a folder like results/models/eng, or a step-*.safetensors of a run")
    add("--tokenizer", required=True, type=Path, help="its tokenizer.json, or the folder with this file")
    add("--out", required=True, type=Path, help="the folder to make; it must not exist")


def run(args: argparse.Namespace) -> None:
    """Convert the results of training."""
    log.info("loading PyTorch")
    from babelmill.release.elsewhere import manual_conversion  # imports PyTorch

    with manual_conversion.scratch_beside(args.out) as scratch:
        found = manual_conversion.from_training(args.source, manual_conversion.tokenizer_path(args.tokenizer))
        manual_conversion.convert(found, scratch, args.out)
