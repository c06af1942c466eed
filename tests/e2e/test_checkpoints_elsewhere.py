"""Training whose disk is gone after each attempt: it continues from an object store, or a folder, to the same bits."""

import shutil
import time

import pytest

from helpers.object_store import SECRET, object_store  # noqa: F401  a fixture
from helpers.training.training_data import STEPS, UNDISTURBED, Data, assert_same

pytestmark = pytest.mark.slow

RUN = {"checkpoint_every": 20, "validate_every": 20}


class Elsewhere:
    """The place of `run.checkpoint_mirror`, seen without our code."""

    def __init__(self, url: str, files):
        self.url, self._files, self._root = url, files, url.partition("://")[2]

    def names(self) -> list[str]:
        found = self._files.find(self._root)
        return sorted(name.removeprefix(f"{self._root}/").partition("/")[2] for name in found)

    def path(self, name: str) -> str:
        return next(path for path in self._files.find(self._root) if path.endswith(f"/{name}"))

    def wait_for(self, name: str, process) -> None:
        while name not in self.names():
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.05)


@pytest.fixture(params=["s3", "file"])
def elsewhere(request, tmp_path):
    if request.param == "s3":
        return Elsewhere(f"s3://bucket/{tmp_path.name}", request.getfixturevalue("object_store").files)
    import fsspec

    (tmp_path / "kept").mkdir()
    return Elsewhere(f"file://{tmp_path}/kept", fsspec.filesystem("file"))


def killed_after_step_40(data: Data, place: Elsewhere) -> None:
    """With kill -9, when its checkpoints are elsewhere; then its disk is gone."""
    data.run_settings(**RUN, checkpoint_mirror=place.url)
    process = data.start(hold="vote 45")
    place.wait_for("step-00000040.json", process)
    process.kill()
    process.communicate()
    shutil.rmtree(data.checkpoints)


def test_a_new_machine_continues_to_the_same_bits(data, finished, elsewhere):
    killed_after_step_40(data, elsewhere)
    output = data.train()
    assert "fetched the checkpoint after step 40 from" in output and "going on after step 40" in output
    assert_same(data, finished)
    (run,) = data.runs
    names = elsewhere.names()
    whole = [f"step-{step:08d}.{end}" for step in (40, STEPS) for end in ("json", "safetensors")]
    assert [name for name in names if name.startswith("step-")] == whole
    assert {f"logs/{path.name}" for path in run.glob("logs/*")} == {name for name in names if "logs" in name}
    assert len(list(run.glob("logs/*"))) == 2, "also that of the attempt that was killed"
    record = elsewhere._files.cat_file(elsewhere.path("metrics.jsonl")).decode()
    assert record == (run / "metrics.jsonl").read_text()
    for text in [output, data.log.read_text(), *(p.read_text() for p in run.glob("logs/*"))]:
        assert SECRET not in text
    # A machine that comes later has it all, too.
    shutil.rmtree(data.checkpoints)
    assert "already trained" in data.train("later")
    assert data.weights("later") == data.weights()


@pytest.mark.parametrize("says_whose", [True, False])
def test_checkpoints_of_another_model_are_refused(data, finished, tmp_path, says_whose):
    """Which somebody has put into the folder of this run there."""
    data.settings(**UNDISTURBED | {"learning_rate": 0.002})
    kept = shutil.copytree(finished.runs[0], tmp_path / "kept" / data.name)
    if not says_whose:
        (kept / "identity.json").unlink()
    data.run_settings(**RUN, checkpoint_mirror=f"file://{tmp_path}/kept")
    error = f"was trained with other settings or on other data; delete it (also in file://{tmp_path}/kept) to train"
    assert error in data.train(code=1)


def test_a_store_that_goes_away_for_a_while(data, finished, object_store):  # noqa: F811
    place = Elsewhere("s3://bucket/away", object_store.files)
    data.run_settings(**RUN, checkpoint_mirror=place.url)
    process = data.start(hold="vote 25")
    place.wait_for("step-00000020.json", process)
    object_store.stop()
    data.go_on()
    log = data.log
    try:
        while "training continues with its checkpoints in" not in log.read_text():
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.05)
    finally:
        object_store.start()
    output = process.communicate()[1]
    assert process.wait() == 0, output
    assert "lacks the newest checkpoint" not in output
    assert_same(data, finished)
    assert f"step-{STEPS:08d}.json" in place.names()


def test_a_store_that_does_not_answer_at_the_start_is_an_error(data, object_store):  # noqa: F811
    data.run_settings(**RUN, checkpoint_mirror="s3://no-such-bucket/a")
    output = data.train(code=1)
    assert "error: run.checkpoint_mirror: s3://no-such-bucket/a/test-" in output, output
    assert len(output.splitlines()) == 1 and "does not exist" in output
    nobody = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    output = data.train(code=1, environment=nobody)
    assert len(output.splitlines()) == 1 and "Could not connect to the endpoint URL" in output
    data.run_settings(**RUN, checkpoint_mirror="file:///no/such/folder")
    assert "there is no folder /no/such/folder; mount its file system, or create it" in data.train(code=1)


def test_half_a_checkpoint_is_not_used(data, finished, elsewhere):
    """Its upload was interrupted. (`test_copies.py` has the one that is whole and damaged.)"""
    killed_after_step_40(data, elsewhere)
    content = elsewhere._files.cat_file(path := elsewhere.path("step-00000040.safetensors"))
    elsewhere._files.pipe_file(path, content[: len(content) // 2])
    elsewhere._files.rm(elsewhere.path("step-00000040.json"))
    assert "going on after step 40" not in data.train()  # but after step 20, if there was time to copy it
    assert_same(data, finished)
