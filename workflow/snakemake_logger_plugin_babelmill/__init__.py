"""Provide the logger plugin of our profiles (`logger: [babelmill]`): one line when each stage begins and ends.

Snakemake finds a logger plugin by the name of its package, so this package is beside `babelmill` and not inside it.
`babelmill/commands/run_view.py` decides what is shown. All of Snakemake's own messages are in its log file.
"""

import logging
import re
import sys
from typing import TYPE_CHECKING

from snakemake_interface_logger_plugins.base import LogHandlerBase

if TYPE_CHECKING:
    from babelmill.commands.run_view import RunView

AFTER = "takes all words up to the next option: name targets before it, or after --"
# Snakemake's errors before it reads the Snakefile, and the messages that replace them. {} is the word in the error.
REFUSED = {
    r"\(Unparsable value: '(.*)'\)": f"--config {{}}: not KEY=VALUE; --config {AFTER}",
    r"(?s:load_configfile.*Errno \d+\] [\w ]+): '(.*)'": f"--configfile {{}}: cannot be read; --configfile {AFTER}",
    r"Config file (?:is not|must be)": "--configfile: not valid YAML; `babelmill config --configfile FILE` says where",
}


def refusal(message: str) -> str:
    """Return one line in place of a usual error of Snakemake before the Snakefile; return other messages unchanged."""
    for pattern, said in REFUSED.items():
        if found := re.search(pattern, message):
            return "error: " + said.format(*filter(None, found.groups()))
    return message


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

    def emit(self, record: logging.LogRecord) -> None:
        """Show an event if it is of interest to the user."""
        try:
            if self._view is None:
                if "babelmill" not in sys.modules:  # the Snakefile imports the package, and has not been read yet
                    if record.levelno >= logging.WARNING:
                        print(refusal(record.getMessage()), file=sys.stderr, flush=True)
                    return
                from babelmill.commands.run_view import RunView

                options = self.common_settings
                self._view = RunView(options.dryrun, bool(options.quiet), options.printshellcmds, options.verbose)
            self._view.show(record)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Show the table of a dry run at its end."""
        if self._view is not None:
            self._view.close()
        super().close()
