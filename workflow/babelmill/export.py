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

With `include_raw`, `training_checkpoint/` holds the run's final checkpoint, which is also a safetensors file.
"""

import contextlib
import dataclasses
import logging
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from babelmill.config.schema import Export
from babelmill.config.snapshots import FOLDER
from babelmill.core import escape, manifest, modules, stage_entry
from babelmill.core.files import UserError, atomic_folder, copy_file, write_text
from babelmill.core.places import PACKAGE
from babelmill.core.stage_entry import Job
from babelmill.core.words import short
from babelmill.release.folder.adapters import frozen_file
from babelmill.release.folder.architectures import ExportInputs
from babelmill.release.folder.hub_folder import build, prove
from babelmill.release.folder.loading import WEIGHTS
from babelmill.runtime.checkpoint import Snapshots, is_intact
from babelmill.stages import CHECKPOINTS, ExportStage
from babelmill.tokens.vocabulary import published_roles

log = logging.getLogger(__name__)

RAW_FOLDER = "training_checkpoint"
RAW = """\
# The final training checkpoint

`{run}/{step}.safetensors` is the state of the training run after its last step, without anything that could run code:

* `model.*`: the last weights; `average.*`: their average, if there is one (names as in the training code);
* `optimizer.I.J.KEY`: the state of optimizer I for its parameter J. Its parameters are numbered in the order of its
  groups. The groups are in the metadata, with the names of the parameters and everything else that is not a tensor:

```python
import json
from safetensors import safe_open

with safe_open("{run}/{step}.safetensors", "pt") as file:
    tensors = {{name: file.get_tensor(name) for name in file.keys()}}
    optimizers = json.loads(file.metadata()["state"])["optimizers"]  # each is a list of groups
names = [name for group in optimizers[0] for name in group["param_names"]]  # names[J]
```

* `optimizer.momentum.NAME`: the momentum of a matrix that Muon trains; such a matrix is in no group.

`identity.json` says which settings, version and data the run had, and `metrics.jsonl` holds its losses. If all of them
are the same, Babelmill can use the checkpoint: copy `{run}` into `results/checkpoints/` and run the
workflow, which then does not train again.
"""


class Snapshot(NamedTuple):
    """A snapshot in the exported folder: its folder, the weights it was made from, its files, and when it was kept."""

    folder: Path
    model: Path
    files: list[str]
    figures: dict[str, Any]


def copy_checkpoint(folder: Path, model: Path) -> list[str]:
    """Copy the final checkpoint of the run that made a model, and write how to use it; return the names of the files.

    `model` is the folder that the stage `train` wrote. A UserError says that the checkpoint is missing or damaged, or
    holds other weights than `model`.
    """
    run, step = model.name, f"step-{manifest.read(model)['figures']['steps']:08d}"
    source = CHECKPOINTS / run
    data, seal = source / f"{step}.safetensors", source / f"{step}.json"
    remedy = "set export.include_raw to false, or train again: snakemake -R train"
    if not (data.is_file() and seal.is_file()):
        raise UserError(f"{data}: the final checkpoint is missing; {remedy}")
    if not is_intact(data):
        raise UserError(f"{data}: damaged, its sha256 is not the one in {seal}; {remedy}")
    with safe_open(data, "pt") as file:
        averaged = any(name.startswith("average.") for name in file.keys())
        for prefix, weights in (("model", "main"), ("average" if averaged else "model", "ema")):
            for key, tensor in load_file(model / WEIGHTS[weights]).items():
                if not torch.equal(file.get_tensor(f"{prefix}.{key}"), tensor):
                    raise UserError(f"{data}: {key} differs from that of {model}; {remedy}")
    files = [f"{step}.safetensors", f"{step}.json", "identity.json", "metrics.jsonl"]
    for file in files:
        copy_file(source / file, folder / RAW_FOLDER / run / file)
    write_text(folder / RAW_FOLDER / "README.md", RAW.format(run=run, step=step))
    return [f"{RAW_FOLDER}/README.md", *(f"{RAW_FOLDER}/{run}/{file}" for file in files)]


@contextlib.contextmanager
def built_snapshots(folder: Path, run: Path, inputs: ExportInputs, export: Export) -> Iterator[dict[str, Snapshot]]:
    """Write the snapshots that a run has kept, which are not proven yet; yield them by name.

    Their models, with which they are compared, are there only inside this context.
    """
    kept, wanted = Snapshots(run), manifest.read(inputs.model)["figures"].get("snapshots", [])
    if lost := set(wanted) - kept.kept().keys():
        remedy = "train again: snakemake -R train"
        raise UserError(f"{run}: lacks {escape.some(sorted(lost), 3)}, which the training kept; {remedy}")
    one = export.model_copy(update={"variants": ["ema"], "default_variant": "ema"})
    found = {}
    with tempfile.TemporaryDirectory(prefix="babelmill-snapshots-") as place:
        for name, figures in kept.kept().items():
            target, model = folder / FOLDER / name, Path(place, name)
            target.mkdir(parents=True)
            model.mkdir()
            for file in ("config.json", manifest.NAME):  # the manifest names the weights on which adapters were trained
                copy_file(inputs.model / file, model / file)
            for weights in WEIGHTS.values():
                (model / weights).symlink_to(kept.weights(name).resolve())
            files = build(target, dataclasses.replace(inputs, model=model), one)
            found[name] = Snapshot(target, model, files, figures)
        yield found


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
        if settings.export.include_raw:
            files += copy_checkpoint(folder, train)
        with built_snapshots(folder, CHECKPOINTS / train.name, inputs, settings.export) as snapshots:
            pairs = [path for snapshot in snapshots.values() for path in (snapshot.folder, snapshot.model)]
            prove(folder, inputs, settings.export, job.out, pairs)
        shipped = [path for name in files if name.endswith(".py") for path in (PACKAGE / "model").rglob(name)]
        also = modules.of_files([PACKAGE / "release/folder/prove.py", *shipped])
        for name, snapshot in snapshots.items():
            manifest.write(snapshot.folder, settings, snapshot.files, [train], snapshot.figures, also=also)
            files.append(f"{FOLDER}/{name}/{manifest.NAME}")
        size = (folder / "model.safetensors").stat().st_size
        figures: dict[str, Any] = {"summary": f"{short(size)}B, equal to the trained model"}
        if roles := published_roles(tokenizer):
            figures["roles"] = roles
        manifest.write(folder, settings, files, [train, tokenizer, *sources], figures, also=also)


if __name__ == "__main__":
    sys.exit(stage_entry.main(ExportStage, run, __doc__))
