"""Publish a converted folder, made by the workflow or by hand, in its own repository on the Hugging Face Hub.

    HF_TOKEN=... babelmill publish FOLDER --repo owner/name

The folder is verified by its manifest and pushed in one commit, as `snakemake published/eng.json` does it: files that
differ are uploaded, old files of an earlier push are deleted, everything else in the repository stays. Running the
same command again makes no commit.
"""

import argparse
import re
from pathlib import Path

from babelmill.core import manifest
from babelmill.core.files import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add("folder", type=Path, metavar="FOLDER", help="a converted model, such as converted/eng")
    add("--repo", required=True, metavar="OWNER/NAME", help="push to this repository; create it if needed")
    add("--private", action="store_true", help="make the repository private, or keep it private")


def run(args: argparse.Namespace) -> None:
    """Push the folder, and print where it is."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", args.repo, re.ASCII):
        raise UserError(f"--repo {args.repo}: expected owner/name, such as lab/babybabellm-eng")
    if not (args.folder / manifest.NAME).is_file():
        raise UserError(
            f"{args.folder}: has no {manifest.NAME}; publish a folder of the workflow (converted/eng), or one that"
            " `babelmill convert` or `rehost` made"
        )
    made = manifest.read(args.folder)
    if made["stage"] != "convert":
        raise UserError(
            f"{args.folder}: has the results of the stage {made['stage']}, not a converted model; publish"
            " converted/{model}"
        )
    from babelmill.publish import publish_folder  # imports the client of the Hub

    published = publish_folder(args.folder, args.repo, made["settings"]["name"], args.private)
    print(f"{published['url']} is {args.folder} at {published['commit']}")
