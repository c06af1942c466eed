"""Mend repositories of GPT-BERT models that older scripts pushed: our code, proven weights, a card, in one commit each.

    babelmill rehost owner/prefix                    # a look: fetch, convert and prove, write nothing on the Hub
    HF_TOKEN=... babelmill rehost owner/prefix --push

Every model of the owner whose name begins so is taken, and gets a line. Its folder is made in rehosted/ for you to look
at, and what is done is not done again: interrupt it, and run the same command again. Licence and languages of the old
card stay, so do files that are not replaced, and what was there before is in the repository's history.
"""

import argparse
import re
from pathlib import Path

from babelmill.core.files import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("source", help="owner/prefix; or a folder of checkpoints, such as ./model_checkpoints")
    parser.add_argument("--push", action="store_true", help="write to the Hub; without it, nothing there is changed")
    parser.add_argument(
        "--masked-target",
        choices=["next", "same"],
        help="what masked positions predicted: the next token (GPT-BERT), or the same one (BabyBabelLM's code);"
        " without it, the model itself is asked",
    )
    parser.add_argument(
        "--tokenizer", metavar="ID_OR_PATH", help="of another repository, or a file; {language} may stand in it"
    )
    parser.add_argument(
        "--checkpoint-glob", metavar="GLOB", help="the files that hold the weights, such as 'mono_*_small_1_2*.bin'"
    )
    parser.add_argument(
        "--checkpoint-regex",
        metavar="REGEX",
        help=r"what such a name says: '^mono_(?P<lang>[a-z]{3})_small_1_2(?P<ema>_ema)?\.bin$'",
    )
    parser.add_argument("--config", type=Path, help="the JSON file with the shape, where there is no config.json")
    parser.add_argument(
        "--repo-template",
        default="{owner}/{name}",
        metavar="OWNER/NAME",
        help="where to push; {owner} and {name} are the repository's, {language} its language (default: where it is)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("rehosted"), help="folder for what is made (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Rehost, and print a line for each repository; 1 if one failed."""
    check(args)
    from babelmill.commands import rehosting  # with PyTorch and the client of the Hub

    return rehosting.run(args)


def check(args: argparse.Namespace) -> None:
    """Raise a UserError for arguments that do not go together, and for a token that is missing."""
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
                f"--repo-template {args.repo_template}: {{{name}}} is none of {{owner}}, {{name}} and {{language}}"
            )
