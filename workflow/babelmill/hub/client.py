"""Add to huggingface_hub what `download` and `publish` need: retries, errors in one line, and git's names of files.

The client of huggingface_hub repeats only some requests. `patiently` repeats any function that fails with a temporary
error, so the function must be safe to repeat.
"""

import contextlib
import hashlib
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TypeVar

from huggingface_hub import errors
from huggingface_hub.utils import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
    httpx,
    parse_ratelimit_headers,
)

from babelmill.core.files import UserError

T = TypeVar("T")
log = logging.getLogger("babelmill.hub.client")
WAITS: tuple[int, ...] = (1, 4, 15, 30)  # seconds before each new attempt
QUICK = WAITS[:2]  # for requests whose answer a user waits for
PATIENCE = 3600  # the most seconds that a request waits in all because the Hub asks for it; its windows have 300
IMPATIENCE = 10  # the same, if a user waits for the answer
logging.getLogger("httpx2").setLevel(logging.WARNING)  # at INFO it logs every address, also signed ones
# We ask for some files that may not exist, and need no warning about them.
logging.getLogger("huggingface_hub._snapshot_download").addFilter(
    lambda record: not record.getMessage().startswith("No files matched")
)
if not sys.stderr.isatty():  # in a log, bars would be thousands of characters
    disable_progress_bars()
# Status codes of temporary errors: timeout, too early, too many requests, or a conflict with another change.
LATER = (408, 409, 412, 429)


def patiently(ask: Callable[[], T], waits: Sequence[int] | None = None) -> T:
    """Call `ask`; after a temporary error (no connection, a conflict, 429, 5xx), call again after each of `waits`.

    If the Hub says how long to wait, that is waited instead, and does not count as one of `waits`, up to `PATIENCE`
    seconds in all (`IMPATIENCE` inside `impatiently`).
    """
    left = list(WAITS if waits is None else waits)
    patience = PATIENCE
    while True:
        try:
            return ask()
        except Exception as error:
            asked = asked_to_wait(error)
            if not may_pass(error) or asked > patience or (not asked and not left):
                raise
            wait = asked or left.pop(0)
            patience -= asked
            log.warning("%s; next attempt in %d s", one_line(error), wait)
        time.sleep(wait)


@contextlib.contextmanager
def impatiently(waits: Sequence[int] = ()) -> Iterator[None]:
    """Wait no longer than `waits` inside the `with` block, and hide the client's progress bars: somebody is waiting."""
    global WAITS, PATIENCE
    before, hidden = (WAITS, PATIENCE), are_progress_bars_disabled()
    WAITS, PATIENCE = min(WAITS, tuple(waits), key=len), IMPATIENCE
    disable_progress_bars()
    try:
        yield
    finally:
        WAITS, PATIENCE = before
        if not hidden:
            enable_progress_bars()


def asked_to_wait(error: BaseException) -> int:
    """Return how many seconds the Hub asks to wait; 0 if it does not ask.

    It may ask with a number of seconds or a date (`Retry-After`), or say when its window ends (`RateLimit`).
    """
    error = cause(error)
    if not isinstance(error, errors.HfHubHTTPError):
        return 0
    headers = error.response.headers
    asked, now = headers.get("Retry-After", "").strip(), headers.get("Date", "")
    if re.fullmatch(r"\d{1,9}", asked, re.ASCII):
        return int(asked)
    with contextlib.suppress(ValueError, TypeError):  # no date
        until = parsedate_to_datetime(asked)
        # The server's own clock counts, if it says the time: this machine's may be wrong.
        return max(0, int((until - (parsedate_to_datetime(now) if now else datetime.now(UTC))).total_seconds()))
    limit = parse_ratelimit_headers(headers) if error.response.status_code == 429 else None
    return limit.reset_in_seconds + 1 if limit and limit.remaining == 0 else 0  # it rounds down


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
    while error.__cause__ and (isinstance(error, errors.LocalEntryNotFoundError) or type(error) is RuntimeError):
        error = error.__cause__
    return error


def may_pass(error: BaseException) -> bool:
    """Return whether an error is temporary, so that trying again makes sense."""
    error = cause(error)
    if isinstance(error, errors.OfflineModeIsEnabled):
        return False
    if isinstance(error, errors.HfHubHTTPError):
        return error.response.status_code in LATER or error.response.status_code >= 500
    # If a proxy answers with a page of its own, the answer is not JSON.
    return isinstance(error, httpx.TransportError | json.JSONDecodeError) or "Consistency check failed" in str(error)


def out_of_reach(error: BaseException | None) -> bool:
    """Return whether requests for other repositories would fail in the same way."""
    error = cause(error) if error else None
    limited = isinstance(error, errors.HfHubHTTPError) and error.response.status_code == 429
    return limited or isinstance(error, httpx.TransportError)


def one_line(error: BaseException) -> str:
    """Return the first line of an error's message, without the token, which a message may contain.

    For an answer of the Hub, the line is the status and the reason, without the address, which may be signed.
    """
    error = cause(error)
    text = str(error)
    if isinstance(error, errors.HfHubHTTPError):
        text = f"{error.response.status_code} {error.server_message or error.response.reason_phrase}"
    if token := os.environ.get("HF_TOKEN", "").strip():
        text = text.replace(token, "<HF_TOKEN>")
    return next((line.strip() for line in text.split("\n") if line.strip()), type(error).__name__)


def commit_of(repository: str, sha: str | None) -> str:
    """Return the commit in the Hub's answer about a repository; raise a UserError if the answer has none."""
    if sha is None:
        raise UserError(f"the answer about the repository {repository} has no commit; is HF_ENDPOINT a Hub?")
    return sha


def git_oid(path: Path) -> str:
    """Return the id that git gives to a file's content."""
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
