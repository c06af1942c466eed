"""Write the Hugging Face folder of a trained model, and prove that it equals the training model (stage `export`).

    python -m babelmill.export results/settings/export/eng-22a2c4b7ef.json --threads 2

The folder holds the weights (`model.safetensors` is the default variant, `model.ema.safetensors` or
`model.main.safetensors` the other one; because of an index, the default one can also be loaded by its name), the
tokenizer, the configuration, and the code: the training model's own files and the transformers classes around them.
Before the folder is moved to its place, a new process loads it as users do and compares its logits with the training
model's (`prove.py`). If they differ, this is an error, and the folder is removed.

Each snapshot that the run kept (`run.snapshots`) becomes a folder below `snapshots/`, such as `snapshots/chck_10M`, and
is proven in the same way. Its folder is like the model's own, but `model.safetensors` holds the weights of that moment,
and there is no other variant. It has its own manifest, so that a program that reads only the model need not read the
snapshots. In the repository, each snapshot becomes a branch.
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any

from babelmill.config.schema import Export
from babelmill.config.snapshots import FOLDER
from babelmill.core import escape, manifest, modules, stage_entry
from babelmill.core.files import UserError, atomic_folder
from babelmill.core.places import PACKAGE
from babelmill.core.stage_entry import Job
from babelmill.core.words import short
from babelmill.release.folder.hub_folder import ExportInputs, build, prove
from babelmill.runtime.checkpoint import Snapshots
from babelmill.stages import CHECKPOINTS, ExportStage
from babelmill.tokens.vocabulary import published_roles


def build_snapshots(folder: Path, run: Path, inputs: ExportInputs, export: Export) -> dict[Path, Path]:
    """Write a folder for each snapshot that a run has kept, and return {folder: the weights it was made from}."""
    kept, wanted = Snapshots(run), manifest.read(inputs.model)["figures"].get("snapshots", [])
    if lost := set(wanted) - kept.kept().keys():
        remedy = "train again: snakemake -R train"
        raise UserError(f"{run}: lacks {escape.some(sorted(lost), 3)}, which the training kept; {remedy}")
    one = export.model_copy(update={"variants": ["ema"], "default_variant": "ema"})
    found = {folder / FOLDER / name: kept.weights(name) for name in kept.kept()}
    for place, weights in found.items():
        place.mkdir(parents=True)
        build(place, dataclasses.replace(inputs, snapshot=weights), one)
    return found


def frozen_file(model: Path, source: Path) -> Path:
    """Return the file with the frozen weights on which a model's adapters were trained.

    `model`: its folder from the stage `train`, whose manifest says which weights these were. `source`: the folder of
    the model that training continued from. A UserError says that the file has other weights now, or is missing.
    """
    wanted = manifest.read(model)["figures"]["source"]["sha256"]
    found = [name for name, entry in manifest.read(source)["files"].items() if entry["sha256"] == wanted]
    if not found:
        raise UserError(f"{source} does not contain the weights on which {model} was trained; run the workflow again")
    manifest.verify(source, found[0])
    return source / found[0]


def run(job: Job[ExportStage]) -> None:
    """Build the folder, prove it, and move it to its place."""
    settings = job.settings
    train, tokenizer, sources = settings.folder("train"), settings.folder("tokenizer"), settings.folders("source")
    manifest.verify(train)
    manifest.verify(tokenizer, "tokenizer.json")
    manifest.verify_upstream(train, tokenizer, *settings.folders("shards"))
    for shards in settings.folders("shards"):
        manifest.verify(shards, "validation.safetensors")
    with atomic_folder(job.out) as folder:
        frozen = frozen_file(train, sources[0]) if sources else None
        inputs = ExportInputs(train, tokenizer, settings.folders("shards"), frozen)
        files = build(folder, inputs, settings.export)
        checkpoints = CHECKPOINTS / train.name
        snapshots = build_snapshots(folder, checkpoints, inputs, settings.export)
        prove(folder, inputs, settings.export, job.out, snapshots.items())
        shipped = [path for name in files if name.endswith(".py") for path in (PACKAGE / "model").rglob(name)]
        also = modules.of_files([PACKAGE / "release/folder/prove.py", *shipped])
        for name, figures in Snapshots(checkpoints).kept().items():
            place = folder / FOLDER / name
            manifest.write(place, settings, [path.name for path in place.iterdir()], [train], figures, also=also)
            files.append(f"{FOLDER}/{name}/{manifest.NAME}")
        size = (folder / "model.safetensors").stat().st_size
        figures: dict[str, Any] = {"summary": f"{short(size)}B, equal to the trained model"}
        if roles := published_roles(tokenizer):
            figures["roles"] = roles
        manifest.write(folder, settings, files, [train, tokenizer, *sources], figures, also=also)


if __name__ == "__main__":
    sys.exit(stage_entry.main(ExportStage, run, __doc__))
