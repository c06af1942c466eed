"""Add to huggingface_hub what it leaves out: retries of the requests that it sends once, and errors in one line.

The client itself waits and tries again for files, listings and uploads, also after a 429. `patiently` repeats the rest:
questions about a repository, and commits. The function that it calls must be safe to repeat.
"""

import contextlib
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from huggingface_hub import errors, get_token
from huggingface_hub.utils import disable_progress_bars, httpx, parse_ratelimit_headers

from babelmill.core.files import UserError

T = TypeVar("T")
log = logging.getLogger("babelmill.hub.client")
WAITS: tuple[int, ...] = (1, 4, 15, 30)  # seconds before each new attempt
WINDOW = 300  # seconds in which the Hub counts requests: after a 429 it asks for no longer wait
LATER = (408, 409, 412, 429)  # temporary: timeout, too many requests, or a conflict with another change
logging.getLogger("httpx2").setLevel(logging.WARNING)  # at INFO it logs every address, also signed ones
logging.getLogger("huggingface_hub._snapshot_download").setLevel(logging.ERROR)  # it warns of "no files matched"
if not sys.stderr.isatty():  # in a log, bars would be thousands of characters
    disable_progress_bars()


def patiently(ask: Callable[[], T]) -> T:
    """Call `ask`; after a temporary error, call it again after each of `WAITS`, or when the Hub says."""
    for wait in WAITS:
        try:
            return ask()
        except Exception as error:
            if not may_pass(error):
                raise
            wait = max(wait, min(asked_to_wait(error), WINDOW))
            log.warning("%s; next attempt in %d s", one_line(error), wait)
        time.sleep(wait)
    return ask()


def asked_to_wait(error: BaseException) -> int:
    """Return after how many seconds the Hub counts requests anew; 0 if the error does not say it."""
    error = cause(error)
    limit = parse_ratelimit_headers(error.response.headers) if isinstance(error, errors.HfHubHTTPError) else None
    return limit.reset_in_seconds + 1 if limit and not limit.remaining else 0


@contextlib.contextmanager
def explained(explanation: Callable[[BaseException], str | None]) -> Iterator[None]:
    """Turn an error of the client into a UserError with the line that `explanation` returns, if it returns one."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        message = explanation(error)
        if not message:
            raise
        raise UserError(message) from error


def cause(error: BaseException) -> BaseException:
    """Return the original error if the client has wrapped it: an error of the cache, or of one of several uploads."""
    wrappers = (errors.LocalEntryNotFoundError, errors.RevisionResolutionError)
    while error.__cause__ and (isinstance(error, wrappers) or type(error) is RuntimeError):
        error = error.__cause__
    return error


def may_pass(error: BaseException) -> bool:
    """Return whether an error is temporary, so that trying again makes sense."""
    error = cause(error)
    if isinstance(error, errors.HfHubHTTPError):
        return error.response.status_code in LATER or error.response.status_code >= 500
    # If a proxy answers with a page of its own, the answer is not JSON.
    return isinstance(error, httpx.TransportError | json.JSONDecodeError)


def one_line(error: BaseException) -> str:
    """Return the first line of an error's message, without the token, which a message may contain.

    For an answer of the Hub, the line is the status and the reason, without the address, which may be signed.
    """
    error = cause(error)
    text = str(error)
    if isinstance(error, errors.HfHubHTTPError):
        text = f"{error.response.status_code} {error.server_message or error.response.reason_phrase}"
    if token := get_token():
        text = text.replace(token, "<token>")
    return next((line.strip() for line in text.split("\n") if line.strip()), type(error).__name__)
