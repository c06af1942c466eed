"""Count the words that a run has read, and say which snapshots of its weights are due: people count in words.

The stage `shards` counts words while it reads the text.
"""

import logging
from pathlib import Path

from babelmill.config.snapshots import kept_at_the_end, missing_points, name_of, points, say_missing
from babelmill.core import escape, manifest
from babelmill.core.words import plural
from babelmill.runtime.run_folder import Done, RunFolder
from babelmill.stages import RunSettings
from babelmill.training.plan.plan import Plan

log = logging.getLogger(__name__)


def training_words(shards: Path, bytes_per_word: float | None) -> float:
    """Return the number of words of a language's training text.

    Words are separated by whitespace, unless `bytes_per_word` says how many bytes count as a word.
    """
    figures = manifest.read(shards)["figures"]
    return figures["words"]["train"] if bytes_per_word is None else figures["bytes"]["train"] / bytes_per_word


def snapshot_steps(plan: Plan, per_token: float, points: list[float]) -> dict[int, list[float]]:
    """Return {step: points}: for each point, in million words, the first step after which the run has read that many.

    A point shortly after the end of the run belongs to the last step. Later ones are dropped.
    """
    found: dict[int, list[float]] = {}
    for point in kept_at_the_end(points, per_token * plan.tokens_until(plan.steps) / 1e6):
        step = plan.first_step_with(point * 1e6 / per_token) or plan.steps
        found.setdefault(step, []).append(point)
    return found


class DueSnapshots:
    """Says which snapshots of its weights a run keeps (`run.snapshots`)."""

    def __init__(self, looked_after: RunSettings, plan: Plan, per_token: float, folder: RunFolder):
        """Prepare for a run; `per_token`: how many words a token stands for."""
        self._looked_after, self._plan, self._per_token, self._folder = looked_after, plan, per_token, folder
        self._asked = points(looked_after.run.snapshots)
        self._possible = plan.train.objective != "labels"
        self._read = per_token * plan.tokens_until(plan.steps) / 1e6  # million words of the whole run

    def due(self, done: Done) -> dict[int, list[float]]:
        """Return {step: points} of the snapshots to be kept. Log those whose steps this run has passed before."""
        if not self._asked:
            return {}
        if not self._possible:
            log.warning("run.snapshots: no snapshot is kept, since a label model does not read running text")
            return {}
        last, kept = self._plan.steps, self._folder.snapshots.kept()
        steps = snapshot_steps(self._plan, self._per_token, self._asked)
        late = {step: [point for point in found if name_of(point) not in kept] for step, found in steps.items()}
        # Weights that are here just now can still be kept, also those of a finished run.
        ahead = {step: late[step] if step == done.steps else steps[step] for step in steps if step >= done.steps}
        text = f"{plural(sum(map(len, ahead.values())), 'snapshot')} will be kept in {self._read:,.4g} million words"
        if lost := [name_of(point) for step in late if step < done.steps for point in late[step]]:
            text += f"; not kept, since the run is already further: {escape.some(lost)}"
        if after := [name_of(point) for point in steps.get(last, []) if point > self._read]:
            text += f"; {after[0]} holds the weights of the run's end"
        if later := self._asked[sum(map(len, steps.values())) :]:
            text += f"; the run ends before {escape.some(map(name_of, later), 1)}"
        log.info("run.snapshots: %s", text)
        self._too_late()
        return ahead

    def missing(self) -> list[str]:
        """Return the names of the snapshots that the finished run has not kept, and warn of those it ended before."""
        if not self._possible:
            return []
        reached, kept = kept_at_the_end(self._asked, self._read), self._folder.snapshots.kept()
        return [*(name for name in map(name_of, reached) if name not in kept), *self._too_late()]

    def _too_late(self) -> list[str]:
        """Return the names of the snapshots that the run ends too early for, and warn about them."""
        missing = missing_points(self._looked_after.run.snapshots, self._read)
        if text := say_missing(missing, self._read):
            log.warning("%s", text)
        return [name_of(point) for point in missing]
