"""Fetch the model that finds the languages of a corpus, for `corpus.language_filter` (stage `identifier`).

    python -m babelmill.identifier results/settings/identifier/glotlid-1c09ff3b2a.json --threads 2

The model is one file of a repository on the Hugging Face Hub, at one commit (`config/identifiers.py`). It comes through
the Hugging Face cache, and is a hard link into it where the file system allows. So 45 languages keep it once.

This stage needs a network, which compute nodes often lack.
"""

import logging
import sys

from babelmill.config.identifiers import FILE
from babelmill.core import manifest, stage_entry
from babelmill.core.files import UserError, atomic_folder, link_or_copy, sha256
from babelmill.core.stage_entry import Job
from babelmill.hub.files import of_repository
from babelmill.hub.sources import IDENTIFIER
from babelmill.stages import IdentifierStage

log = logging.getLogger("babelmill.identifier")


def run(job: Job[IdentifierStage]) -> None:
    """Fetch the model, and compare its sha256."""
    settings = job.settings
    repository, commit, name = (settings.source[key] for key in ("repository", "commit", "file"))
    origin = f"{name} of {repository} at {commit[:8]}"
    log.info("%s", origin)
    path = of_repository(IDENTIFIER, repository, commit, commit).get([name])[name]
    wanted, found = settings.source["sha256"], sha256(path)
    if wanted != found:
        raise UserError(
            f"{name} of {repository} at {commit[:12]}: its sha256 is {found}, and not {wanted} as it should be; is"
            f" HF_ENDPOINT the Hub? If it is, delete {path.resolve()}, and run again"
        )
    with atomic_folder(job.out) as folder:
        link_or_copy(path, folder / FILE)
        figures = {"hub": settings.source | {"sha256": found}, "summary": origin}
        manifest.write(folder, settings, [FILE], figures=figures)


if __name__ == "__main__":
    sys.exit(stage_entry.main(IdentifierStage, run, __doc__))
