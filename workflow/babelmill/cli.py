"""Run `babelmill COMMAND`: parse the arguments, set up logging and report errors, for all commands.

Each command is a module of `commands/` with `add_arguments(parser)` and `run(args)`. Only the module of the given
command is imported, so that no command waits for the libraries of another.
"""

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Collection
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

from babelmill import __version__
from babelmill.core import bars, escape, manifest
from babelmill.core.files import UserError, trouble
from babelmill.core.places import PACKAGE
from babelmill.core.stage_entry import configure_logging

COMMANDS = {
    "init": "make a folder of your own to run the workflow in",
    "config": "show every setting of a model and its origin, or presets",
    "plan": "show what training will cost: steps, memory, GPU-hours",
    "why": "show what would run for a model, and why",
    "status": "show how far each model is, or all training runs",
    "report": "write a page and a table of all existing scores",
    "compare": "compare two models: settings, bits per byte, suites",
    "corpus": "look at a text: lengths, languages, repetition, oddities",
    "score": "score any model on a suite, or the words of a text",
    "tune": "fine-tune a model from anywhere for a task, and score it",
    "predict": "predict codes for a table, with a label model",
    "show": "show scores and sample output of a converted model",
    "clean": "list or delete the checkpoints that no setting uses",
    "convert": "convert a GPT-BERT by hand, without the workflow",
    "publish": "publish a converted folder on the Hub, by hand",
    "rehost": "repair GPT-BERTs on the Hub that older scripts pushed",
}


def command_module(command: str) -> ModuleType:
    """Import the module of a command."""
    return importlib.import_module(f"babelmill.commands.{command}")


def parser_for(commands: Collection[str]) -> argparse.ArgumentParser:
    """Return the parser, with the arguments of `commands` and only the name and one line of help of the others."""
    usage = "babelmill [-h] [--version] COMMAND ..."  # instead of a list of two options: the help fits one screen
    parser = argparse.ArgumentParser(prog="babelmill", usage=usage, add_help=False)
    parser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    version = f"babelmill {__version__}"
    parser.add_argument("--version", action="version", version=version, help=argparse.SUPPRESS)
    title = "inspect and maintain the workflow, in the folder where Snakemake runs it"
    word = "COMMAND ..."  # for which argparse leaves enough room that each command stands beside its help
    subparsers = parser.add_subparsers(title=title, prog=parser.prog, dest="command", metavar=word, required=True)
    for name, line in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=line)
        if name in commands:
            module = command_module(name)
            subparser.description, subparser.formatter_class = module.__doc__, argparse.RawDescriptionHelpFormatter
            module.add_arguments(subparser)
    return parser


def refuse_another_checkout() -> None:
    """Raise a UserError if the working folder is a checkout with another copy of the package."""
    here = Path("workflow/babelmill")
    if (here / "__init__.py").is_file() and not here.samefile(PACKAGE):
        raise UserError(
            f"this babelmill belongs to {PACKAGE.parents[1]}, but this folder has its own: call"
            " .venv/bin/babelmill here (`make setup` installs it)"
        )


class Terminal:
    """Writes to a stream so that a terminal obeys nothing that stands in names or data."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(escape.terminal(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        """Return all other attributes of the stream."""
        return getattr(self._stream, name)


def run(arguments: list[str]) -> int:
    """Parse the arguments, run the command, and return its exit code."""
    args = parser_for(arguments[:1]).parse_args(arguments)
    for name, value in vars(args).items():
        if isinstance(value, Path):  # a shell expands `--out ~/a`, but not `--out=~/a`
            setattr(args, name, Path(os.path.expanduser(str(value))))
    configure_logging(None)
    if args.command != "init":  # which makes a folder elsewhere, and may be called where the wheel was made
        refuse_another_checkout()
        manifest.refuse_earlier_results()
    shown: Any = Terminal(sys.stdout) if sys.stdout.isatty() else sys.stdout
    with contextlib.redirect_stdout(shown):
        return command_module(args.command).run(args) or 0


def main(arguments: list[str] | None = None) -> int:
    """Run a command, and return its exit code: 1 after an error. Whoever reads its output may stop at any time."""
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")  # so that PyTorch's waiting threads do not keep the cores busy
    try:
        try:
            return run(sys.argv[1:] if arguments is None else arguments)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if not (problem := trouble(error)):
            raise
        lost = isinstance(error, OSError)  # what was written, since the reader is gone or the disk full
        try:
            if not isinstance(error, BrokenPipeError):
                bars.say(escape.lines(f"error: {problem}"))
        except BrokenPipeError:
            lost = True
        for stream in (sys.stdout, sys.stderr) if lost else ():
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # else Python complains when it ends
        return 1
