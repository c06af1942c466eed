"""Print the exact version of every package that the environment needs, for `envs/lock.txt` (`make lock`).

It follows the requirements of pyproject.toml through the packages that are installed. PyTorch itself is left out, and
what only its CUDA builds bring: the version stands in pyproject.toml, and which build it is depends on the machine.
"""

import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
OF_ITS_BUILD = ("torch", "triton", "nvidia-", "cuda-")
KEPT = ("nvidia-ml-py",)  # reads GPU figures, and is not PyTorch's
HEADER = "# Every package of `make setup` but PyTorch, with its version. Made by `make lock`; do not edit.\n"


def locked() -> dict[str, str]:
    """Return {name: version} of all packages that the project and its extras require, directly or not."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [text for group in project["optional-dependencies"].values() for text in group]
    waiting = [Requirement(text) for text in [*project["dependencies"], *extras]]
    seen, found = set(), {}
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if (key := (name, frozenset(wanted.extras))) in seen:
            continue
        seen.add(key)
        found[name] = distribution(name).version
        for text in distribution(name).requires or []:
            further = Requirement(text)
            marker = further.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in {"", *wanted.extras}):
                waiting.append(further)
    return {n: v for n, v in sorted(found.items()) if n in KEPT or not n.startswith(OF_ITS_BUILD)}


def text() -> str:
    """Return the content of `lock.txt`."""
    return HEADER + "".join(f"{name}=={version}\n" for name, version in locked().items())


if __name__ == "__main__":
    print(text(), end="")
