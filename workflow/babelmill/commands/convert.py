"""Convert a GPT-BERT to a Hugging Face folder by hand, without the workflow, wherever its files are.

    babelmill convert results/of/eng/train --tokenizer results/of/eng/tokenizer --out FOLDER
    babelmill convert model.bin --config base.json --tokenizer tokenizer.json --out FOLDER
    babelmill convert owner/name --out FOLDER

SOURCE is what training left (a folder like results/of/eng/train, or a step-*.safetensors of a run), a checkpoint of the
published GPT-BERT code, or a repository that was published with it, on the Hub or as a folder. The new folder is built
and proven as in the workflow. Its card contains what the files say; no scores are measured. `babelmill rehost` does
this for all repositories of an owner.
"""

import argparse
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from babelmill.core.files import UserError

if TYPE_CHECKING:
    from babelmill.release.elsewhere.manual_conversion import FoundModel

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add("source", metavar="SOURCE", type=os.path.expanduser, help="a folder, a checkpoint, or a repository on the Hub")
    of_repositories = "its tokenizer.json, or the folder with this file (a repository has its own)"
    add("--tokenizer", type=os.path.expanduser, help=of_repositories)
    add("--config", type=Path, help="of a checkpoint: the JSON file with the model's shape, as it was used in training")
    add("--ema", type=Path, help="of a checkpoint: model_ema.bin, the averaged weights (optional)")
    target = "what masked positions predicted: the next token (GPT-BERT; default of a checkpoint), or the same one"
    add("--masked-target", choices=["next", "same"], help=f"{target} (BabyBabelLM's code); a repository's is tested")
    add("--out", required=True, type=Path, help="the folder to make; it must not exist")


def found_in(args: argparse.Namespace, scratch: Path) -> "FoundModel":
    """Return the model in a source; raise a UserError if an option is missing, or is for another kind of source."""
    from babelmill.release.elsewhere import manual_conversion, rehosting

    path = Path(args.source)
    trained = path.suffix == ".safetensors" or manual_conversion.is_of_training(path)
    checkpoint = not trained and (path.is_file() or path.suffix == ".bin")
    if trained and (args.config or args.ema or args.masked_target):
        raise UserError(f"{path}: what training left says its shape: leave out --config, --ema and --masked-target")
    if args.ema and not checkpoint:
        raise UserError(f"--ema {args.ema}: {args.source} is not a checkpoint of the published code")
    if not trained and not checkpoint:
        return rehosting.from_repository(args.source, args.config, args.tokenizer, args.masked_target, scratch)
    if not args.tokenizer:
        raise UserError(f"{path}: name its tokenizer with --tokenizer")
    tokenizer = manual_conversion.tokenizer_path(Path(args.tokenizer))
    if trained:
        return manual_conversion.from_training(path, tokenizer)
    if not args.config:
        raise UserError(f"{path}: name the JSON file with the model's shape with --config")
    same = args.masked_target == "same"
    return manual_conversion.from_gpt_bert(path, args.ema, args.config, tokenizer, same, scratch)


def run(args: argparse.Namespace) -> None:
    """Convert the model."""
    log.info("loading PyTorch")
    from babelmill.release.elsewhere import manual_conversion  # imports PyTorch

    with manual_conversion.scratch_beside(args.out) as scratch:
        manual_conversion.convert(found_in(args, scratch), scratch, args.out)
