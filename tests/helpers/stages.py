"""Write settings files of jobs, and run single stages in the test's own process."""

import argparse
import dataclasses
import importlib
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.files import read_json, write_json
from babelmill.core.local_sources import matched
from babelmill.core.stage_entry import Job
from babelmill.graph import Graph
from babelmill.stages import STAGES


def settings_of(configuration: Configuration, name: str, stage: str) -> dict[str, Any]:
    """Return the content of a settings file: of a stage, or of a part of it such as "score.blimp" (else the first)."""
    stage, _, part = stage.partition(".")
    matched.cache_clear()  # the test may have written other files
    if not part and STAGES[stage].of == "model":
        part = STAGES[stage].parts(configuration.model(name))[0]
    return Graph(configuration).result(stage, name, part).asked


def read_settings(stage: str, configuration: Configuration, name: str = "eng") -> Any:
    """Return the settings of a stage as a job reads them."""
    return STAGES[stage].from_content(settings_of(configuration, name, stage), stage)


def write_job(folder: Path, stage: str, name: str, made_from: dict[str, list[str]], /, **fields) -> str:
    """Write the settings file of a job that is run in a folder. Return its path there."""
    path = f"results/settings/{stage}/{name}.json"
    about = {"stage": stage, "version": STAGES[stage].version, "made_from": {k: v for k, v in made_from.items() if v}}
    write_json(folder / path, about | fields)
    return path


def settings_at(folder: Path, result: str) -> Path:
    """Return the settings file of a result in a folder, such as "results/of/eng/train"."""
    path = (folder / result).resolve()
    stage = path.parent.name.replace("converted", "convert")
    return folder.resolve() / "results/settings" / stage / f"{path.name}.json"


def job_like(folder: Path, result: str, name: str = "again", **made_from: list[str]) -> list[str]:
    """Write the settings of a result once more, for a job that makes another one, perhaps of others. Return its command."""
    asked = read_json(settings_at(folder, result))
    path = f"results/settings/{asked['stage']}/{name}.json"
    write_json(folder / path, asked | {"made_from": asked["made_from"] | made_from})
    return ["-m", f"babelmill.{asked['stage']}", path]


def show_as(link: Path, result: Path) -> None:
    """Let a short name lead to a result that will be there. Other names for the same result become copies of it."""
    for other in link.parent.iterdir():
        if other.is_symlink() and other != link and other.resolve() == result.resolve() and result.exists():
            other.unlink()
            shutil.copytree(result, other, symlinks=True)
    if link.is_symlink():
        link.unlink()
    shutil.rmtree(link, ignore_errors=True)
    link.symlink_to(os.path.relpath(result, link.parent))


@dataclasses.dataclass(frozen=True)
class JobElsewhere(Job[Any]):
    """A job whose result goes to another place than its settings file says."""

    place: Path = Path()

    @property
    def out(self) -> Path:
        return self.place


def job_of(stage: str, configuration: Configuration, name: str, out: str | Path, **made_from) -> JobElsewhere:
    """Write the settings of a job beside its result `out`, made from these folders by role. Return the job."""
    settings = settings_of(configuration, name, stage)
    lists = {role: found if isinstance(found, list) else [found] for role, found in made_from.items()}
    path = Path(out).parent / f"{stage}.json"
    given = {role: [*map(str, found)] for role, found in lists.items() if found}
    write_json(path, settings | {"made_from": given})
    kind = STAGES[stage.partition(".")[0]]
    return JobElsewhere(kind, path, 1, 0, argparse.Namespace(), Path(out))


def run_stage(
    stage: str, configuration: Configuration, name: str = "eng", out: str | Path = "out", threads: int = 1, **made_from
) -> dict:
    """Run a stage as the workflow does, with what it is made from by role. Return the figures of its manifest."""
    job = dataclasses.replace(job_of(stage, configuration, name, out, **made_from), threads=threads)
    name = "corpus.__main__" if stage == "corpus" else stage.partition(".")[0]
    importlib.import_module(f"babelmill.{name}").run(job)
    return manifest.verify(out)["figures"]


def any_settings(stage: str = "shards", /, **values: Any) -> Any:
    """Return what `manifest.write` needs to know of a stage."""
    return argparse.Namespace(stage=stage, raw={"stage": stage} | values)


def write_corpus(folder: Path, train: dict[str, list], validation: dict[str, list], rows: int = 1000) -> Path:
    """Write a corpus with these columns as the stage `corpus` does, in groups of `rows` documents. Return its folder."""
    folder.mkdir(parents=True)
    for split, columns in (("train", train), ("validation", validation)):
        arrays = {
            name: values if name == "labels" else pa.array(values, pa.string()) for name, values in columns.items()
        }
        pq.write_table(pa.table(arrays), folder / f"{split}.parquet", row_group_size=rows)
    manifest.write(folder, any_settings("corpus"), ["train.parquet", "validation.parquet"])
    return folder
