"""What `download` and `publish` add to huggingface_hub: patience, errors in a line, and git's names of files.

The client repeats some requests and not others. `patiently` repeats whatever it is given, where trying again makes
sense, so what it is given must be safe to repeat.
"""

import contextlib
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from huggingface_hub import errors
from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars, httpx

from babelmill.core.files import UserError

T = TypeVar("T")
log = logging.getLogger("babelmill.hub.client")
WAITS: tuple[int, ...] = (1, 4, 15, 30)  # seconds before each new attempt
QUICK = WAITS[:2]  # where somebody waits for the answer
logging.getLogger("httpx2").setLevel(logging.WARNING)  # at INFO it logs every address, signed ones too
# Whoever asks for files that may not be there knows that they may not.
logging.getLogger("huggingface_hub._snapshot_download").addFilter(
    lambda record: not record.getMessage().startswith("No files matched")
)
# Not yet, too many, and: another change of the same repository was faster.
LATER = (408, 409, 412, 429)


def patiently(ask: Callable[[], T], waits: Sequence[int] | None = None) -> T:
    """Call `ask`, again after each of `waits` where the failure may pass: no connection, a conflict, 429, 5xx."""
    for wait in WAITS if waits is None else waits:
        try:
            return ask()
        except Exception as error:
            if not may_pass(error):
                raise
            wait = max(wait, asked_to_wait(error))
            log.warning("%s; next attempt in %d s", one_line(error), wait)
            time.sleep(wait)
    return ask()


@contextlib.contextmanager
def impatiently(waits: Sequence[int] = ()) -> Iterator[None]:
    """Within, wait no longer than so, and draw none of the client's bars: a plan is not worth a minute of waiting."""
    global WAITS
    before, hidden = WAITS, are_progress_bars_disabled()
    WAITS = tuple(waits)
    disable_progress_bars()
    try:
        yield
    finally:
        WAITS = before
        if not hidden:
            enable_progress_bars()


def asked_to_wait(error: BaseException) -> int:
    """Return the seconds that an answer of the Hub asks to wait, a quarter of an hour at most; 0 if it asks none."""
    error = cause(error)
    asked = error.response.headers.get("Retry-After", "") if isinstance(error, errors.HfHubHTTPError) else ""
    return min(int(asked), 900) if asked.isdecimal() else 0


@contextlib.contextmanager
def explained(explanation: Callable[[BaseException], str | None]) -> Iterator[None]:
    """Turn what the client raises into the one line that `explanation` has for it, if it has one."""
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
    """What was wrong, where the client wraps it: a cache that cannot be filled, one of several uploads."""
    while error.__cause__ and (isinstance(error, errors.LocalEntryNotFoundError) or type(error) is RuntimeError):
        error = error.__cause__
    return error


def may_pass(error: BaseException) -> bool:
    """Whether trying again makes sense."""
    error = cause(error)
    if isinstance(error, errors.OfflineModeIsEnabled):
        return False
    if isinstance(error, errors.HfHubHTTPError):
        return error.response.status_code in LATER or error.response.status_code >= 500
    # A page of some proxy in place of an answer is no JSON.
    return isinstance(error, httpx.TransportError | json.JSONDecodeError) or "Consistency check failed" in str(error)


def one_line(error: BaseException) -> str:
    """The first line of an error's message, without the token, should anybody have echoed it.

    Of an answer of the Hub it is status and reason, not its address, which may be signed.
    """
    error = cause(error)
    text = str(error)
    if isinstance(error, errors.HfHubHTTPError):
        text = f"{error.response.status_code} {error.server_message or error.response.reason_phrase}"
    if token := os.environ.get("HF_TOKEN", "").strip():
        text = text.replace(token, "<HF_TOKEN>")
    return next((line.strip() for line in text.split("\n") if line.strip()), type(error).__name__)


def commit_of(repository: str, sha: str | None) -> str:
    """Return the commit that the Hub says a repository is at; a UserError if it says none."""
    if sha is None:
        raise UserError(f"the answer about the repository {repository} names no commit; is HF_ENDPOINT a Hub?")
    return sha


def git_oid(path: Path) -> str:
    """The name that git gives to a file's content."""
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
