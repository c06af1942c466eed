"""Count snapshots for `babelmill plan`: those that a run will keep, and those that a finished run has kept."""

from pathlib import Path

from babelmill.config.inputs import set_aside
from babelmill.config.resolve import Configuration
from babelmill.config.snapshots import (
    FOLDER,
    kept_at_the_end,
    missing_points,
    name_of,
    points,
    say_missing,
    say_probably_missing,
)
from babelmill.core import manifest
from babelmill.core.escape import some
from babelmill.core.words import plural
from babelmill.stages import STAGES


def reached(configuration: Configuration, model: str, words: float) -> list[float]:
    """Return the points, in millions of words, that a run on so many words will keep."""
    return kept_at_the_end(points(configuration.model(model).run.snapshots), words / 1e6)


def note(configuration: Configuration, model: str, words: float, epochs: float, exact: bool) -> str | None:
    """Return a line on the snapshots of a model; None if `run.snapshots` asks for none.

    `words`: how many words the run reads; `epochs`: how often it reads the training text; `exact`: whether these words
    are counted, not estimated.
    """
    resolved = configuration.model(model)
    asked = points(resolved.run.snapshots)
    if not asked:
        return None
    ahead = reached(configuration, model, words)
    missing = missing_points(resolved.run.snapshots, words / 1e6)
    ends = epochs, resolved.train.max_steps, set_aside(configuration, model)
    text = say_missing(missing, words / 1e6, *ends) if exact else say_probably_missing(missing, words / 1e6)
    beyond = f" {text[0].upper()}{text[1:]}." if text else ""
    trained = STAGES["train"].path(model, "")
    if (trained / manifest.NAME).is_file():
        run = manifest.read(trained)["figures"].get("fingerprint", "")
        folder = Path("results/checkpoints", model, run, FOLDER)
        kept = [point for point in asked if (folder / f"{name_of(point)}.json").is_file()]
        lost = [name_of(point) for point in ahead if point not in kept]
        unkept = (
            f"; not kept: {some(lost)} (the run ended before, or was finished when you asked for them; it is not"
            " repeated for snapshots)"
            if lost
            else ""
        )
        return f"{model}: {plural(len(kept), 'snapshot')} kept of {len(asked)}{unkept}.{beyond}"
    return f"{model}: about {plural(len(ahead), 'snapshot')} of {len(asked)}, included in the disk space.{beyond}"
