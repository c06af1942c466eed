"""Run single stages in the test's own process, and write what they read."""

import argparse
import importlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from babelmill.config.resolve import Configuration
from babelmill.config.stage_settings import ShardsSettings
from babelmill.core import manifest
from babelmill.core.files import write_json
from babelmill.settings import read_settings, settings_of


def write_settings(stage: str, configuration: Configuration, name: str = "eng", folder: Path = Path()) -> Path:
    """Write the settings of a stage of a language or a model, as the workflow does. Return the file."""
    write_json(folder / f"{stage}.json", settings_of(configuration, name, stage))
    return folder / f"{stage}.json"


def run_stage(
    stage: str, configuration: Configuration, name: str = "eng", out: str | Path = "out", **arguments
) -> dict:
    """Run a stage as the workflow does. Return the figures of its manifest.

    Its settings are written beside the folder `out`. `arguments` are those of its command line.
    """
    settings = write_settings(stage, configuration, name, Path(out).parent)
    module = importlib.import_module("babelmill.corpus.__main__" if stage == "corpus" else f"babelmill.{stage}")
    given = {"threads": 1, "log": None, "download": [], "source": [], "identifier": [], "suites": [], "language": name}
    module.run(argparse.Namespace(settings=settings, out=Path(out), **given | arguments))
    return manifest.verify(out)["figures"]


def write_corpus(folder: Path, train: dict[str, list], validation: dict[str, list], rows: int = 1000) -> Path:
    """Write a corpus with these columns as the stage `corpus` does, in groups of `rows` documents. Return its folder."""
    folder.mkdir(parents=True)
    for split, columns in (("train", train), ("validation", validation)):
        arrays = {
            name: values if name == "labels" else pa.array(values, pa.string()) for name, values in columns.items()
        }
        pq.write_table(pa.table(arrays), folder / f"{split}.parquet", row_group_size=rows)
    any_settings = read_settings(write_settings("shards", Configuration([("test", {})]), folder=folder), ShardsSettings)
    manifest.write(folder, any_settings, ["train.parquet", "validation.parquet"])
    return folder
