"""Find the version of a stage's code: it says which code digests give the same results.

An upgrade of Babelmill must not train 45 models again because a message changed. But after an edit of the loss, the
models must be trained again. So each stage has a version, which changes when its results change, and each version has a
list of the code digests that are known to give these results, in `code_versions.txt`:

    train 2 3f2a91c0 3f2a91c05e7d4b11 began
    train 2 3f2a91c0 88d0a4f2c9b37e60 0.2.0
    train 3 b1946ac9 b1946ac92492d234 began when {"train.objective": ["labels"]}
    train 3 b1946ac9 1c6a0f5de2b97348 unreleased

A line contains the stage, its version, the first digits of the digest that the version began with, a digest, and what
the digest is: that with which the version began, that of a release, or that of the present code if it is neither. The
next accepted edit replaces an "unreleased" line: results name a version by its label, so nobody needs the digests in
between. A stage that imports `labels/` has two digests, one of its code without this package, and one of all its code
for label models (see `code_digest.py`). Both have lines like these.

If the digest of the present code is in the list, the settings file of the stage says `train 2 (3f2a91c0)`. Otherwise it
says the digest itself. So a user who edits the code reruns the edited stages, and an upgrade reruns only the stages
that have a new version. A version with `when` is valid for models whose settings have one of these values for each
key. With `unless`, in the same form, it is not valid for models whose settings have them. All other models keep the
version before it.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from babelmill.core.files import UserError, write_text
from babelmill.core.places import PACKAGE

PATH = PACKAGE / "code_versions.txt"
LINE = re.compile(
    r"(\w+) (\d+) ([0-9a-f]{8}) ([0-9a-f]{16})"
    r" (?:began(?: when (\{.*?\}))?(?: unless (\{.*\}))?|(unreleased)|\d[\w.]*)"
)
LABEL = re.compile(r"(\w+) (\d+) \(([0-9a-f]{8})\)")

# A function that returns the value of a dotted key such as train.objective; UNKNOWN if it does not know the value.
Lookup = Callable[[str], Any]
UNKNOWN = object()
OF_LABELS = {"train.objective": ["labels"]}


@dataclasses.dataclass
class Version:
    """A version of a stage's code."""

    # stage, number: the stage and the number, which together name the version.
    stage: str
    number: int
    first: str  # the first digits of the digest that it began with, so that version 4 has different names in two forks
    digests: list[str]  # all digests that are known to give the results of this version
    unreleased: list[str]  # those of them that no release has and no version began with
    # The values of settings, by dotted key, to which the version is limited; empty if it has no limit.
    when: dict[str, list[Any]]
    # The version is not valid for settings that have all of these; empty if there are none.
    unless: dict[str, list[Any]]

    @property
    def label(self) -> str:
        """Return the version as settings files name it: `train 2 (3f2a91c0)`."""
        return f"{self.stage} {self.number} ({self.first})"

    def holds(self, lookup: Lookup) -> bool | None:
        """Return whether the version is valid for settings; None if they do not contain all keys that decide it."""
        inside, outside = _has_all(self.when, lookup), bool(self.unless) and _has_all(self.unless, lookup)
        if inside is False or outside is True:
            return False
        return None if inside is None or outside is None else True


def _has_all(limits: dict[str, list[Any]], lookup: Lookup) -> bool | None:
    """Return whether settings have one of the values of each key; None if they do not contain all keys."""
    values = [(lookup(key), allowed) for key, allowed in limits.items()]
    if any(value is not UNKNOWN and value not in allowed for value, allowed in values):
        return False
    return None if any(value is UNKNOWN for value, _ in values) else True


@functools.cache
def read() -> dict[str, list[Version]]:
    """Return {stage: its versions, the oldest first}; raise a UserError that names a line of another form."""
    found: dict[str, list[Version]] = {}
    for number, line in enumerate(PATH.read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = LINE.fullmatch(line)
        if not match:
            raise UserError(
                f"{PATH}, line {number}: expected stage, version, first digits, digest and release, not {line!r}"
            )
        stage, version, first, digest, when, unless, unreleased = match.groups()
        versions = found.setdefault(stage, [])
        known = next((v for v in versions if (v.number, v.first) == (int(version), first)), None)
        if known is None:
            known = Version(stage, int(version), first, [], [], {}, {})
            versions.append(known)
        known.digests.append(digest)
        known.unreleased += [digest] if unreleased else []
        known.when |= json.loads(when) if when else {}
        known.unless |= json.loads(unless) if unless else {}
    return {stage: sorted(versions, key=lambda v: v.number) for stage, versions in found.items()}


def fitting(stage: str, digest: str, lookup: Lookup) -> list[Version]:
    """Return the version of the code with this digest, for the settings that `lookup` knows.

    The list is empty if the digest belongs to no version. It has several versions if `lookup` does not know all values.
    """
    versions = read().get(stage, [])
    place = next((i for i, version in enumerate(versions) if digest in version.digests), None)
    possible = []
    for version in reversed(versions[: place + 1] if place is not None else []):
        holds = version.holds(lookup)
        if holds is not False:
            possible.append(version)
        if holds:
            break
    return possible


def newest(stage: str) -> Version | None:
    """Return the last version of a stage; raise a UserError if two branches each began a version with this number."""
    versions = read().get(stage, [])
    if len(versions) > 1 and versions[-1].number == versions[-2].number:
        both = " and ".join(version.label for version in versions[-2:])
        raise UserError(
            f"{PATH.name}: two branches each began a version with the same number: {both}; begin the next version:"
            f" babelmill accept --new {stage} --results ..."
        )
    return versions[-1] if versions else None


def version_of(stage: str, digest: str) -> Version | None:
    """Return the version that has a digest; None if no version has it."""
    return next((version for version in read().get(stage, []) if digest in version.digests), None)


def add(stage: str, *digests: str) -> None:
    """Write down that the present code of a stage (all its digests) gives the results of its newest version.

    Digests that a version has stay there.
    """
    new = [digest for digest in digests if not version_of(stage, digest)]
    if not new:
        return
    version = newest(stage)
    if version is None:
        raise UserError(f"{stage} has no version yet: use --new {stage}")
    _replace_unreleased(stage, digests, [f"{stage} {version.number} {version.first} {each} unreleased" for each in new])


def begin(
    stage: str, digests: Sequence[str], when: dict[str, list[Any]], unless: dict[str, list[Any]] | None = None
) -> Version:
    """Begin a new version of a stage with the edited code, limited to `when` and without `unless`; return the version.

    `digests`: without `labels/`, and of all the code. If the first is not new, only `labels/` was edited, so the
    version is limited to label models. If all the code was accepted for earlier versions by mistake, it moves to the
    new version. A UserError says that versions began with these digests, or releases have them, so nothing is new.
    """
    known = {digest: version_of(stage, digest) for digest in digests}
    new = [digest for digest, having in known.items() if not having]
    new = new or [digest for digest, having in known.items() if having and digest in having.unreleased]
    if not new and (having := known[digests[-1]]):
        raise UserError(f"{stage}: this code already belongs to {having.label}: there is no edit for a new version")
    if digests[0] not in new:
        when = when | OF_LABELS
    number = 1 + max((version.number for version in read().get(stage, [])), default=0)
    version = Version(stage, number, new[0][:8], new, [], when, unless or {})
    limits = {"when": version.when, "unless": version.unless}
    began = " ".join(
        ["began", *(f"{key} {json.dumps(limit, sort_keys=True)}" for key, limit in limits.items() if limit)]
    )
    added = [f"{stage} {number} {version.first} {digest} {began}" for digest in new]
    _replace_unreleased(stage, known.keys() - set(new), added)
    return version


def _replace_unreleased(stage: str, kept: Collection[str], added: list[str]) -> None:
    """Remove the lines of a stage's unreleased digests from the list, except for digests to be `kept`; add lines."""
    lines = PATH.read_text(encoding="utf-8").splitlines()
    unreleased = re.compile(rf"{stage} \d+ \w{{8}} (\w{{16}}) unreleased")
    lines = [line for line in lines if not (found := unreleased.fullmatch(line)) or found[1] in kept]
    write_text(PATH, "".join(f"{line}\n" for line in [*lines, *added]))
    read.cache_clear()


def results_between(before: str, now: str, changelog: Path, others: Collection[str] = ()) -> list[str]:
    """Return the CHANGELOG's "Results" lines of the versions after label `before` up to label `now`, oldest first.

    A line has the form `Results: train 3 (b1946ac9): ...`. `before` may be a digest that belongs to no version. The
    lines of versions with labels in `others` are left out: these versions are limited to other settings.
    """
    match, last = LABEL.fullmatch(before), LABEL.fullmatch(now)
    if not last or not changelog.is_file():
        return []
    first = int(match[2]) if match and match[1] == last[1] else int(last[2]) - 1
    found = re.findall(rf"Results: ({last[1]} (\d+) \(\w{{8}}\)): (.+)", changelog.read_text(encoding="utf-8"))
    found = [line for line in found if line[0] not in others]
    lines = {int(number): text.strip() for label, number, text in found if label == now or int(number) < int(last[2])}
    return [lines[number] for number in sorted(lines) if first < number <= int(last[2])]
