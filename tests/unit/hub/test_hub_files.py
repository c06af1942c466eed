"""Thousands of files of a repository, without a Hub: all are in the cache."""

import json
import os

from huggingface_hub import constants
from huggingface_hub.utils import _paths

from babelmill.hub import files
from babelmill.hub.client import git_oid
from babelmill.hub.sources import DATASET

COMMIT = "a" * 40


def test_files_are_looked_for_one_by_one(tmp_path, monkeypatch):
    """Not each name in the list of all files, which takes hours for 40,000."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    names = [f"data/{i}.jsonl" for i in range(3 * files.FEW)]
    folder = tmp_path / "datasets--lab--many"
    blob = folder / "blobs" / "text"
    for path in (blob, folder / "trees/x", folder / "snapshots" / COMMIT / "data/x"):
        path.parent.mkdir(parents=True)
    blob.write_text("{}")
    blob = blob.rename(blob.with_name(git_oid(blob)))
    for name in names:
        os.symlink(blob, folder / "snapshots" / COMMIT / name)
    listing = {"format_version": 1, "files": {name: {"size": 2, "blob_id": blob.name} for name in names}}
    (folder / "trees" / f"{COMMIT}.json").write_text(json.dumps(listing))
    compared = []
    matches = _paths.fnmatchcase
    monkeypatch.setattr(_paths, "fnmatchcase", lambda name, pattern: compared.append(name) or matches(name, pattern))
    found = files.fetch(DATASET, "lab/many", COMMIT, names)
    assert found == {name: folder / "snapshots" / COMMIT / name for name in names}
    assert 0 < len(compared) <= files.FEW * len(names)
