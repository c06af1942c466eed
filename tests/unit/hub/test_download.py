"""The stage `download` with the real client against a Hub on this machine, which breaks in all the usual ways."""

import re
import shutil
from pathlib import Path

import pytest

from helpers.hub.hub_server import Fault
from helpers.hub.hub_stage import asked_for, figures_of, jsonl, parquet, refusal, run_stage

pytestmark = pytest.mark.usefixtures("folder")

REPOSITORY = "BabyLM-community/babylm-eng"


def of_children(texts: list[str]) -> bytes:
    return parquet(text=texts, category=["child-books"] * len(texts))


FILES = {
    "README.md": b"# A dataset\n",
    "data/train-00000-of-00002.parquet": of_children([f"Text number {i}." for i in range(20_000)]),
    "data/train-00001-of-00002.parquet": of_children(["more"]),
    "data/validation-00000-of-00001.parquet": of_children(["held out"]),
    "data/test-00000-of-00001.parquet": of_children(["not for training"]),
    "requirements.txt": b"datasets\n",
}
TRAIN = ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"]
VALIDATION = ["data/validation-00000-of-00001.parquet"]


def run(revision="main", repository=REPOSITORY, out="out", **options):
    """Run the stage as a rule does; returns the finished process. For the options see `run_stage`."""
    source = {"repository": repository, "revision": revision}
    return run_stage("download", asked_for("download", {"languages": ["eng"], "source": source}, out), **options)


def succeed(**options) -> dict:
    """Run the stage; returns the figures of a manifest that was verified."""
    return figures_of(run(**options))


def fail(**options) -> str:
    """Run the stage, which ends with one line and leaves nothing; returns the line."""
    line = refusal(run(**options))
    assert not Path("out").exists()
    return line


def test_data_files_arrive_and_the_commit_is_recorded(hub):
    commit = hub.commit(f"datasets/{REPOSITORY}", FILES | {"README.md": b"---\nlicense: cc-by-4.0\n---\n"})
    figures = succeed()
    origin = {"repository": REPOSITORY, "revision": "main", "commit": commit, "license": "cc-by-4.0"}
    assert figures.pop("summary") == f"{REPOSITORY} at {commit[:8]}"
    assert figures == origin | {"train": TRAIN, "validation": VALIDATION}
    for name in TRAIN + VALIDATION:
        assert Path("out", name).read_bytes() == FILES[name]
    assert not Path("out/requirements.txt").exists()
    assert hub.count("GET /cdn/") == 3
    assert not hub.count("resolve/main")


def test_a_branch_that_moves_changes_nothing_until_asked(hub):
    first = hub.commit(f"datasets/{REPOSITORY}", FILES)
    succeed()
    second = hub.commit(f"datasets/{REPOSITORY}", FILES | {"data/train-00002.parquet": of_children(["new"])})
    requests = hub.count("datasets|cdn")
    assert succeed()["commit"] == first
    assert hub.count("datasets|cdn") == requests, "everything is in the cache, and nothing has to be resolved"
    entry = f"datasets/{REPOSITORY}@main"
    assert Path("results/hub.lock").read_text() == f"{entry} {first}\n"
    Path("results/hub.lock").write_text(f"{entry} {second}\n{entry} {first}\n")
    assert succeed()["commit"] == second, "of two lines the first one counts"
    assert Path("out/data/train-00002.parquet").exists()
    Path("results/hub.lock").write_text(f"{entry}: {second}, I think\n")
    assert "results/hub.lock: each line is a repository at a revision" in refusal(run(out="other"))
    Path("results/hub.lock").unlink()
    assert succeed()["commit"] == second, "the newest"
    assert succeed(revision=first)["commit"] == first
    assert not Path("out/data/train-00002.parquet").exists()


def test_cuts_errors_and_rate_limits_are_survived(hub):
    hub.commit(f"datasets/{REPOSITORY}", FILES)
    large = len(FILES[TRAIN[0]])
    hub.faults = [
        Fault("GET /api/datasets/.*/revision/main", times=2, status=503),
        Fault("GET /api/datasets/.*/tree/", status=500),
        Fault("HEAD /datasets/.*/resolve/.*/data/train-00001", status=502),
        Fault("GET /cdn/", status=500),
        Fault("GET /cdn/", cut=large // 2),
        Fault("GET /cdn/", status=429),
    ]
    done = run()
    assert done.returncode == 0 and not [fault for fault in hub.faults if fault.times]
    assert Path("out", TRAIN[0]).read_bytes() == FILES[TRAIN[0]]
    assert f"train: 2 of 2 files, {sum(len(FILES[name]) for name in TRAIN) / 1e6:.1f} MB\n" in done.stderr
    assert "\r" not in done.stderr, "there is no terminal"


def test_offline_uses_the_cache_and_says_when_it_lacks_something(hub):
    hub.commit(f"datasets/{REPOSITORY}", FILES)
    line = fail(HF_ENDPOINT="http://127.0.0.1:9")
    assert f"error: the dataset {REPOSITORY} on http://127.0.0.1:9 cannot be reached" in line
    assert "check the network, or set HF_HUB_OFFLINE=1" in line
    assert "(see HF_HOME), and HF_HUB_OFFLINE is set: unset it" in fail(HF_HUB_OFFLINE="1")
    assert not hub.count("datasets")
    commit = succeed()["commit"]
    shutil.rmtree("results/download")
    requests = hub.count("datasets|cdn")
    assert succeed(HF_HUB_OFFLINE="1")["commit"] == commit
    assert hub.count("datasets|cdn") == requests


@pytest.mark.parametrize(
    ("access", "asked", "message"),
    [
        ({"private": True}, {}, "{} does not exist or is private: name your own text in corpus.files or, if you may"),
        ({"private": True}, {"HF_TOKEN": "hf_wrong"}, "{} cannot be read: .*is the token right"),
        ({"gated": True}, {}, "{} is gated: accept its terms on its page, and set HF_TOKEN"),
        ({}, {"revision": "v2"}, "{} has no revision 'v2': correct corpus.revision"),
        ({}, {"repository": "a/b/c"}, "corpus.hub = 'a/b/c' is not the name of a repository"),
        ({}, {}, "has no training data in a supported format"),
    ],
)
def test_what_cannot_be_read_or_is_not_there(hub, access, asked, message):
    hub.commit(f"datasets/{REPOSITORY}", {"README.md": b"", "data.bin": b"x"}, **access)
    line = fail(**asked)
    assert re.search(message.format(f"error: the dataset {REPOSITORY} on {hub.url}"), line) and "hf_" not in line, line


def test_a_token_opens_what_is_private_and_never_goes_to_the_cdn(hub):
    hub.commit(f"datasets/{REPOSITORY}", FILES, private=True, gated=True)
    succeed(HF_TOKEN="hf_good")
    assert {token for line, token in hub.tokens_seen if "datasets" in line} == {"hf_good"}
    assert {token for line, token in hub.tokens_seen if "/cdn/" in line} == {None}
    for path in Path().rglob("*"):
        assert not path.is_file() or b"hf_good" not in path.read_bytes()


@pytest.mark.parametrize("name", ["../../evil.jsonl", "a/..\\evil.jsonl", "/evil.jsonl"])
def test_a_repository_that_names_files_outside_of_itself(hub, name):
    hub.commit(f"datasets/{REPOSITORY}", {name: jsonl(["a"])})
    line = fail()
    assert f"error: the dataset {REPOSITORY} at " in line and "outside of its own folder, '" in line and "evil" in line
    assert not list(Path().rglob("*evil*"))


def test_too_many_requests(hub):
    """The client waits for a listing or a file by itself, we for the question about the revision; not for ever."""
    hub.commit(f"datasets/{REPOSITORY}", FILES)
    limits = {"RateLimit": '"api";r=0;t=55', "RateLimit-Policy": '"fixed window";"api";q=500;w=300'}
    hub.faults = [
        Fault("GET /api/datasets/.*/revision/main", times=3, status=429, headers=limits),
        Fault("/tree/", times=3, status=429, headers={"Retry-After": "9"}),
    ]
    done = run()
    assert done.returncode == 0 and done.stderr.count("next attempt in 56 s") == 3, done.stderr
    assert not [fault for fault in hub.faults if fault.times]
    hub.faults = [Fault("/tree/|/revision/", times=99, status=429, headers=limits)]
    Path("results/hub.lock").unlink()
    shutil.rmtree("results/download")
    line = fail()
    assert "too many requests: 429 " in line and "run the same command again in 56 seconds" in line
