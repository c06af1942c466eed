"""Try a tokenizer.json from elsewhere in a process of its own, which can be ended.

    python -m babelmill.tokens.trial tokenizer.json

The file contains patterns and replacements that run in the `tokenizers` library, where nothing can interrupt them.
Eight replacements of one character by ten, one after another, make a hundred million characters of it; some patterns
take longer than anybody waits. So, before a stage uses such a file, another process encodes some short texts with it,
with limits of time and memory.
"""

import os
import resource
import string
import subprocess
import sys
from pathlib import Path

from babelmill.core.escape import line
from babelmill.core.files import UserError
from babelmill.core.places import PACKAGE
from babelmill.tokens.tokenizer_file import load_tokenizer, vocab_size

SECONDS = 60  # loading the largest published tokenizers takes 2
MEMORY = 3 << 30  # bytes of addresses, beside those that imports take
MOST_TOKENS = 50  # per byte; Unicode's own normal forms make at most 18 characters of one
MOST_ENTRIES = 10_000_000
SENTENCE = "a cat sat on the mat, and the dog (of 12) didn't.\n\n\tYes!"
SCRIPTS = "caf\u00e9 \u4e2d\u6587 \u0e44\u0e17\u0e22 \u0434\u0430 \U0001f469\u200d\U0001f467"
TEXTS = ("x", SENTENCE, SCRIPTS, string.printable, *(part * 300 for part in (" ", "a", "1", "-", "ab", "a ")))
TOO_MUCH = "encoding a short text with it needs too much memory; use another"


def check(path: str | Path, where: str) -> None:
    """Raise a UserError, which begins with `where`, if a tokenizer.json cannot encode short texts within the limits."""
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent), "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-P", "-m", "babelmill.tokens.trial", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, env=environment, check=False)
    except subprocess.TimeoutExpired:
        raise UserError(
            f"{where}: it did not encode some short texts within {SECONDS} s: one of its patterns or replacements"
            " never ends; use another tokenizer"
        ) from None
    if done.returncode < 0:  # the library ends the process where it gets no memory
        raise UserError(f"{where}: {TOO_MUCH}")
    if done.returncode:
        message, failed = (out.decode(errors="replace").strip().split("\n")[-1] for out in (done.stdout, done.stderr))
        raise UserError(f"{where}: {message or f'it could not be tried: {line(failed, 300)}'}")


def encode_texts(path: str) -> None:
    """Encode short texts. Raise a UserError if the file or the number of tokens of a text is beyond the limits."""
    tokenizer = load_tokenizer(path)
    if not 0 < (entries := vocab_size(tokenizer)) <= MOST_ENTRIES:
        raise UserError(f"it has {entries:,} entries, but at most {MOST_ENTRIES:,} are allowed; use another tokenizer")
    for text in TEXTS:
        size, count = len(text.encode()), len(tokenizer.encode(text, add_special_tokens=False).ids)
        if count > MOST_TOKENS * size:
            raise UserError(f"it makes {count:,} tokens of a text of {size:,} bytes; use another tokenizer")


def limit_memory() -> None:
    """Limit the addresses of this process, below a limit that it already has. Without /proc, there is no limit."""
    try:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = MEMORY + used if hard == resource.RLIM_INFINITY else min(MEMORY + used, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def main() -> int:
    """Encode the texts; print an error in one line and return 1 if that fails."""
    limit_memory()
    path = sys.argv[1]
    try:
        encode_texts(path)
    except UserError as error:
        print(str(error).removeprefix(f"{path}: "))
        return 1
    except MemoryError:
        print(TOO_MUCH)
        return 1
    except BaseException as error:  # what Rust raises is no Exception
        print(f"the `tokenizers` library cannot encode a short text with it: {line(error, 200)}; use another tokenizer")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
