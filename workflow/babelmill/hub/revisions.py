"""Keep the commits of what was fetched from the Hub, in `results/hub.lock`.

A branch such as `main` is resolved to a commit when a stage fetches from it first. The stage adds a line with the
commit to the file, which no rule deletes, so new commits on the branch change no run. A copy of the file gives others
the same commits. If a line is deleted, the next fetch takes the branch's newest commit.
"""

from pathlib import Path

from babelmill.core.files import UserError

LOCK = Path("results/hub.lock")


def _key(repo_type: str, repository: str, revision: str) -> str:
    return f"{repo_type}s/{repository}@{revision}"


def _entries() -> dict[str, str]:
    """Return {key: commit}. Of two stages that fetched at once, the first one's line counts."""
    lines = [line.split() for line in LOCK.read_text(encoding="utf-8").splitlines()] if LOCK.is_file() else []
    if any(len(words) != 2 for words in lines):
        raise UserError(f"{LOCK}: each line is a repository at a revision, a space, and a commit; correct the file")
    return dict(reversed(lines))


def recorded(repo_type: str, repository: str, revision: str) -> str | None:
    """Return the commit that was fetched first; None if nothing was fetched. `repo_type` is that of a `Use`."""
    return _entries().get(_key(repo_type, repository, revision))


def record(repo_type: str, repository: str, revision: str, commit: str) -> None:
    """Record the commit that was fetched, unless one is recorded."""
    if recorded(repo_type, repository, revision) is None:
        LOCK.parent.mkdir(exist_ok=True)
        with LOCK.open("a", encoding="utf-8") as file:
            file.write(f"{_key(repo_type, repository, revision)} {commit}\n")
