"""Results that several models share: who takes what from whom, and how."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from babelmill.commands.clean import clean
from babelmill.config import loading
from babelmill.core import manifest
from babelmill.core.files import UserError, read_json, sha256, write_json
from babelmill.file_times import time_of, time_of_output
from babelmill.runtime import store
from helpers.damage import flip_a_bit

ENG, OTHER = Path("results/tokenizers/eng"), Path("results/tokenizers/other")
CORPORA = [Path("results/corpora/eng")]


@pytest.fixture(autouse=True)
def tree(workspace, monkeypatch):
    """A built tree in which all files are large enough to be shared."""
    monkeypatch.chdir(workspace.path)
    monkeypatch.setattr(store, "LARGE", 1)
    return workspace


def asked(**changed) -> manifest.StageRequest:
    settings = read_json("results/settings/eng/tokenizer.json") | {"name": "other"} | changed
    return manifest.StageRequest("tokenizer", "other", settings)


def take(**changed) -> Path | None:
    with store.made_once(OTHER, asked(**changed), CORPORA, wait=True) as found:
        return found


def test_a_large_file_is_moved_to_the_store_and_both_have_links():
    """The links have times of their own, the file an old one: no model looks newer because of another."""
    before, moment = sha256(ENG / "tokenizer.json"), time_of_output(ENG / "tokenizer.json")
    assert take() == ENG
    for folder in (ENG, OTHER):
        path = folder / "tokenizer.json"
        assert path.is_symlink() and not os.path.isabs(os.readlink(path)) and sha256(path) == before
        manifest.verify(folder)
    assert time_of(ENG / "tokenizer.json") == time_of_output(ENG / "tokenizer.json") == moment
    assert time_of_output(OTHER / "tokenizer.json") > moment
    ours, theirs = manifest.read(OTHER), manifest.read(ENG)
    assert ours["settings"]["name"] == "other"
    assert ours["figures"] == theirs["figures"] | {"taken_from": "results/tokenizers/eng"}
    assert (ours["key"], ours["files"], ours["upstream"]) == (theirs["key"], theirs["files"], theirs["upstream"])


def test_without_the_store_one_line_says_what_is_gone(tree):
    """In all commands and stages; what is needed is made again, what is not needed is missed by nobody."""
    take()
    shutil.rmtree(store.STORE)
    gone = (
        r"is a link to \.\./\.\./store/tokenizer/[0-9a-f]{64}, which is gone \(results/store was deleted, or not copied"
    )
    for folder in (ENG, OTHER):
        assert re.fullmatch(rf"{folder}/tokenizer.json {gone}\)", manifest.missing(folder) or "")
    assert re.search(rf"{gone}\); not needed, since what was made from it is there$", tree.why("eng")["tokenizer"])
    export = "--model results/models/eng --shards results/shards/eng/eng --checkpoints results/checkpoints/eng"
    for stage, words in {"shards": "--language eng --corpus results/corpora/eng", "export": export}.items():
        settings, rest = f"results/settings/eng/{stage}.json", ["--tokenizer", ENG, "--out", "out", *words.split()]
        (error,) = tree.python("-m", f"babelmill.{stage}", "--settings", settings, *rest).stderr.splitlines()
        assert re.search(rf"error: {ENG}/tokenizer.json: {gone}\), though .* lists it; delete {ENG} and run", error)
    shutil.rmtree("results/shards/eng")
    tree.snakemake("results/shards/eng/eng/manifest.json")
    manifest.verify(ENG)
    assert not (ENG / "tokenizer.json").is_symlink()


def test_a_third_model_and_a_model_that_goes(capsys):
    take()
    third = Path("results/tokenizers/third")
    with store.made_once(third, asked(name="third"), CORPORA) as found:
        assert found
    shutil.rmtree(ENG)
    manifest.verify(OTHER)
    manifest.verify(third)
    clean(loading.load(), remove=True)
    assert "  by 2 results" in capsys.readouterr().out
    for folder in (OTHER, third):
        shutil.rmtree(folder)
    clean(loading.load(), remove=False)
    assert "  no model uses it" in capsys.readouterr().out
    clean(loading.load(), remove=True)
    assert not [path for path in Path("results/store/tokenizer").rglob("*") if path.is_file()]


def test_a_new_result_in_place_of_a_link_changes_no_other():
    take()
    before = sha256(ENG / "tokenizer.json")
    write_json(OTHER / "tokenizer.json", {"another": "tokenizer"})
    assert sha256(ENG / "tokenizer.json") == before and not (OTHER / "tokenizer.json").is_symlink()


@pytest.mark.parametrize("changed", [{"version": 9}, {"tokenizer": {"vocab_size": 321}}])
def test_what_is_not_the_same_is_not_taken(changed):
    assert take(**changed) is None and not OTHER.exists()


def make_again(text: str) -> None:
    """Make the tokenizer of eng with other bytes, as another machine may, of the same settings and data."""
    shutil.rmtree(ENG)
    ENG.mkdir()
    (ENG / "tokenizer.json").write_text(text)
    manifest.write(ENG, asked(name="eng"), ["tokenizer.json"], CORPORA)


def test_what_two_made_with_other_bytes_is_never_mixed():
    """A file of the store stays when its models are gone; the same request may have other bytes by then."""
    assert take() == ENG
    shutil.rmtree(OTHER)
    make_again("another machine")
    assert take() == ENG
    for folder in (ENG, OTHER):
        manifest.verify(folder)
        assert (folder / "tokenizer.json").read_text() == "another machine"


def test_a_damaged_file_does_not_get_into_the_store():
    flip_a_bit(ENG / "tokenizer.json")
    assert take() == ENG
    assert not (ENG / "tokenizer.json").is_symlink()
    with pytest.raises(UserError, match="damaged"):
        manifest.verify(OTHER)


@pytest.mark.parametrize("change", [shutil.rmtree, lambda folder: make_again("now another")])
def test_a_result_that_changes_while_it_is_linked_is_not_taken(monkeypatch, change):
    link = store._link

    def slow(folder, *rest):
        link(folder, *rest)
        change(folder)

    monkeypatch.setattr(store, "_link", slow)
    assert take() is None and not (OTHER / manifest.NAME).exists()


def test_other_snapshots_are_not_the_same():
    """Manifests below a result name their model, so their files count, and not they."""
    keys = []
    for name, content in (("a", "x"), ("b", "x"), ("b", "y"), ("b", None)):
        below = Path("export/snapshots/chck_1M")
        shutil.rmtree("export", ignore_errors=True)
        below.mkdir(parents=True)
        files = []
        if content:
            (below / "model.safetensors").write_text(content)
            manifest.write(below, asked(name=name), ["model.safetensors"])
            files = ["snapshots/chck_1M/manifest.json", "snapshots/chck_1M/model.safetensors"]
        manifest.write("export", asked(name=name), files)
        keys.append(manifest.key_of("score", {}, [Path("export")]))
    assert keys[0] == keys[1] and len(set(keys)) == 3


def test_other_text_is_not_the_same():
    manifest.write(CORPORA[0], asked(stage="corpus"), ["train.parquet"])
    assert take() is None


def test_what_is_damaged_or_incomplete_is_not_taken():
    kept = (ENG / manifest.NAME).read_bytes()
    (ENG / manifest.NAME).write_bytes(kept.replace(b'"bytes": ', b'"bytes": 1', 1))
    assert take() is None
    (ENG / manifest.NAME).write_bytes(kept)
    (ENG / "tokenizer.json").unlink()
    assert take() is None


@pytest.mark.parametrize("function", ["link", "symlink"])
def test_without_links_files_are_copied(monkeypatch, function):
    def refuse(*_args, **_kwargs):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, function, refuse)
    assert take() == ENG
    assert not (OTHER / "tokenizer.json").is_symlink() and not (ENG / "tokenizer.json").is_symlink()
    assert sha256(OTHER / "tokenizer.json") == sha256(ENG / "tokenizer.json")


def test_of_two_processes_one_waits_for_the_other(tmp_path):
    """The second begins while the first is at work, and takes what it made."""
    shutil.rmtree(ENG)
    program = (
        "import sys; from pathlib import Path; from unit.runtime.test_store import ENG, CORPORA, asked, store, manifest\n"
        "with store.made_once(ENG, asked(name='eng'), CORPORA, wait=True) as found:\n"
        "    assert found is None; print('at work', flush=True); sys.stdin.readline()\n"
        "    (ENG).mkdir(); (ENG / 'tokenizer.json').write_text('made')\n"
        "    manifest.write(ENG, asked(name='eng'), ['tokenizer.json'], CORPORA)\n"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    )
    assert first.stdin and first.stdout and first.stdout.readline() == "at work\n"
    second = subprocess.Popen(
        [sys.executable, "-c", "from unit.runtime.test_store import take; print(take())"],
        stdout=subprocess.PIPE,
        text=True,
    )
    locked = Path("results/store/locks")
    while len(open_files(second.pid, locked)) == 0:  # it waits at the lock
        assert second.poll() is None
        time.sleep(0.05)
    first.stdin.write("\n")
    first.stdin.close()
    assert first.wait() == 0
    assert second.communicate()[0] == f"{ENG}\n" and (OTHER / "tokenizer.json").read_text() == "made"


def open_files(pid: int, folder: Path) -> list[str]:
    """Return the files in a folder that a process has open."""
    links = Path(f"/proc/{pid}/fd").glob("*")
    found = []
    for link in links:
        try:
            target = os.readlink(link)
        except FileNotFoundError:
            continue
        found += [target] if target.startswith(str(folder.resolve())) else []
    return found
