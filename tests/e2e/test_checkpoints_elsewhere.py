"""Training whose disk is gone after each attempt: it continues from an object store to the same bits.

`test_copies.py` has a folder as the place.
"""

import shutil
import time

import pytest

from helpers.object_store import SECRET, object_store  # noqa: F401  a fixture
from helpers.training.training_data import STEPS, UNDISTURBED, assert_same

pytestmark = pytest.mark.slow

RUN = {"checkpoint_every": 20, "validate_every": 20}


def kept(place: str, object_store) -> dict[str, str]:  # noqa: F811
    """Where the files of the run are below a place of the store, without our code, by their names in its folder."""
    found = sorted(object_store.files.find(place))
    return {path.removeprefix(f"{place}/").partition("/")[2]: path for path in found}


def wait_for(name: str, place: str, object_store, process) -> None:  # noqa: F811
    while name not in kept(place, object_store):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)


def test_a_new_machine_continues_to_the_same_bits(data, finished, object_store):  # noqa: F811
    """The first is killed, and its disk is gone. (`test_copies.py` has copies that are damaged or interrupted.)"""
    data.run_settings(**RUN, checkpoint_mirror="s3://bucket/new")
    process = data.start(hold="vote 45")
    wait_for("step-00000040.json", "bucket/new", object_store, process)
    process.kill()
    process.communicate()
    shutil.rmtree(data.checkpoints)
    output = data.train()
    assert "fetched the checkpoint after step 40 from" in output and "going on after step 40" in output
    assert_same(data, finished)
    (run,), paths = data.runs, kept("bucket/new", object_store)
    whole = [f"step-{step:08d}.{end}" for step in (40, STEPS) for end in ("json", "safetensors")]
    assert [name for name in paths if name.startswith("step-")] == whole
    assert {f"logs/{path.name}" for path in run.glob("logs/*")} == {name for name in paths if "logs" in name}
    assert len(list(run.glob("logs/*"))) == 2, "also that of the attempt that was killed"
    assert object_store.files.cat_file(paths["metrics.jsonl"]).decode() == (run / "metrics.jsonl").read_text()
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
    theirs = shutil.copytree(finished.runs[0], tmp_path / "kept" / data.name)
    if not says_whose:
        (theirs / "identity.json").unlink()
    data.run_settings(**RUN, checkpoint_mirror=f"file://{tmp_path}/kept")
    error = f"was trained with other settings or on other data; delete it (also in file://{tmp_path}/kept) to train"
    assert error in data.train(code=1)


def test_a_store_that_goes_away_for_a_while(data, finished, object_store):  # noqa: F811
    data.run_settings(**RUN, checkpoint_mirror="s3://bucket/away")
    process = data.start(hold="vote 25")
    wait_for("step-00000020.json", "bucket/away", object_store, process)
    object_store.stop()
    data.go_on()
    try:
        while "training continues with its checkpoints in" not in data.log.read_text():
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.05)
    finally:
        object_store.start()
    output = process.communicate()[1]
    assert process.wait() == 0, output
    assert "lacks the newest checkpoint" not in output
    assert_same(data, finished)
    assert f"step-{STEPS:08d}.json" in kept("bucket/away", object_store)


def test_a_store_that_does_not_answer_at_the_start_is_an_error(data, object_store):  # noqa: F811
    data.run_settings(**RUN, checkpoint_mirror="s3://no-such-bucket/a")
    output = data.train(code=1)
    assert "error: run.checkpoint_mirror: s3://no-such-bucket/a/test-" in output, output
    assert len(output.splitlines()) == 1 and "does not exist" in output
    output = data.train(code=1, environment={"AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
    assert len(output.splitlines()) == 1 and "Could not connect to the endpoint URL" in output
    data.run_settings(**RUN, checkpoint_mirror="file:///no/such/folder")
    assert "there is no folder /no/such/folder; mount its file system, or create it" in data.train(code=1)
