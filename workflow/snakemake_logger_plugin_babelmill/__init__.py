"""Provide the logger plugin of our profiles (`logger: [babelmill]`): one line when each stage begins and ends.

Snakemake finds a logger plugin by the name of its package, so this package is beside `babelmill` and not inside it.
`babelmill/commands/run_view.py` decides what is shown. All of Snakemake's own messages are in its log file.
"""

import logging
import sys
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase


class LogHandler(LogHandlerBase):
    """Passes Snakemake's events to the view, in a thread that Snakemake starts for them."""

    writes_to_stream: Any = True  # in place of Snakemake's own handler
    writes_to_file: Any = False  # Snakemake writes the log file itself
    has_filter: Any = True  # `emit` chooses the messages, so that --quiet drops no error
    has_formatter: Any = True
    needs_rulegraph: Any = False

    def __post_init__(self) -> None:
        self._view: Any = None

    def emit(self, record: logging.LogRecord) -> None:
        """Show an event if it is of interest to the user."""
        try:
            if self._view is None and "babelmill" in sys.modules:  # the Snakefile says from where it is imported
                from babelmill.commands.run_view import RunView

                self._view = RunView(self.common_settings)
            if self._view is not None:
                self._view.show(record)
            elif record.levelno >= logging.WARNING:
                print(record.getMessage(), file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)
