"""Convert a checkpoint of the published GPT-BERT code to a Hugging Face folder.

    babelmill convert-gpt-bert model.bin --config base.json --tokenizer tokenizer.json --out FOLDER

The folder is built and proven as in the workflow. Its card contains what the files say; no scores are measured.
"""

import argparse
import logging
from pathlib import Path

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add("weights", type=Path, help="model.bin, or model_state_dict.bin, which also has the averaged weights")
    add("--ema", type=Path, help="model_ema.bin, the averaged weights (optional)")
    add("--config", required=True, type=Path, help="the JSON file with the model's shape, as it was used in training")
    add("--tokenizer", required=True, type=Path, help="its tokenizer.json")
    add(
        "--masked-target",
        choices=["next", "same"],
        default="next",
        help="what masked positions predicted: the next token (GPT-BERT), or the same one (BabyBabelLM's code)",
    )
    add("--out", required=True, type=Path, help="the folder to make; it must not exist")


def run(args: argparse.Namespace) -> None:
    """Convert the checkpoint."""
    log.info("loading PyTorch")
    from babelmill.release.elsewhere import manual_conversion  # imports PyTorch

    with manual_conversion.scratch_beside(args.out) as scratch:
        tokenizer = manual_conversion.tokenizer_path(args.tokenizer)
        same = args.masked_target == "same"
        found = manual_conversion.from_gpt_bert(args.weights, args.ema, args.config, tokenizer, same, scratch)
        manual_conversion.convert(found, scratch, args.out)
