"""Print the licence of every package in the lock files that `make setup` installs on this machine (`make lock`)."""

import re
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

LOCKS = ("lock.txt", "lock-tools.txt")
HEADER = "# The licence of every package of `make setup`, as the package says it. Made by `make lock`; do not edit.\n"
CLASSIFIER = re.compile(r"License :: (?:OSI Approved :: )?(.+)")


def licence(name: str) -> str:
    """Return the licence of an installed package: its expression, else its classifiers, else a first line of text."""
    package = distribution(name)
    about = package.metadata
    classes = [match[1] for line in about.get_all("Classifier") or [] if (match := CLASSIFIER.fullmatch(line))]
    texts = [about["License"] or "", *(file.read_text() for file in package.files or [] if "LICENSE" in file.name)]
    stated = next((text.strip().splitlines()[0] for text in texts if text.strip()), "unknown")
    return about["License-Expression"] or "; ".join(classes) or stated


def text() -> str:
    """Return the content of `licences.txt`."""
    lines = [line for lock in LOCKS for line in Path(__file__).with_name(lock).read_text(encoding="utf-8").splitlines()]
    packages = [Requirement(line.rstrip(" \\")) for line in lines if "==" in line]
    names = {package.name for package in packages if package.marker is None or package.marker.evaluate()} | {"torch"}
    return HEADER + "".join(f"{name}: {licence(name)}\n" for name in sorted(names))


if __name__ == "__main__":
    print(text(), end="")
