"""Repair repositories of GPT-BERT models from older scripts: add our code, proven weights and a card, in one commit.

    babelmill rehost owner/prefix                    # fetch, convert and prove; write nothing to the Hub
    HF_TOKEN=... babelmill rehost owner/prefix --push

Every model of the owner whose name has this prefix is converted, and gets a line of output. You can look at its folder
in rehosted/. After an interruption, run the same command again: finished models are skipped. Licence and languages of
the old card stay, and so do files that are not replaced; the repository's history keeps the old versions.
"""

import argparse
import re
from pathlib import Path

from babelmill.core.files import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("source", help="owner/prefix, or a folder of checkpoints, such as ./model_checkpoints")
    parser.add_argument(
        "--push", action="store_true", help="write to the Hub; without this option, the Hub is not changed"
    )
    parser.add_argument(
        "--masked-target",
        choices=["next", "same"],
        help="what masked positions predicted: the next token (GPT-BERT), or the same one (BabyBabelLM's code);"
        " without this option, the model's own predictions decide",
    )
    parser.add_argument(
        "--tokenizer", metavar="ID_OR_PATH", help="tokenizer of another repository, or a file; may contain {language}"
    )
    parser.add_argument(
        "--checkpoint-glob", metavar="GLOB", help="the files that hold the weights, such as 'mono_*_small_1_2*.bin'"
    )
    parser.add_argument(
        "--checkpoint-regex",
        metavar="REGEX",
        help=r"how to read the names of these files: '^mono_(?P<lang>[a-z]{3})_small_1_2(?P<ema>_ema)?\.bin$'",
    )
    parser.add_argument("--config", type=Path, help="the JSON file with the shape, if there is no config.json")
    parser.add_argument(
        "--repo-template",
        default="{owner}/{name}",
        metavar="OWNER/NAME",
        help="where to push; {owner} and {name}: the repository's; {language}: its language (default: same place)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("rehosted"), help="folder for the converted models (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Rehost the models and print a line for each; return 1 if one failed."""
    check(args)
    from babelmill.commands import rehosting  # imports PyTorch and the client of the Hub

    return rehosting.run(args)


def check(args: argparse.Namespace) -> None:
    """Raise a UserError if arguments do not go together, or if the token is missing."""
    from babelmill.hub.credentials import hub_token

    if args.push:
        hub_token()
    if args.checkpoint_regex and not args.checkpoint_glob:
        args.checkpoint_glob = "*"
    try:
        re.compile(args.checkpoint_regex or "")
    except re.error as error:
        raise UserError(f"--checkpoint-regex {args.checkpoint_regex}: not a regular expression: {error}") from None
    for name in re.findall(r"{(.*?)}", args.repo_template):
        if name not in ("owner", "name", "language"):
            raise UserError(
                f"--repo-template {args.repo_template}: {{{name}}} is not one of {{owner}}, {{name}} and {{language}}"
            )
