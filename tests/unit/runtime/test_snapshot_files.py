"""Snapshots in the folder of a run: their names, and what a writer that died leaves."""

import pytest
import torch

from babelmill.config.snapshots import name_of
from babelmill.core import manifest
from babelmill.core.files import UserError
from babelmill.runtime.checkpoint import Snapshots
from helpers.stages import any_settings

WEIGHTS = {"weight": torch.zeros(3)}
ABOUT = {"step": 1, "tokens": 9}


def test_each_point_has_a_name_of_its_own():
    names = "chck_1M chck_1000M chck_0.00001M chck_1000000M"
    assert " ".join(map(name_of, (1.0, 1000.0, 0.00001, 1e6))) == names
    assert name_of(1.2345671) != name_of(1.2345672)


def test_a_writer_that_dies_leaves_no_snapshot(tmp_path):
    """Its weights may be there, beside a .json that an earlier attempt wrote."""
    kept = Snapshots(tmp_path)
    kept.save(1.0, ABOUT, WEIGHTS, WEIGHTS.__getitem__)
    (tmp_path / "snapshots/.chck_1M.safetensors.abc").write_bytes(b"half")
    assert list(kept.kept()) == ["chck_1M"] and kept.weights("chck_1M").is_file()

    def dies(_name: str) -> torch.Tensor:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept.save(1.0, ABOUT, WEIGHTS, dies)
    assert kept.kept() == {} and not list((tmp_path / "snapshots").glob(".chck*"))


def test_a_file_of_a_snapshot_that_is_gone_is_missed(tmp_path):
    """The folder's own manifest lists that of the snapshot alone."""
    below = tmp_path / "snapshots/chck_1M"
    below.mkdir(parents=True)
    (below / "model.safetensors").write_bytes(b"weights")
    asked = any_settings("export")
    manifest.write(below, asked, ["model.safetensors"])
    manifest.write(tmp_path, asked, ["snapshots/chck_1M/manifest.json"])
    assert manifest.missing(tmp_path) is None
    (below / "model.safetensors").unlink()
    assert manifest.missing(tmp_path) == f"{below / 'model.safetensors'} is missing"
    with pytest.raises(UserError, match=f"delete {tmp_path} and run"):
        manifest.verify(below, within=tmp_path)
