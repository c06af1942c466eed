"""Compare results with what is asked of them: which stages would run, and why.

The manifests in the results say what they were made from: settings with the version of the stage, and the manifests of
the results that were read. This module compares them with the present settings, versions and files. It needs no records
of Snakemake. `babelmill why` shows the answer, and `file_times.py` gives it to Snakemake, so both always say the same.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from babelmill import __version__
from babelmill.config.inputs import CORPORA, has_tokenizer_of_source
from babelmill.config.layers import flatten
from babelmill.config.model_source import ModelSource
from babelmill.config.resolve import Configuration
from babelmill.core import escape, manifest, modules
from babelmill.core.files import canonical_json, sha256
from babelmill.core.globs import expand_glob
from babelmill.core.local_sources import hashes
from babelmill.runtime.record import fingerprint, identity
from babelmill.settings import settings_of
from babelmill.stages import STAGES, TO_CONVERTED, Stage, leading_to

Own = Callable[[Configuration, "Job"], list[str]]
CHECKPOINTS = Path("results/checkpoints")
FEW = 3  # edited modules that are named
OWN_WORDS = ("sources",)  # the key of a settings file that `changed_sources` explains


@dataclasses.dataclass(eq=False)
class Job:
    """A stage of one model, or of one of its languages or parts."""

    stage: Stage  # the stage
    name: str  # the language or model that its settings belong to
    part: str  # the language, suite or table, if the stage has a job for each, else ""
    reasons: list[str] = dataclasses.field(default_factory=list)  # why it runs; empty if it does not run
    # reads, readers: the jobs whose results it reads, and those that read its results.
    reads: list["Job"] = dataclasses.field(default_factory=list)
    readers: list["Job"] = dataclasses.field(default_factory=list)
    # Whether its results, or deleted results that they were made from, are not those that are asked for.
    outdated: bool = False
    runs: bool = False  # whether it runs: because it is outdated, or because its results are missing and needed

    @cached_property
    def folder(self) -> Path:
        return self.stage.path(self.name, self.part)

    @property
    def missing(self) -> str | None:
        """Say which of its results is missing; None if all are there."""
        return manifest.missing(self.folder)

    @property
    def there(self) -> bool:
        """Return whether there is a record of its results."""
        return self.stage.record(self.name, self.part).is_file()

    @cached_property
    def record(self) -> dict[str, Any] | None:
        """Return what its results were made from; None if there is no record of them."""
        return manifest.read(self.stage.record(self.name, self.part)) if self.there else None

    @cached_property
    def digest(self) -> str:
        """Return the sha256 of the record of its results, by which later results name them."""
        return sha256(self.stage.record(self.name, self.part))

    def later(self) -> list["Job"]:
        """Return all jobs that read its results, directly or not, the direct ones first."""
        found = dict.fromkeys(self.readers)
        waiting = [*found]
        for job in waiting:  # the list grows
            new = [reader for reader in job.readers if reader not in found]
            found |= dict.fromkeys(new)
            waiting += new
        return waiting

    def mark_outdated(self) -> None:
        """Set `outdated`. If results that it reads are outdated but there, Snakemake knows that it runs after them."""
        self.outdated = bool(self.reasons) or any(source.outdated and not source.there for source in self.reads)

    def start(self) -> None:
        """Mark this job as running, with every job that reads its results and every missing job that it needs."""
        if self.runs:
            return
        self.runs = True
        for reader in self.readers:
            reader.start()
        for source in self.reads:
            if source.missing:
                source.start()

    def explain(self) -> None:
        """Add a reason to a job that runs but has no reason of its own."""
        if not self.runs or self.reasons:
            return
        absent = self.missing
        because = list(dict.fromkeys(source.stage.name for source in self.reads if source.runs))
        self.reasons = [absent or f"runs because {' and '.join(because)} {'does' if len(because) == 1 else 'do'}"]


def changed_values(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Name the settings that differ, as `tokenizer.vocab_size 8192 -> 4096`.

    A key that a settings file leaves out, because it cannot matter or has its neutral value, is `unset`.
    """
    before, now = (flatten({k: v for k, v in part.items() if k not in OWN_WORDS}) for part in (before, now))
    keys = sorted(key for key in before | now if before.get(key) != now.get(key) and key != "table.sha256")
    return [f"{key} {before.get(key, 'unset')} -> {now.get(key, 'unset')}" for key in keys]


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


def changed_table(recorded: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Say whether the table to predict has another content than when it was predicted."""
    before, present = (settings.get("table", {}).get("sha256") for settings in (recorded["settings"], now))
    if before == present:
        return []
    return [f"{now['table']['file']} {'is missing' if present is None else 'replaced'}"]


def own_reasons(configuration: Configuration, job: Job) -> list[str]:
    """Return what has changed since a job ran: settings, version, files or inputs. Without results: nothing."""
    stage, name, recorded = job.stage, job.name, job.record
    if recorded is None:
        return []
    now = settings_of(configuration, name, stage.settings_name(job.part))
    found = changed_table(recorded, now)
    found += changed_values(recorded["settings"], now)
    found += changed_sources(recorded, now, CORPORA / name)
    for file, entry in recorded["files"].items() if stage.name != "publish" else ():  # those are on the Hub
        path = stage.record(name, job.part).parent / file
        if path.is_file() and path.stat().st_size != entry["bytes"]:
            found.append(f"{path} was changed by something else")
    for source, digest in recorded["upstream"].items():
        path = Path(source) if source.endswith(".json") else Path(source, manifest.NAME)
        if path.is_file() and sha256(path) != digest:
            found.append(f"{source} has changed since then")
    return found


def edits(jobs: Iterable[Job]) -> list[str]:
    """Return a line for each stage of jobs that do not run though modules were edited since their results were made.

    Nothing is said of results that another release made: their versions answer for it.
    """
    found: dict[str, dict[str, None]] = {}
    for job in jobs:
        if job.record and job.record["version"] == __version__:
            found.setdefault(job.stage.name, {}).update(dict.fromkeys(modules.edited(job.record.get("modules", {}))))
    first = {"train": "delete the model's folder in results/checkpoints, then: "}
    return [
        f"{stage}: {escape.some(names, FEW)} {'was' if len(names) == 1 else 'were'} edited since; results stay"
        f" (to make them again: {first.get(stage, '')}snakemake -R {stage})"
        for stage, names in found.items()
        if names
    ]


def settings_fit(configuration: Configuration, job: Job, model: str) -> bool | None:
    """Return whether later results were made with the present settings of a stage; None if they do not say.

    This is for a stage whose own results are missing.
    """
    # (A receipt of `publish` has none.)
    noted = [later.record.get("made_with", {}) for later in job.later() if later.record]
    folder = job.folder.as_posix()
    found = {made_with[folder] for made_with in noted if folder in made_with}
    if not found:  # a stage of a model was added since the model was converted
        return False if job.stage.of == "model" and (Path("converted", model) / manifest.NAME).is_file() else None
    now = settings_of(configuration, job.name, job.stage.settings_name(job.part))
    return found == {hashlib.sha256(canonical_json(now).encode()).hexdigest()}


def sources_fit(job: Job) -> bool | None:
    """Return whether later results were made from the present results that a stage reads; None if they do not say.

    This is for a stage whose own results are missing. Results that it reads and that are missing, too, are no matter
    here: each missing stage answers for what it reads itself.
    """
    noted = [later.record.get("made_from", {}) for later in job.later() if later.record]
    known = True
    for source in job.reads:
        if source.there:
            found = {origins[folder] for origins in noted if (folder := source.folder.as_posix()) in origins}
            if found - {source.digest}:
                return False
            known = known and bool(found)
    return known or None


def jobs_of(
    configuration: Configuration, model: str, stages: dict[str, Stage] = TO_CONVERTED, own: Own = own_reasons
) -> list[Job]:
    """Return the jobs of a model, in the order of the stages, with what each reads and its own reasons to run.

    If the model starts from another model of this workflow, the jobs that make that one's weights and tokenizer come
    first.
    """
    ancestors = configuration.ancestors(model)
    theirs = jobs_of(configuration, ancestors[0], leading_to("train"), own) if ancestors else []
    there = {job.folder: job for job in theirs}
    mine: list[Job] = []
    for stage in stages.values():
        for name, part in stage.jobs(configuration, model):
            folder = stage.path(name, part)
            if folder in there:
                mine.append(there[folder])
                continue
            job = Job(stage, name, part)
            job.reasons = own(configuration, job)
            job.reads = [other for other in mine if stage.reads_job(configuration, job, other)]
            job.reads += [other for other in theirs if other.folder in read_of_source(configuration, model, stage)]
            for source in job.reads:
                source.readers.append(job)
            mine.append(job)
    if "score" not in stages:  # then only the suites that a corpus reads belong here
        mine = [job for job in mine if job.stage.name != "suite" or job.readers]
    jobs = theirs + [job for job in mine if job.folder not in there]
    for job in jobs:
        if job.stage in TO_CONVERTED.values() and job.missing and not job.reasons:
            changed = ["its settings have"] if settings_fit(configuration, job, model) is False else []
            changed += ["what it reads has"] if sources_fit(job) is False else []
            job.reasons = [f"its results are missing, and {text} changed" for text in changed[:1]]
        job.mark_outdated()
    return jobs


def read_of_source(configuration: Configuration, model: str, stage: Stage) -> list[Path]:
    """Return the folders that a stage reads from another model of this workflow, from which its own model starts."""
    source = configuration.model(model).source
    if source is None or source.kind != "model":
        return []
    reads_tokenizer = stage.name == "tokenizer" and has_tokenizer_of_source(configuration, model)
    return [source.weights] if stage.name == "train" else [source.tokenizer] if reads_tokenizer else []


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


def explain(configuration: Configuration, model: str) -> list[Job]:
    """Return the jobs of a model, in the order of the stages; those that would run have reasons.

    Training also says after which step it would continue.
    """
    jobs = jobs_of(configuration, model)
    for job in jobs:
        if job.reasons or (job is jobs[-1] and job.missing):
            job.start()
    for job in jobs:
        job.explain()
        if job.stage.name == "train" and job.runs and not any(source.runs for source in job.reads):
            settings = settings_of(configuration, job.name, "train")
            about = configuration.model(job.name)
            done, elsewhere = steps_done(settings, about.source), about.run.checkpoints
            if done:
                later = f", or later from {elsewhere}" if elsewhere else ""
                job.reasons.append(f"continues after step {done:,}{later}")
            elif elsewhere:
                job.reasons.append(f"continues from a checkpoint in {elsewhere}, if it has one")
    return jobs


def reasons_to_predict(configuration: Configuration, model: str) -> dict[str, list[str]]:
    """Return {table: reasons why it would be predicted again} for a model, whether or not earlier stages run."""
    return _reasons_after_converted(configuration, model, STAGES["predict"])


def reasons_to_submit(configuration: Configuration, model: str) -> list[str] | None:
    """Return why a model's submission would be made again, whether or not earlier stages run; None if it has none."""
    return _reasons_after_converted(configuration, model, STAGES["submission"]).get("")


def _reasons_after_converted(configuration: Configuration, model: str, stage: Stage) -> dict[str, list[str]]:
    """Return {part: reasons to run} of a stage whose result is a single .json file, with files beside it."""
    found = {}
    for part in stage.parts(configuration, model):
        job = Job(stage, model, part)
        paths = [job.folder.parent / name for name in job.record["files"]] if job.record else []
        missing = [f"{path} is missing" for path in paths if not path.is_file()]
        found[part] = own_reasons(configuration, job) + missing if job.record else ["has not run yet"]
    return found
