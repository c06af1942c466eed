"""`babelmill rehost` as its users type it, for an owner with five old repositories, on a Hub on this machine."""

import re

import pytest
import yaml

from babelmill.core.files import read_json
from helpers.hub.hub_server import Fault, hub_here
from helpers.models.old_repositories import fill
from helpers.programs.prepared import Program, run_module

pytestmark = pytest.mark.slow

COMMAND = ["rehost", "lab/old-", "--masked-target", "next"]  # weights of nobody's training: they cannot tell
DONE = ("eng", "nld")
FILES = "model.safetensors, model_ema.safetensors, model_main.safetensors"
SAID = {
    "bert": "skipped: not a GPT-BERT (model_type bert)",
    "card": "the front matter of README.md: not valid YAML",
    "code": "contains more than tensors and plain values",
    "deu": " has no tokenizer.json; name another repository or a file with --tokenizer",
    "empty": "has no file of weights",
    "eng": f"main and ema in {FILES}, 22.2 k parameters, masked target next",
    "fra": "model.safetensors: truncated or damaged",
    "nld": "main in model.safetensors, 22.2 k parameters, masked target next",
    "none": "skipped: it has no config.json; name the file with its shape by --config",
    "zho": "the tokenizer has 97 entries, but the embedding only 96 rows",
}


def head(hub, name: str) -> dict[str, bytes]:
    repository = hub.repositories[f"models/lab/{name}"]
    return repository.commits[repository.branches["main"]]


def lines(done) -> dict[str, str]:
    """What is said of each repository."""
    assert "Traceback" not in done.stderr, done.stderr
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """A look; a push that is killed in the middle; the same again, where the Hub has enough for a second; and again."""
    folder = tmp_path_factory.mktemp("rehost")
    with pytest.MonkeyPatch.context() as patch, hub_here(patch, folder / "cache") as hub:
        patch.setenv("HF_TOKEN", "hf_good")
        fill(hub)
        before = {name: dict(head(hub, name.removeprefix("models/lab/"))) for name in hub.repositories if "lab" in name}
        told = {"hub": hub, "folder": folder, "before": before, "dry": run_module("babelmill", *COMMAND, cwd=folder)}
        told["asked"] = list(hub.log)
        hub.faults.append(Fault("/lab/old-nld/preupload/", meanwhile=lambda: program.kill()))
        program = Program("-m", "babelmill", *COMMAND, "--push", cwd=folder)
        program.communicate()
        told["killed"] = program.wait()
        told["after"] = {name: len(hub.repositories[f"models/lab/old-{name}"].history) for name in DONE}
        hub.faults.append(Fault("/lab/old-nld/commit/", status=429, headers={"Retry-After": "1"}))
        hub.faults.append(Fault("/lab/old-nld/commit/", drop="after"))  # it is there, but the answer is lost
        told["resumed"] = run_module("babelmill", *COMMAND, "--push", cwd=folder)
        hub.log.clear()
        told["again"] = run_module("babelmill", *COMMAND, "--push", cwd=folder)
        told["nothing"] = list(hub.log)
        yield told


def test_a_look_says_a_line_of_each_and_writes_nothing(story):
    """What is damaged, incomplete, or something else has its line, and the rest is done."""
    messages = lines(story["dry"])
    assert story["dry"].returncode == 1 and list(messages) == [f"lab/old-{name}" for name in SAID]
    for name, words in SAID.items():
        assert words in messages[f"lab/old-{name}"]
        made = f"; ready in rehosted/lab/old-{name}, --push writes it to lab/old-{name}"
        assert messages[f"lab/old-{name}"].endswith(made) == (name in DONE)
    assert any("cursor=3" in line for line in story["asked"]), "the list of models has several pages"
    assert not [line for line in story["asked"] if re.match("POST|PUT|DELETE", line)]
    assert story["dry"].stderr.count("comparisons with the training model: difference at most") == len(DONE)


def test_one_commit_each_also_after_a_kill(story):
    """What was pushed or made is neither pushed nor made again, and the Hub is waited for."""
    hub = story["hub"]
    assert story["killed"] == -9 and story["after"] == {"eng": 1, "nld": 0}
    messages = lines(story["resumed"])
    assert messages["lab/old-eng"] == "skipped: Babelmill made it"
    history = hub.repositories["models/lab/old-nld"].history
    assert messages["lab/old-nld"].endswith(f"pushed to lab/old-nld, commit {history[0]['commit']}")
    assert "next attempt in 1 s" in story["resumed"].stderr and "building" not in story["resumed"].stderr
    messages = lines(story["again"])
    assert story["again"].returncode == 1 and all(
        messages[f"lab/old-{name}"] == "skipped: Babelmill made it" for name in DONE
    )
    assert not [line for line in story["nothing"] if re.match("POST|PUT|DELETE", line)]
    history_of = {name: len(hub.repositories[f"models/lab/old-{name}"].history) for name in (*DONE, "fra", "bert")}
    assert history_of == {"eng": 1, "nld": 1, "fra": 0, "bert": 0}
    assert history[0]["summary"].startswith(f"Rehosted from commit {history[0]['parent']} of lab/old-nld, by Babelmill")


def test_what_others_wrote_stays(story):
    """Files that are not replaced, what the old card declares, and those of its sections that are not about files."""
    hub, before = story["hub"], story["before"]["models/lab/old-eng"]
    now, made = head(hub, "old-eng"), read_json(story["folder"] / "rehosted/lab/old-eng/manifest.json")
    weights = {"model_main.safetensors", "model_ema.safetensors"}
    others = {".gitattributes", "notes.txt", "original_project_config.json"}
    assert {name for name in before if now[name] == before[name]} == weights | others
    assert set(now) == set(before) | set(made["files"]) | {"manifest.json"}
    assert hub.repositories["models/lab/old-eng"].history[0]["deleted"] == []
    card = now["README.md"].decode()
    declared = yaml.safe_load(card.split("---")[1])
    assert (declared["license"], declared["language"], declared["authors"]) == ("cc-by-4.0", ["en"], "Ada")
    assert declared["pipeline_tag"] == "text-generation" and {"remote-code", "custom_code"} <= set(declared["tags"])
    assert yaml.safe_load(head(hub, "old-nld")["README.md"].split(b"---")[1])["license"] == "other"
    assert hub.repositories["models/lab/old-eng"].history[0]["parent"] in card
    assert "## Citation\n\n```bibtex\n## @misc{adas}\n```" in card and "## Quick usage" not in card
    assert "language model of Dutch" in head(hub, "old-nld")["README.md"].decode()  # as its name says


def test_with_the_tokenizer_of_another_repository(story):
    """A private repository stays private. Somebody's commit in between is not overwritten."""
    hub, name = story["hub"], "models/lab/old-deu"
    repository = hub.repositories[name]
    command = ["rehost", "lab/old-deu", "--masked-target", "next", "--push", "--tokenizer", "lab/old-eng"]
    theirs = head(hub, "old-deu") | {"theirs.txt": b"theirs"}
    hub.faults.append(Fault("/lab/old-deu/commit/", meanwhile=lambda: hub.commit(name, theirs)))
    done = run_module("babelmill", *command, cwd=story["folder"])
    assert re.search(r"failed: lab/old-deu was at \w+, but is at \w+ now: run the same command again", done.stdout)
    assert not repository.history
    done = run_module("babelmill", *command, cwd=story["folder"])
    assert done.returncode == 0 and ", private; pushed to lab/old-deu" in lines(done)["lab/old-deu"]
    assert len(repository.history) == 1 and repository.private and "theirs.txt" in head(hub, "old-deu")
