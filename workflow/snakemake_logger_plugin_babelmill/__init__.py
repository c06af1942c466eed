"""The logger plugin `babelmill` of our profiles (`logger: babelmill`): one line as each stage begins and ends.

Snakemake finds a logger plugin by the name of its package, which therefore stands beside `babelmill` and not inside of
it; what is shown is decided in `babelmill/commands/run_view.py`. Snakemake's own words are all in its log file.
"""

import logging
import re
import sys
from typing import TYPE_CHECKING

from snakemake_interface_logger_plugins.base import LogHandlerBase

if TYPE_CHECKING:
    from babelmill.commands.run_view import RunView

AFTER = "takes all words up to the next option: name targets before it, or after --"
# What Snakemake refuses before it reads the Snakefile, and what to say of it. {} is what it names.
REFUSED = {
    r"\(Unparsable value: '(.*)'\)": f"--config {{}}: not KEY=VALUE; --config {AFTER}",
    r"(?s:load_configfile.*Errno \d+\] [\w ]+): '(.*)'": f"--configfile {{}}: cannot be read; --configfile {AFTER}",
    r"Config file (?:is not|must be)": "--configfile: not valid YAML; `babelmill config --configfile FILE` says where",
}


def refusal(message: str) -> str:
    """Put what Snakemake says before it has read the Snakefile into one line, where it is a usual mistake."""
    for pattern, said in REFUSED.items():
        if found := re.search(pattern, message):
            return "error: " + said.format(*filter(None, found.groups()))
    return message


class LogHandler(LogHandlerBase):
    """Hands Snakemake's events to the view, in a thread that Snakemake starts for them."""

    @property
    def writes_to_stream(self) -> bool:
        """Take the place of Snakemake's own handler."""
        return True

    @property
    def writes_to_file(self) -> bool:
        """Leave the log file to Snakemake."""
        return False

    @property
    def has_filter(self) -> bool:
        """Choose in `emit`, so that --quiet drops no error."""
        return True

    @property
    def has_formatter(self) -> bool:
        """Format in `emit`."""
        return True

    @property
    def needs_rulegraph(self) -> bool:
        """Do without."""
        return False

    def __post_init__(self) -> None:
        self._view: RunView | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Show an event, or nothing of it."""
        try:
            if self._view is None:
                if "babelmill" not in sys.modules:  # the Snakefile brings its own, and has not been read yet
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
        """End with what a dry run has to say."""
        if self._view is not None:
            self._view.close()
        super().close()
