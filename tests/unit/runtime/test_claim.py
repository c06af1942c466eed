"""One writer of a run's copies: in an object store and in a folder."""

import json
import sys
import threading

import pytest

from babelmill.core.files import UserError
from babelmill.runtime import run_lock, slurm
from babelmill.runtime.remote import claim
from babelmill.runtime.remote.claim import OWNER, Claim, TakenOver
from babelmill.runtime.remote.places import place_of
from helpers.object_store import CONDITIONS, object_store  # noqa: F401  a fixture


@pytest.fixture(params=["s3", "file"])
def place(request, tmp_path):
    """A place for the copies of a run, where nothing is yet."""
    if request.param == "s3":
        request.getfixturevalue("object_store")
    name = tmp_path.name
    return place_of("s3://bucket/claims" if request.param == "s3" else f"file://{tmp_path}", f"{name}/0123")


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    """A heart that beats twenty times as fast."""
    monkeypatch.setattr(run_lock, "BEAT", 0.2)
    monkeypatch.setattr(run_lock, "DEAD_AFTER", 1.5)


def elsewhere(monkeypatch) -> None:
    """From now on, claims are made on other machines: only a heartbeat tells whether their owner lives."""
    boots = iter(range(1000))
    monkeypatch.setattr(claim, "boot", lambda: str(next(boots)))


def test_the_second_of_two_ends_and_names_the_first(place):
    with Claim(place), pytest.raises(UserError, match=r"another training run is writing here: process \d+ on ."):
        Claim(place).__enter__()
    with Claim(place) as later:  # it was given back
        later.check()


def test_of_many_at_once_one_gets_it(place, monkeypatch):
    elsewhere(monkeypatch)
    got, gate, lost = [], threading.Barrier(4), []

    def want():
        mine = Claim(place)
        gate.wait()
        try:
            got.append(mine.__enter__())
        except UserError as error:
            lost.append(str(error))

    threads = [threading.Thread(target=want) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(got), len(lost)) == (1, 3), lost
    got[0].__exit__()


def test_a_beating_heart_keeps_others_out_and_a_silent_one_does_not(place, monkeypatch):
    elsewhere(monkeypatch)
    with Claim(place) as mine:
        with pytest.raises(UserError, match="another training run is writing here"):
            Claim(place).__enter__()
        mine._end.set()  # its machine stops for a while
        with Claim(place) as theirs:
            theirs.check()
            with pytest.raises(TakenOver, match=r"taken over by process \d+"):
                mine.renew()
            with pytest.raises(TakenOver):
                mine.check()
    assert json.loads(place.read(OWNER)[0])["ended"]


def test_the_dead_of_this_machine_are_replaced_at_once(place, monkeypatch):
    with Claim(place) as mine:
        mine._end.set()
        monkeypatch.setattr(run_lock, "DEAD_AFTER", 600)
        content, version = place.read(OWNER)
        dead = json.loads(content) | {"started": "another time"}  # the number belongs to a new process
        assert place.swap(OWNER, json.dumps(dead).encode(), version)
        with Claim(place) as theirs:
            theirs.check()


def test_a_write_whose_answer_was_lost_still_counts(place, monkeypatch):
    """The library repeats it, and the second one finds another version than it expects."""
    swap = place.swap

    def twice(*arguments):
        swap(*arguments)
        return swap(*arguments)

    monkeypatch.setattr(place, "swap", twice)
    with Claim(place) as mine:
        mine.renew()


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_store_that_ignores_conditions_is_refused(object_store, condition, monkeypatch):  # noqa: F811
    monkeypatch.setattr(object_store, "ignored", condition)
    with pytest.raises(UserError, match=rf"this store ignores conditional writes \({condition}\)"):
        Claim(place_of("s3://bucket/without", "eng/0123")).__enter__()


@pytest.mark.parametrize("boot", ["", "another start"])
def test_a_job_of_another_cluster_with_the_same_number_lives(place, monkeypatch, boot):
    """Clusters may have the same name, or none: what SLURM here says about the job is about another one."""
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv(slurm.OWN_STEP, "1")
    with Claim(place):
        monkeypatch.setattr(claim, "boot", lambda: boot)
        with pytest.raises(UserError, match=r"another training run is writing here: process \d+ on .*, job 12"):
            Claim(place).__enter__()


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(UserError, match=r"s3://bucket/a needs the package s3fs.*pip install 'babelmill\[s3\]'"):
        place_of("s3://bucket/", "a")
