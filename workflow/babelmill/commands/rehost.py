"""Repair repositories of GPT-BERT models from older scripts: add our code, proven weights and a card, in one commit.

    babelmill rehost owner/prefix                    # fetch, convert and prove; write nothing to the Hub
    HF_TOKEN=... babelmill rehost owner/prefix --push

Every model of the owner whose name has this prefix is converted, and gets a line of output. You can look at its folder
in rehosted/. After an interruption, run the same command again: finished models are skipped. Licence and languages of
the old card stay, and so do files that are not replaced; the repository's history keeps the old versions.
"""

import argparse
import contextlib
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from babelmill import __version__
from babelmill.core import manifest
from babelmill.core.files import UserError, trouble
from babelmill.hub.credentials import hub_token

if TYPE_CHECKING:
    from babelmill.release.elsewhere.rehosting import OldModel

log = logging.getLogger("babelmill.rehost")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add("source", metavar="SOURCE", help="owner/prefix, or a folder of checkpoints, such as ./model_checkpoints")
    add("--push", action="store_true", help="write to the Hub; without this option, the Hub is not changed")
    target = "masked positions predict the next token (GPT-BERT) or the same one (BabyBabelLM's code); default: tested"
    add("--masked-target", choices=["next", "same"], help=target)
    tokenizer = "take this repository's tokenizer, or this file; {language} stands for the language"
    add("--tokenizer", metavar="ID_OR_PATH", help=tokenizer)
    add("--config", type=Path, metavar="FILE", help="read the shape from this JSON file, if there is no config.json")
    names = r"read the weights of each language from such files: '^mono_(?P<lang>[a-z]{3})_small(?P<ema>_ema)?\.bin$'"
    add("--checkpoint-regex", metavar="REGEX", help=names)
    template = (
        "push to this repository, named by the {owner}, {name} and {language} of the old one (default: the old one)"
    )
    add("--repo-template", default="{owner}/{name}", metavar="OWNER/NAME", help=template)
    add("--out", type=Path, default=Path("rehosted"), metavar="FOLDER", help="write models here (default: %(default)s)")


def check(args: argparse.Namespace) -> None:
    """Raise a UserError if arguments do not go together, or if the token is missing."""
    if args.push:
        hub_token()
    try:
        re.compile(args.checkpoint_regex or "")
    except re.error as error:
        raise UserError(f"--checkpoint-regex {args.checkpoint_regex}: not a regular expression: {error}") from None
    if others := {*re.findall(r"{(.*?)}", args.repo_template)} - {"owner", "name", "language"}:
        allowed = "{owner}, {name} and {language}"
        raise UserError(f"--repo-template {args.repo_template}: {{{min(others)}}} is not one of {allowed}")


@contextlib.contextmanager
def one_of(label: str, where: str, failed: list[str]) -> Iterator[None]:
    """Print an error of the `with` block as the line of a model, without `where`, which repeats the label."""
    try:
        yield
    except Exception as error:  # an error of one model must not stop the others
        problem = str(error).removeprefix(f"{where}: ") if isinstance(error, UserError) else trouble(error)
        if not problem:
            log.exception("%s", label)
        failed.append(label)
        say(label, f"failed: {problem or type(error).__name__ + ', see the traceback on standard error'}")


def say(label: str, text: str) -> None:
    """Print the line of a model."""
    print(f"{label}: {text}", flush=True)


def run(args: argparse.Namespace) -> int:
    """Rehost all models and print a line for each; return 1 if one failed."""
    check(args)
    from babelmill.release.elsewhere import rehosting  # imports PyTorch

    failed, targets = list[str](), dict[str, str]()
    local = rehosting.is_folder(args.source)
    prefix = "" if local else args.source.partition("/")[2]
    for source in [args.source] if local else rehosting.repositories(args.source):
        with one_of(source, source, failed):
            try:
                found = rehosting.models_in(source, args.config, args.checkpoint_regex)
            except rehosting.Skipped as why:
                say(source, f"skipped: {why}")
                continue
            for code, model in found.items():
                label = f"{source} ({code})" if code and (local or len(found) > 1) else source
                with one_of(label, model.files.where, failed):
                    target = rehosting.target_of(source, model, prefix, args.repo_template)
                    if (other := targets.setdefault(target, label)) != label:
                        different = "make different names with --repo-template"
                        raise UserError(f"{target} is the target of {other}; {different}")
                    say(label, rehost(model, target, args))
    return 1 if failed else 0


def rehost(model: "OldModel", target: str, args: argparse.Namespace) -> str:
    """Make the folder of a model, push it if asked, and return what was found and done."""
    from babelmill.publish import publish_folder
    from babelmill.release.elsewhere import rehosting

    if rehosting.already(model, target):
        return f"done already: {target} is made from it"
    out = args.out / target
    rehosting.make(model, out, target, args.tokenizer, args.masked_target)
    found = manifest.read(out)["figures"]["found"] + (", private" if model.private else "")
    if not args.push:
        return f"{found}; ready in {out}, --push writes it to {target}"
    message = f"Rehosted from {model.origin}, by Babelmill {__version__}"
    here = model.source["commit"] if target == model.source.get("repository") else None
    pushed = publish_folder(out, target, out.name, model.private, message, here)
    return f"{found}; pushed to {target}, commit {pushed['commit']}"
