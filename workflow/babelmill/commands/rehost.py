"""Repair repositories of GPT-BERT models from older scripts: add our code, proven weights and a card, in one commit.

    babelmill rehost owner/prefix                    # fetch, convert and prove; write nothing to the Hub
    HF_TOKEN=... babelmill rehost owner/prefix --push

Every model of the owner whose name has this prefix is converted, and gets a line of output. You can look at its folder
in rehosted/. After an interruption, run the same command again: finished models are skipped. Licence and languages of
the old card stay, and so do files that are not replaced; the repository's history keeps the old versions.
"""

import argparse
import logging
from pathlib import Path

from babelmill import __version__
from babelmill.core import manifest
from babelmill.core.files import trouble
from babelmill.hub.credentials import hub_token

log = logging.getLogger("babelmill.rehost")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add("source", metavar="OWNER/PREFIX", help="the owner, and how the names of the repositories begin")
    add("--push", action="store_true", help="write to the Hub; without this option, the Hub is not changed")
    target = "masked positions predict the next token (GPT-BERT) or the same one (BabyBabelLM's code); default: tested"
    add("--masked-target", choices=["next", "same"], help=target)
    add("--tokenizer", metavar="ID_OR_PATH", help="take this repository's tokenizer, or this file")
    add("--out", type=Path, default=Path("rehosted"), metavar="FOLDER", help="write models here (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Rehost all models and print a line for each; return 1 if one failed."""
    if args.push:
        hub_token()
    from babelmill.release.elsewhere import rehosting  # imports PyTorch

    failed = False
    for source in rehosting.repositories(args.source):
        try:
            text = rehost(source, args)
        except rehosting.Skipped as why:
            text = f"skipped: {why}"
        except Exception as error:  # an error of one model must not stop the others
            problem = trouble(error)
            if not problem:
                log.exception("%s", source)
                problem = f"{type(error).__name__}, see the traceback on standard error"
            text, failed = f"failed: {problem}", True
        print(f"{source}: {text}", flush=True)
    return int(failed)


def rehost(source: str, args: argparse.Namespace) -> str:
    """Make the folder of a model, push it if asked, and return what was found and done."""
    from babelmill.publish import publish_folder
    from babelmill.release.elsewhere import rehosting

    model, out = rehosting.model_of(source), args.out / source
    rehosting.make(model, out, source, args.tokenizer, args.masked_target)
    found = manifest.read(out)["figures"]["found"] + (", private" if model.private else "")
    if not args.push:
        return f"{found}; ready in {out}, --push writes it to {source}"
    message = f"Rehosted from commit {model.source['commit']} of {source}, by Babelmill {__version__}"
    pushed = publish_folder(out, source, out.name, model.private, message, model.source["commit"])
    return f"{found}; pushed to {source}, commit {pushed['commit']}"
