"""Show what would run for a model, stage by stage, and why.

    babelmill why eng

This command compares the manifests in the results with the present settings, code and files, so it needs no records of
Snakemake. `snakemake -n` decides by the same files; this command shows which value in them is the reason.
"""

import argparse
import dataclasses
import hashlib
from pathlib import Path
from typing import Any

from babelmill.config import loading
from babelmill.config.inputs import CORPORA, SETTINGS, has_tokenizer_of_source
from babelmill.config.layers import flatten
from babelmill.config.model_source import ModelSource
from babelmill.config.resolve import ROOT, Configuration
from babelmill.core import manifest
from babelmill.core.code_versions import results_between
from babelmill.core.files import canonical_json, read_json, sha256
from babelmill.core.globs import expand_glob
from babelmill.core.local_sources import hashes
from babelmill.runtime.identity import fingerprint, identity
from babelmill.settings import settings_of, versions_of_others
from babelmill.stages import STAGES, TO_CONVERTED, Stage, leading_to

CHECKPOINTS = Path("results/checkpoints")
OWN_WORDS = ("code", "sources")  # keys of a settings file that `changed_code` and `changed_sources` explain


@dataclasses.dataclass(eq=False)
class Job:
    """A stage of one model, or of one of its languages or parts.

    Attributes:
        stage: its entry in `STAGES`.
        name: the language or model that its settings belong to.
        part: the language, suite or table, if the stage has a job for each, else "".
        folder: the folder of its results.
        reasons: why it runs; empty if it does not run.
        reads, readers: the jobs whose results it reads, and those that read its results.
        runs: whether it runs.
    """

    stage: Stage
    name: str
    part: str
    folder: Path
    reasons: list[str]
    reads: list["Job"] = dataclasses.field(default_factory=list)
    readers: list["Job"] = dataclasses.field(default_factory=list)
    runs: bool = False

    def start(self) -> None:
        """Mark this job as running, with every job that reads its results and every missing job that it needs."""
        if self.runs:
            return
        self.runs = True
        for reader in self.readers:
            reader.start()
        for source in self.reads:
            if manifest.missing(source.folder):
                source.start()

    def explain(self) -> None:
        """Add a reason to a job that runs but has no reason of its own."""
        if not self.runs or self.reasons:
            return
        absent = manifest.missing(self.folder)
        because = list(dict.fromkeys(source.stage.name for source in self.reads if source.runs))
        self.reasons = [absent or f"runs because {' and '.join(because)} {'does' if len(because) == 1 else 'do'}"]


def changed_values(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Name the settings that differ, as `tokenizer.vocab_size 8192 -> 4096`.

    A key that a settings file leaves out, because it cannot matter or has its neutral value, is `unset`.
    """
    before, now = (flatten({k: v for k, v in part.items() if k not in OWN_WORDS}) for part in (before, now))
    keys = sorted(key for key in before | now if before.get(key) != now.get(key))
    return [f"{key} {before.get(key, 'unset')} -> {now.get(key, 'unset')}" for key in keys]


def changed_code(stage: Stage, recorded: dict[str, Any], now: str, others: set[str]) -> list[str]:
    """Name the modules that were edited, or quote what the CHANGELOG says of a new version.

    `others`: labels of versions that are limited to other settings.
    """
    before = recorded["settings"].get("code", "")
    if before == now:
        return []
    if results := results_between(before, now, ROOT / "CHANGELOG.md", others):
        return [f"{now} instead of {before}: {'; '.join(results)}"]
    known = recorded.get("code") or {}
    edited = [part for part in sorted(known | stage.modules) if known.get(part) != stage.modules.get(part)]
    where = f" in {', '.join(edited)}" if known and edited else ""
    return [f"source code of babelmill.{stage.name} changed{where}"]


def changed_sources(recorded: dict[str, Any], now: dict[str, Any], folder: Path) -> list[str]:
    """Name the local text that differs from what a manifest lists: files, and the text that comes with Python."""
    if recorded["settings"].get("sources") == now.get("sources"):
        return []
    if now["stage"] != "corpus":
        return [f"{path} replaced" for path in now["sources"]]
    found = []
    builtin = now["corpus"].get("builtin")
    versions = [sources.get(builtin) for sources in (recorded["settings"].get("sources", {}), now["sources"])]
    if all(versions) and versions[0] != versions[1]:
        found.append(f"{builtin} of Python {versions[0]} -> {versions[1]}")
    listed = {entry["path"]: entry["sha256"] for entry in recorded["figures"].get("sources", [])}
    present = hashes(sorted({path for pattern in now.get("sources", {}) for path in expand_glob(pattern)}), folder)
    for path in sorted(listed.keys() | present.keys()):
        if path not in present:
            found.append(f"corpus file {path} removed")
        elif path not in listed:
            found.append(f"corpus file {path} added")
        elif present[path] != listed[path]:
            found.append(f"corpus file {path} replaced")
    return found or ["source files changed"]


def own_reasons(configuration: Configuration, stage: Stage, name: str, part: str) -> list[str]:
    """Return what has changed since a stage ran: settings, code, files or inputs."""
    folder = stage.path(name, part)
    if not (folder / manifest.NAME).is_file():
        return []
    recorded = manifest.read(folder)
    now = settings_of(configuration, name, stage.settings_name(part))
    found = changed_values(recorded["settings"], now)
    found += changed_code(stage, recorded, now["code"], versions_of_others(configuration, name, stage))
    found += changed_sources(recorded, now, CORPORA / name)
    for file, entry in recorded["files"].items():
        path = folder / file
        if path.is_file() and path.stat().st_size != entry["bytes"]:
            found.append(f"{path} was changed by something else")
    for source, digest in recorded["upstream"].items():
        path = Path(source, manifest.NAME)
        if path.is_file() and sha256(path) != digest:
            found.append(f"{source} has changed since then")
    return found


def made_with_others(configuration: Configuration, job: Job, model: str) -> bool:
    """Return whether the converted model was made with other settings of a stage than now, or without the stage."""
    converted = Path("converted", model)
    if not (converted / manifest.NAME).is_file():
        return False
    settings = job.stage.settings_name(job.part)
    path = (SETTINGS / job.name / f"{settings}.json").as_posix()
    made_with = manifest.read(converted)["figures"].get("made_with", {})
    if path not in made_with:
        return job.stage.of == "model"  # the stage was added since then; not all stages of a language are noted
    now = canonical_json(settings_of(configuration, job.name, settings))
    return made_with[path] != hashlib.sha256(now.encode()).hexdigest()


def run_of(settings: dict[str, Any], source: ModelSource | None) -> dict[str, Any] | None:
    """Return the identity of the training run with some settings and the present data; None if data is missing.

    `source`: the model that it continues.
    """
    model = settings["name"]
    tokenizer = STAGES["tokenizer"].path(model, "")
    shards = [STAGES["shards"].path(model, language) for language in settings["languages"]]
    weights = source and source.weights
    needed = [tokenizer, *shards, *([weights] if weights else [])]
    there = all((folder / manifest.NAME).is_file() for folder in needed)
    return identity(settings, tokenizer, shards, weights) if there else None


def steps_done(settings: dict[str, Any], source: ModelSource | None) -> int:
    """Return the step after which training with some settings and the present data continues; 0 if it has to begin."""
    run = run_of(settings, source)
    saved = (CHECKPOINTS / settings["name"] / fingerprint(run)).glob("step-*.json") if run else ()
    return max((int(path.stem.removeprefix("step-")) for path in saved), default=0)


def jobs_of(configuration: Configuration, model: str, stages: dict[str, Stage] = TO_CONVERTED) -> list[Job]:
    """Return the jobs of a model, in the order of the stages, with what each reads and its own reasons to run.

    If the model starts from another model of this workflow, the jobs that make that one's weights and tokenizer come
    first.
    """
    ancestors = configuration.ancestors(model)
    theirs = jobs_of(configuration, ancestors[0], leading_to("train")) if ancestors else []
    there = {job.folder: job for job in theirs}
    mine: list[Job] = []
    for stage in stages.values():
        for name, part in stage.jobs(configuration, model):
            folder = stage.path(name, part)
            if folder in there:
                mine.append(there[folder])
                continue
            job = Job(stage, name, part, folder, own_reasons(configuration, stage, name, part))
            # It reads results of the same language or suite, or of the whole model.
            job.reads = [
                other for other in mine if other.stage.name in stage.reads and (not part or other.part in ("", part))
            ]
            job.reads += [other for other in theirs if other.folder in read_of_source(configuration, model, stage)]
            for source in job.reads:
                source.readers.append(job)
            mine.append(job)
    return theirs + [job for job in mine if job.folder not in there]


def read_of_source(configuration: Configuration, model: str, stage: Stage) -> list[Path]:
    """Return the folders that a stage reads from another model of this workflow, from which its own model starts."""
    source = configuration.model(model).source
    if source is None or source.kind != "model":
        return []
    reads_tokenizer = stage.name == "tokenizer" and has_tokenizer_of_source(configuration, model)
    return [source.weights] if stage.name == "train" else [source.tokenizer] if reads_tokenizer else []


def explain(configuration: Configuration, model: str) -> list[Job]:
    """Return the jobs of a model, in the order of the stages; those that would run have reasons."""
    jobs = jobs_of(configuration, model)
    for job in jobs:
        if manifest.missing(job.folder) and not job.reasons and made_with_others(configuration, job, model):
            job.reasons.append("its results are missing, and its settings have changed")
    for job in jobs:
        if job.reasons or (job is jobs[-1] and manifest.missing(job.folder)):
            job.start()
    for job in jobs:
        job.explain()
        stays = job.stage.name == "train" and job.runs and not any(source.runs for source in job.reads)
        if not stays:
            continue
        if done := steps_done(settings_of(configuration, job.name, "train"), configuration.model(job.name).source):
            job.reasons.append(f"continues after step {done:,}")
    return jobs


def reasons_to_predict(configuration: Configuration, model: str) -> dict[str, list[str]]:
    """Return {table: reasons why it would be predicted again} for a model, whether or not earlier stages run."""
    stage = STAGES["predict"]
    parts = stage.parts(configuration, model) if stage.applies(configuration, model) else []
    return {part: _reasons_of_table(configuration, model, stage, part) for part in parts}


def _reasons_of_table(configuration: Configuration, model: str, stage: Stage, part: str) -> list[str]:
    about = stage.path(model, part)
    if not about.is_file():
        return ["has not run yet"]
    recorded, now = read_json(about), settings_of(configuration, model, f"{stage.name}.{part}")
    digests = [settings["table"].pop("sha256", None) for settings in (recorded["settings"], now)]
    table = now["table"]["file"]
    found = [f"{table} is missing" if digests[1] is None else f"{table} replaced"] if digests[0] != digests[1] else []
    found += changed_values(recorded["settings"], now)
    found += changed_code(stage, recorded, now["code"], versions_of_others(configuration, model, stage))
    paths = [about.with_name(name) for name in recorded["files"]]
    found += [f"{path} is missing" for path in paths if not path.is_file()]
    for source, digest in recorded["upstream"].items():
        path = Path(source, manifest.NAME)
        if path.is_file() and sha256(path) != digest:
            found.append(f"{source} has changed since then")
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("models", nargs="*", help="model names (default: the configuration's targets)")
    loading.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Print, stage by stage, what would run for a model and why."""
    configuration = loading.from_arguments(args)
    for model in args.models or configuration.targets():
        jobs = explain(configuration, model)
        several = len({part for job in jobs if (part := job.part)}) > 1
        print(model)
        for job in jobs:
            title = f"{job.stage.name} {job.part}" if several and job.part else job.stage.name
            title = title if job.stage.of == "language" or job.name == model else f"{job.name}: {title}"
            print(f"  {title:<16} {'; '.join(job.reasons) or 'up to date'}")
        for table, reasons in reasons_to_predict(configuration, model).items():
            reasons += [f"runs because {jobs[-1].stage.name} does"] if jobs[-1].runs and not reasons else []
            print(f"  {f'predict {table}':<16} {'; '.join(reasons) or 'up to date'}")
