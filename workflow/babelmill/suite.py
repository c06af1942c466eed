"""Write the items that an evaluation suite has for a language, as one table (stage `suite`).

    python -m babelmill.suite results/settings/suite/blimp_eng-a466db5282.json --threads 2

The stage reads the user's own files, or fetches the files of the language from a dataset on the Hugging Face Hub, at
one commit (see `download`). It writes `items.parquet` (its columns: `suites/items.py`) and
`manifest.json`, whose figures count items that may be wrong. No data of a suite ships with the project or with a model.

This stage needs a network, which compute nodes often lack.
"""

import logging
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from huggingface_hub.utils import disable_progress_bars

from babelmill.config.datasets import located
from babelmill.core import escape, local_sources, manifest, stage_entry
from babelmill.core.files import UserError, atomic_write
from babelmill.core.stage_entry import Job
from babelmill.core.words import plural
from babelmill.hub import revisions
from babelmill.hub.files import of_source
from babelmill.hub.sources import SUITE
from babelmill.stages import SuiteStage
from babelmill.suites.items import ITEMS, NOUNS, figures, read_items

log = logging.getLogger("babelmill.suite")


def from_the_hub(settings: SuiteStage, source: dict[str, Any]) -> tuple[list[Path], dict[str, Any]]:
    """Fetch the files that match the globs; return their paths, sorted, and where they come from."""
    files = of_source(SUITE, source, below=True)
    names = sorted(files.matching(settings.files, settings.languages[0]))
    log.info("%s of %s at %s", plural(len(names), "file"), source["repository"], files.figures["commit"])
    paths = files.get(names)
    revisions.record(SUITE.repo_type, **files.figures)
    return [paths[name] for name in names], files.figures


def run(job: Job[SuiteStage]) -> None:
    """Read the items, check them and write them."""
    settings, out = job.settings, job.out
    disable_progress_bars()
    origin: dict[str, Any] = {}
    listing: list[dict[str, Any]] = []
    if settings.source:
        paths, origin = from_the_hub(settings, settings.source)
    else:
        named = local_sources.distinct(sorted({path for source in settings.sources for path in located(source)}))
        paths = [Path(path) for path in named]
        hashed = local_sources.hashes(named)
        first_with = {digest: path for path, digest in reversed(hashed.items())}
        for path, digest in hashed.items():
            if path != (first := first_with[digest]):
                where = f"{escape.line(path)}: suites.{settings.suite}"
                raise UserError(f"{where}: this file is a copy of {escape.line(first)}; name only one of them")
        listing = [{"path": path, "sha256": digest} for path, digest in hashed.items()]
    table = read_items(settings, paths)
    found = figures(settings.kind, table) | {"hub": origin or None, "sources": listing}
    items = plural(len(table), NOUNS[settings.kind])
    for key in ("identical", "duplicates"):
        if found.get(key):
            log.warning("%s, %s: %d of %s are %s", settings.suite, settings.languages[0], found[key], items, key)
    out.mkdir(parents=True, exist_ok=True)
    with atomic_write(out / ITEMS) as file:
        pq.write_table(table, file, compression="zstd")
    found["summary"] = f"{items} of {plural(found['paradigms'], 'paradigm')}"
    manifest.write(out, settings, [ITEMS], figures=found)
    log.info("%s, %s: %s", settings.suite, settings.languages[0], found["summary"])


if __name__ == "__main__":
    sys.exit(stage_entry.main(SuiteStage, run, __doc__))
