"""Snapshots in a folder of a model: each has a manifest of its own."""

import pytest

from babelmill.core import manifest
from babelmill.core.files import UserError
from helpers.stages import any_settings


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
