"""Count snapshots for `babelmill plan`: those that a run will keep, and those that a finished run has kept."""

from pathlib import Path

from babelmill.commands.text_size import BYTES_PER_TOKEN
from babelmill.config.languages import WORD
from babelmill.config.resolve import Configuration
from babelmill.config.snapshots import FOLDER, name_of, points
from babelmill.core import escape, manifest
from babelmill.core.words import plural
from babelmill.stages import STAGES


def reached(configuration: Configuration, model: str, tokens: float) -> list[float]:
    """Return the points, in millions of words, that a run on `tokens` tokens will reach, approximately."""
    words = (
        tokens * BYTES_PER_TOKEN / WORD
    )  # in other languages, the byte premium multiplies both sides and cancels out
    return [point for point in points(configuration.model(model).run.snapshots) if point * 1e6 <= words]


def note(configuration: Configuration, model: str, tokens: float) -> str | None:
    """Return a line on the snapshots of a model; None if `run.snapshots` asks for none."""
    asked = points(configuration.model(model).run.snapshots)
    if not asked:
        return None
    ahead = reached(configuration, model, tokens)
    trained = STAGES["train"].path(model, "")
    if (trained / manifest.NAME).is_file():
        run = manifest.read(trained)["figures"].get("fingerprint", "")
        folder = Path("results/checkpoints", model, run, FOLDER)
        kept = [point for point in asked if (folder / f"{name_of(point)}.json").is_file()]
        lost = [name_of(point) for point in ahead if point not in kept]
        missing = (
            f"; not kept: {escape.some(lost)} (the run ended before, or was finished when you asked for them; it is not"
            " repeated for snapshots)"
            if lost
            else ""
        )
        return f"{model}: {plural(len(kept), 'snapshot')} kept of {len(asked)}{missing}."
    beyond = f" The others of {len(asked)} are after the end of the run." if len(ahead) < len(asked) else ""
    return f"{model}: about {plural(len(ahead), 'snapshot')}, included in the disk space.{beyond}"
