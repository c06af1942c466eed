"""Export the snapshots of a run as Hugging Face folders: `snapshots/chck_10M` inside the model's folder, and so on.

Each snapshot becomes a branch of the repository. Its folder is like the model's own, but `model.safetensors` holds the
weights of that moment, and there is no other variant. Each snapshot is proven like the model. It has its own manifest,
so that a program that reads only the model need not read the snapshots.
"""

import dataclasses
import logging
import tempfile
from pathlib import Path

from babelmill.config.schema import Export
from babelmill.config.snapshots import FOLDER
from babelmill.core import manifest
from babelmill.core.files import copy_file
from babelmill.release.folder.architecture import ExportInputs
from babelmill.release.folder.hub_folder import build, prove
from babelmill.release.folder.loading import WEIGHTS
from babelmill.runtime.checkpoint import Snapshots

log = logging.getLogger(__name__)


def export_snapshots(
    folder: Path, run: Path, inputs: ExportInputs, export: Export, asked: manifest.StageSettings
) -> list[str]:
    """Write and prove the snapshots that a run has kept. Return the names of their manifests below `folder`."""
    kept = Snapshots(run)
    one = export.model_copy(update={"variants": ["ema"], "default_variant": "ema"})
    found = []
    for name, figures in kept.kept().items():
        target = folder / FOLDER / name
        target.mkdir(parents=True)
        with tempfile.TemporaryDirectory(prefix="babelmill-snapshot-") as place:
            model = Path(place)
            for file in ("config.json", manifest.NAME):  # the manifest names the weights on which adapters were trained
                copy_file(inputs.model / file, model / file)
            for weights in WEIGHTS.values():
                (model / weights).symlink_to(kept.weights(name).resolve())
            proven = dataclasses.replace(inputs, model=model)
            files = build(target, proven, one)
            prove(target, proven, one, target)
        manifest.write(target, asked, files, [inputs.model], figures)
        found.append(f"{FOLDER}/{name}/{manifest.NAME}")
        log.info("%s: proven", name)
    return found
