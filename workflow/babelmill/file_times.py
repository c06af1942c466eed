"""Set file times so that Snakemake runs what `graph.py` finds outdated, and nothing else.

Snakemake compares the times of files: a job runs if one of its inputs is newer than one of its outputs. But times say
little about content. Results may have been copied, restored from a backup, unpacked from an archive, or made by a
machine whose clock is ahead. So content decides, and the times follow, before Snakemake looks at them:

* If a job is outdated, its settings file becomes newer than its results.
* If not, its settings file becomes older than its results, and results that are older than what they were made from
  become as new as that.
* No file stays younger than the clock: what a job writes now would be older than its inputs.

A time that is right already is not changed. So after a run, and in the usual dry run, nothing is set. If results are
missing, their times say nothing, and Snakemake makes them where they are needed.
"""

import contextlib
import itertools
import os
import time
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from pathlib import Path

from babelmill.config.inputs import SETTINGS
from babelmill.config.resolve import Configuration
from babelmill.core import local_sources, manifest
from babelmill.core.files import UserError, atomic_write
from babelmill.graph import Job, edits, jobs_of, own_reasons, settings_fit, sources_fit
from babelmill.settings import write_settings
from babelmill.stages import STAGES, Stage, leading_to

TIMESTAMP = ".snakemake_timestamp"  # in a folder that is an output: its time counts as that of the folder
NO_RESULTS = (local_sources.HASHES, manifest.HASHES)
SECOND = 1_000_000_000  # all times are in nanoseconds
BEFORE = 60 * SECOND  # by which a file that is younger than the clock becomes older than now: clocks differ a little


class FileTimes:
    """Sets the times of settings files and results, once per job."""

    def __init__(self, configuration: Configuration):
        self._configuration = configuration
        self._own: dict[Path, list[str]] = {}  # the reasons of a job, by its folder
        self._jobs: list[Job] = []  # one for each of these folders
        self._newest: dict[Path, int] = {}  # the time of a job's newest result, by its folder
        self._outdated: dict[Path, bool] = {}
        self._seen: set[tuple[str, str]] = set()
        self._written: set[str] = set()

    def write_settings(self, name: str) -> None:
        """Write the settings files of a language or model that differ from what is on disk. None is of the future."""
        if name not in self._written:
            write_settings(self._configuration, name)
            for path in (SETTINGS / name).glob("*.json"):
                make_older(path, time.time_ns())
            self._written.add(name)

    def obey(self, stage: Stage, name: str) -> None:
        """Set the times of the jobs of a stage, and of all jobs before it.

        A UserError says that a manifest is damaged, or that a time has to change that may not be changed.
        """
        self.write_settings(name)
        if (stage.folder, name) in self._seen:
            return
        stages = leading_to(stage.name)
        self._seen |= {(each.folder, name) for each in stages.values() if each.of == stage.of}
        if stage.of == "model":
            jobs = jobs_of(self._configuration, name, stages, self._reasons)
        else:
            jobs = self._jobs_of_language(stages, name)
        for settings, group in itertools.groupby(jobs, key=lambda job: job.stage.settings_file(job.name, job.part)):
            of_settings = [*group]  # the languages of a mixture share a file
            self.write_settings(of_settings[0].name)
            self._settle(settings, of_settings, name)

    def _jobs_of_language(self, stages: dict[str, Stage], code: str) -> list[Job]:
        jobs: list[Job] = []
        for stage in stages.values():
            for part in stage.parts(self._configuration, code):
                job = Job(stage, code, part or code)
                job.reads = [each for each in jobs if stage.reads_job(self._configuration, job, each)]
                job.reasons = self._reasons(self._configuration, job)
                job.mark_outdated()
                jobs.append(job)
        return jobs

    def _reasons(self, configuration: Configuration, job: Job) -> list[str]:
        """Return `own_reasons`; it is asked again for each model that reads a corpus, so the answer is kept."""
        if job.folder not in self._own:
            self._own[job.folder] = own_reasons(configuration, job)
            self._jobs.append(job)
        return self._own[job.folder]

    def edits(self, run: Collection[Path]) -> list[str]:
        """Return `graph.edits` of all results but those of the jobs that run, which are given by their folders."""
        return edits(job for job in self._jobs if job.folder not in run)

    def _settle(self, settings: Path, jobs: list[Job], model: str) -> None:
        """Set the times of a settings file and of the results of its jobs; those of what they read are right already.

        If a job is outdated, the settings become newer than its results, and the results of the other jobs newer still.
        """
        for job in jobs:
            job.outdated |= job.there and self._outdated.get(job.folder, False)  # for another model that reads it, too
        if all(job.there and self._outdated.get(job.folder) == job.outdated for job in jobs):
            return
        floors = [self._floor(job) for job in jobs]
        files = [[*outputs_of(job), *present(job.stage.benchmark(job.name, job.part))] for job in jobs]
        for floor, paths in zip(floors, files, strict=True):
            for path in paths:
                heed_clock(path, floor)
        outdated = [oldest_of(paths) for job, paths in zip(jobs, files, strict=True) if job.there and job.outdated]
        if outdated:
            make_newer(settings, max(outdated))
        oldest: list[int] = []
        for job, floor, paths in zip(jobs, floors, files, strict=True):
            if not job.outdated and (job.there or settings_fit(self._configuration, job, model)):
                for path in paths:
                    make_as_new(path, max(floor, time_of(settings) if outdated else 1))
                oldest.append(oldest_of(paths))
                if not job.there:  # then Snakemake compares with the results that were made from them
                    made = [path for later in job.later() for path in outputs_of(later)]
                    oldest += [oldest_of(made), time.time_ns() - BEFORE]
        if oldest and not outdated:
            make_older(settings, min(oldest))
        for job, floor in zip(jobs, floors, strict=True):
            self._newest[job.folder] = max([floor, *map(time_of, outputs_of(job))])
            self._outdated[job.folder] = job.outdated

    def _floor(self, job: Job) -> int:
        """Return the time of the newest result that a job reads, and that its own results must not be older than.

        If a job is missing, and nobody knows whether the present results made what was made from it, there is no floor:
        then times are all that Snakemake has.
        """
        known = job.there or sources_fit(job)
        return max((self._newest[source.folder] for source in job.reads), default=1) if known else 1

    def obey_report(self, settings: Path, models: Iterable[str], outputs: list[Path], outdated: bool | None) -> None:
        """Set the times of a report, which belongs to several models.

        `outputs`: its files that exist. `outdated`: whether it was made from other results or settings than the present
        ones; None if nobody knows.
        """
        for model in models:
            self.obey(STAGES["convert"], model)
        floor = max(self._newest[STAGES["convert"].path(model, "")] for model in models)
        make_older(settings, time.time_ns())
        for path in outputs:
            heed_clock(path, floor)
        if outdated:
            make_newer(settings, oldest_of(outputs))
        elif outdated is False:
            for path in outputs:
                make_as_new(path, floor)
            make_older(settings, oldest_of(outputs))


def present(*paths: Path) -> Iterator[Path]:
    """Yield the paths that exist."""
    yield from (path for path in paths if path.exists())


def outputs_of(job: Job) -> Iterator[Path]:
    """Yield those outputs of a job, as its rule declares them, that exist."""
    record = job.stage.record(job.name, job.part)
    if job.stage.gives_folder:
        yield from present(job.folder)
    elif job.record:
        yield record
        if job.stage.name != "publish":  # whose files are on the Hub
            names = [name for name in job.record["files"] if name not in job.stage.undeclared]
            yield from present(*(record.parent / name for name in names))
            if job.stage.folder_beside:
                yield from present(record.with_suffix(""))
    elif job.folder.is_dir():  # a job was killed, or somebody deleted the manifest
        no_results = (*NO_RESULTS, *job.stage.undeclared)
        found = [path for path in job.folder.iterdir() if not path.name.startswith(".")]  # a job may be running
        yield from (path for path in found if path.is_file() and path.name not in no_results)


def carrier(path: Path) -> Path:
    """Return the file whose time Snakemake takes for the time of `path`."""
    return stamp if (stamp := path / TIMESTAMP).exists() else path


def time_of(path: Path) -> int:
    """Return the time of a file or folder as an input; now if a job that is running has just removed it.

    A link is as new as the newer of itself and its target.
    """
    path = carrier(path)
    try:
        return max(path.lstat().st_mtime_ns, path.stat().st_mtime_ns)
    except FileNotFoundError:
        return time.time_ns()


def time_of_output(path: Path) -> int:
    """Return the time of a file or folder as an output: Snakemake takes that of a link, and not its target's."""
    try:
        return carrier(path).lstat().st_mtime_ns
    except FileNotFoundError:
        return time.time_ns()


def oldest_of(paths: Iterable[Path]) -> int:
    """Return the time of the oldest of some outputs; of none, the present time."""
    return min(map(time_of_output, paths), default=time.time_ns())


def set_time(path: Path, moment: int) -> None:
    """Set the time of a result, to now if it is somebody else's that we may write.

    The target of a link keeps its time if it is older: other models may have links to it (`runtime/store.py`).
    """
    path = carrier(path)
    try:
        os.utime(path, ns=(moment, moment), follow_symlinks=False)
        if path.is_symlink() and path.stat().st_mtime_ns > moment:
            os.utime(path, ns=(moment, moment))
    except OSError as error:
        with contextlib.suppress(OSError):
            os.utime(path)
            return
        raise cannot_set(path, error.strerror) from error


def cannot_set(path: Path, reason: str | None) -> UserError:
    """Return the error for a file whose time has to change, but may not be changed."""
    present = datetime.fromtimestamp(time_of(path) / SECOND)
    return UserError(
        f"{path}: its file time ({present:%Y-%m-%d %H:%M:%S}) does not fit the clock, or the times of the results that"
        f" belong to it, and cannot be set ({reason}); ask its owner to run Snakemake here, or copy the results to a"
        " folder of your own"
    )


def set_time_of_settings(settings: Path, moment: int) -> None:
    """Set the time of a settings file. If it is somebody else's, first put a copy in its place."""
    if settings.stat().st_uid != os.geteuid():
        text = settings.read_text(encoding="utf-8")
        try:
            with atomic_write(settings, "w", durable=False) as file:
                file.write(text)
        except UserError as error:
            reason = error.__cause__.strerror if isinstance(error.__cause__, OSError) else str(error)
            raise cannot_set(settings, reason) from error
    set_time(settings, moment)


def heed_clock(path: Path, floor: int) -> None:
    """Make a result older than now if it is younger than the clock, but not older than `floor`, what it was made from.

    Snakemake ignores results with the time 0, as some archives give them, so they get another one.
    """
    if not 0 < time_of(path) <= time.time_ns():
        set_time(path, max(floor, time.time_ns() - BEFORE))


def make_as_new(path: Path, floor: int) -> None:
    """Make a result not older than what it was made from. (Some file systems round times down, by up to 2 seconds.)"""
    for later in (0, SECOND, 2 * SECOND):
        if time_of_output(path) >= floor:
            return
        set_time(path, floor + later)


def make_newer(settings: Path, oldest: int) -> None:
    """Make a settings file newer than the oldest result, by little: clocks of servers differ."""
    for later in (SECOND // 1000, SECOND, 2 * SECOND):
        if time_of(settings) > oldest + 1000:  # Snakemake's numbers are exact to a quarter of a microsecond
            return
        set_time_of_settings(settings, oldest + later)


def make_older(settings: Path, oldest: int) -> None:
    """Make a settings file not newer than the oldest result, or than the clock."""
    if time_of(settings) > oldest:
        set_time_of_settings(settings, oldest)
