"""Provide the logger plugin of our profiles (`logger: [babelmill]`): one line when each stage begins and ends.

Snakemake finds a logger plugin by the name of its package, so this package is beside `babelmill` and not inside it.
`babelmill/commands/terminal/run_view.py` decides what is shown. All of Snakemake's own messages are in its log file.
"""

import logging
import re
import sys
import threading
from typing import TYPE_CHECKING

from snakemake_interface_logger_plugins.base import LogHandlerBase

if TYPE_CHECKING:
    from babelmill.commands.terminal.run_view import RunView

PATIENCE = 2.0  # seconds without a line
AFTER = "takes all words up to the next option: name targets before it, or after --"
# Options of Snakemake that take all following words, and the form of each word.
LISTS = {
    "--config": "KEY=VALUE",
    "-C": "KEY=VALUE",
    "--resources": "NAME=VALUE",
    "--res": "NAME=VALUE",
    "--default-resources": "NAME=VALUE",
    "--set-resources": "RULE:NAME=VALUE",
    "--set-threads": "RULE=THREADS",
}
# Snakemake's errors before it reads the Snakefile, and the messages that replace them. {} is the word in the error.
REFUSED = {
    r"(?s:load_configfile.*Errno \d+\] [\w ]+): '(.*)'": f"--configfile {{}}: cannot be read; --configfile {AFTER}",
    r"Config file (?:is not|must be)": "--configfile: not valid YAML; `babelmill config --configfile FILE` says where",
}


def refusal(message: str, arguments: list[str]) -> str:
    """Return one line in place of a usual error of Snakemake before the Snakefile; return other messages unchanged."""
    for pattern, message_instead in REFUSED.items():
        if found := re.search(pattern, message):
            return "error: " + message_instead.format(*filter(None, found.groups()))
    option = ""
    for word in arguments if "ValueError" in message or "Unparsable value" in message else []:
        if word.startswith("-"):
            option = word
        elif option in LISTS and "=" not in word:
            return f"error: {option} {word}: not {LISTS[option]}; {option} {AFTER}"
    return message


class InOneLine(logging.Filter):
    """Replaces Snakemake's tracebacks for mistakes on its command line. It has no logger plugin yet at that time."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace the message before the Snakefile is read, which imports the package."""
        if record.levelno >= logging.WARNING and "babelmill" not in sys.modules:
            record.msg, record.args = refusal(record.getMessage(), sys.argv[1:]), ()
        return True


logging.getLogger("snakemake.logging").addFilter(InOneLine())


class LogHandler(LogHandlerBase):
    """Passes Snakemake's events to the view, in a thread that Snakemake starts for them."""

    @property
    def writes_to_stream(self) -> bool:
        """Return True: this handler replaces Snakemake's own."""
        return True

    @property
    def writes_to_file(self) -> bool:
        """Return False: Snakemake writes the log file itself."""
        return False

    @property
    def has_filter(self) -> bool:
        """Return True: `emit` chooses the messages, so that --quiet drops no error."""
        return True

    @property
    def has_formatter(self) -> bool:
        """Return True: `emit` formats the messages."""
        return True

    @property
    def needs_rulegraph(self) -> bool:
        """Return False: this handler does not use the rule graph."""
        return False

    def __post_init__(self) -> None:
        self._view: RunView | None = None
        self._soon = self._say_soon("reading the configuration")

    def _say_soon(self, text: str) -> threading.Timer:
        """Say on a terminal what Snakemake does, if that takes longer than `PATIENCE` until its next event."""
        timer = threading.Timer(PATIENCE, sys.stderr.write, [f"\r\033[K{text}\n"])  # as `core/bars.py` does it
        timer.daemon = True
        if sys.stderr.isatty() and not self.common_settings.quiet:
            timer.start()
        return timer

    def emit(self, record: logging.LogRecord) -> None:
        """Show an event if it is of interest to the user."""
        try:
            self._soon.cancel()
            if record.getMessage().startswith("Building DAG of jobs"):
                self._soon = self._say_soon("looking at what is there")
            if self._view is None:
                if "babelmill" not in sys.modules:  # the Snakefile imports the package, and has not been read yet
                    if record.levelno >= logging.WARNING:
                        print(record.getMessage(), file=sys.stderr, flush=True)
                    return
                from babelmill.commands.terminal.run_view import RunView

                options = self.common_settings
                self._view = RunView(options.dryrun, bool(options.quiet), options.printshellcmds, options.verbose)
            self._view.show(record)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Show the table of a dry run at its end."""
        self._soon.cancel()
        if self._view is not None:
            self._view.close()
        super().close()
