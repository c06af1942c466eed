"""`published/{model}.json`: the workflow as users run it, against a Hub on this machine that breaks in all usual ways."""

import json

import pytest
import yaml

from babelmill.core import manifest
from babelmill.core.files import read_json, sha256
from conftest import Workspace
from helpers.damage import flip_a_bit
from helpers.hub.hub_server import Fault
from helpers.hub.hub_stage import PROGRAM
from helpers.hub.hub_uploads import ATTRIBUTES

pytestmark = pytest.mark.slow

TOKEN = "hf_CanaryThatMustStandNowhere4711"
NAME = "models/ada/babybabellm-gptbert-eng"
RECEIPT = "published/eng.json"
SETTINGS = "results/settings/publish/eng.json"
LARGE = {"model.safetensors", "model.main.safetensors"}


@pytest.fixture
def hub(hub, monkeypatch):
    hub.tokens = {TOKEN}
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return hub


class Publisher(Workspace):
    """A workspace whose commands must not show the token."""

    def snakemake(self, *arguments, check=True):
        done = super().snakemake(*arguments, check=check)
        assert TOKEN not in done.stdout + done.stderr
        return done

    def publish(self, check=True):
        """Run Snakemake for the receipt; what it wrote, or the one line of error."""
        receipt = self.path / RECEIPT
        before = receipt.read_bytes() if receipt.exists() else None
        done = self.snakemake(RECEIPT, check=check)
        if check:
            return read_json(receipt)
        assert done.returncode == 1, done.stdout + done.stderr
        assert (receipt.read_bytes() if receipt.exists() else None) == before, "that of the last success stays"
        assert "Traceback" not in (self.path / "logs/publish/eng.log").read_text()
        return (self.path / "logs/publish/eng.log").read_text().splitlines()[-1].partition("error: ")[2]

    def stage(self):
        """The stage by hand, without Snakemake and without waiting; the last line of its log."""
        done = self.python("-c", PROGRAM.format(module="babelmill.publish"), SETTINGS)
        assert "Traceback" not in done.stderr and TOKEN not in done.stdout + done.stderr
        return done.returncode, done.stderr.splitlines()[-1]

    def change(self, **sections):
        self.configure(yaml.safe_load(self.config_file.read_text()) | sections)

    def folder(self) -> dict[str, bytes]:
        """What the repository must hold: the files of the manifest, and the manifest."""
        names = [*manifest.verify(self.path / "converted/eng")["files"], manifest.NAME]
        return {name: (self.path / "converted/eng" / name).read_bytes() for name in names}


@pytest.fixture
def work(workspace, tmp_path):
    """After each test, the token stands in no file of the workspace or of the cache, and in no file's name."""
    yield Publisher(workspace.path)
    for path in tmp_path.rglob("*"):
        assert TOKEN not in path.name
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes(), path


def content(hub, name=NAME) -> dict[str, bytes]:
    repository = hub.repositories[name]
    return repository.commits[repository.branches["main"]]


def uploads(hub) -> int:
    return hub.count("^PUT /storage")


def test_one_commit_a_receipt_and_nothing_twice(hub, work):
    receipt = work.publish()
    repository = hub.repositories[NAME]
    assert content(hub) == work.folder() | {".gitattributes": ATTRIBUTES}
    assert len(repository.history) == 1 and not repository.private
    assert {name for name in content(hub) if name.endswith(".safetensors")} == LARGE and uploads(hub) == len(LARGE)
    assert receipt["files"] == {name: sha256(work.path / "converted/eng" / name) for name in work.folder()}
    assert receipt["upstream"] == {"converted/eng": manifest.digest(work.path / "converted/eng")}
    assert receipt["repository"] == "ada/babybabellm-gptbert-eng"
    assert receipt["commit"] == repository.history[0]["commit"]
    assert work.would_run(targets=[RECEIPT]) == set()

    hub.log.clear()
    assert work.snakemake(RECEIPT, "--forcerun", "publish") and read_json(work.path / RECEIPT) == receipt
    assert len(repository.history) == 1
    assert hub.count("^PUT|/commit/") == 0

    work.change(card={"description": "Another sentence."})
    assert work.would_run(targets=[RECEIPT]) == {("convert", "eng"), ("publish", "eng")}
    work.publish()
    assert len(repository.history) == 2
    assert sorted(repository.history[1]["changed"]) == ["README.md", "manifest.json"]
    assert b"\nAnother sentence.\n" in content(hub)["README.md"], "what only the user can say"
    assert uploads(hub) == 0, "only what changed is committed"
    assert content(hub) == work.folder() | {".gitattributes": ATTRIBUTES}


def test_visibility_and_owner_and_the_token_of_a_login(hub, work, monkeypatch, tmp_path):
    monkeypatch.delenv("HF_TOKEN")
    assert work.would_run() == set(), "all that is not published needs no token"
    (tmp_path / "login").write_text(TOKEN)
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "login"))
    settings = {"username": "lab", "repo_template": "{username}/my-{model}"}
    work.change(publish=settings | {"private": True})
    assert work.publish()["repository"] == "lab/my-eng"
    repository = hub.repositories["models/lab/my-eng"]
    assert repository.private
    work.change(publish=settings | {"private": False})
    assert work.would_run(targets=[RECEIPT]) == {("publish", "eng")}
    output = work.publish(check=False)
    assert "lab/my-eng" in output and "is private, but publish.private is false" in output and "--private" in output
    assert repository.private and len(repository.history) == 1
    assert hub.count("whoami") == 0
    (tmp_path / "login").unlink()


def test_faults_that_pass(hub, work):
    """The outcome is that of an undisturbed run: one commit, each large file once in the storage, a receipt."""
    hub.faults += [Fault("whoami", status=500), Fault("PUT /storage", drop="after"), Fault("/commit/", drop="after")]
    receipt = work.publish()
    assert not any(fault.times for fault in hub.faults), "a fault did not come up"
    repository = hub.repositories[NAME]
    assert content(hub) == work.folder() | {".gitattributes": ATTRIBUTES}
    assert len(repository.history) == 1
    assert receipt["commit"] == repository.history[0]["commit"]
    assert uploads(hub) <= len(LARGE) + 1


def test_a_fault_that_stays(hub, work):
    """An error and no receipt; the next run uploads nothing again."""
    work.snakemake(RECEIPT, "--dry-run")  # which writes the settings
    hub.faults.append(Fault("/commit/", status=503, times=5))
    code, line = work.stage()
    assert code == 1 and "could not be published: 503 broken on purpose; run the same command again" in line
    assert not (work.path / RECEIPT).exists() and hub.repositories[NAME].history == []
    hub.log.clear()
    assert work.stage()[0] == 0
    assert uploads(hub) == 0 and len(hub.repositories[NAME].history) == 1


CARD = {"errors": [{"message": '"license" must be one of [mit, other]'}]}
ECHO = {"error": f"Invalid: {TOKEN}"}
REFUSED = "the token of HF_TOKEN or `hf auth login` may not write to the repository "


@pytest.mark.parametrize(
    ("endpoint", "status", "answer", "words"),
    [
        ("validate-yaml", 400, CARD, "model card: Invalid metadata in README.md. - " + CARD["errors"][0]["message"]),
        ("whoami", 401, ECHO, REFUSED + r"{username}/"),
        ("/commit/", 403, ECHO, "(403 Invalid: <token>)"),
    ],
)
def test_what_the_hub_refuses(hub, work, endpoint, status, answer, words):
    """Said at once, and once, in a line that does not repeat the token even where the Hub does."""
    hub.faults.append(Fault(endpoint, status=status, body=json.dumps(answer).encode(), times=99))
    line = work.publish(check=False)
    assert words in line and (answer is CARD or line.startswith(REFUSED))
    assert hub.count(endpoint) == 1


def test_what_is_no_longer_ours_is_deleted_and_what_never_was_stays(hub, work):
    """Also what somebody commits in the middle of our commit, which goes on top of it."""
    theirs = {".gitattributes": ATTRIBUTES, "notes.md": b"by hand"}
    hub.faults.append(Fault("/commit/", meanwhile=lambda: hub.commit(NAME, theirs)))
    work.publish()
    assert content(hub) == work.folder() | theirs
    assert hub.count("/commit/") == 2 and len(hub.repositories[NAME].history) == 1
    hub.commit(NAME, content(hub) | {"config.json": b"{}"})
    path = work.path / "converted/eng/manifest.json"
    values = json.loads(path.read_text())
    del values["files"]["training_history.png"], values["sha256"]
    path.write_text(json.dumps(values))
    assert work.stage()[0] == 0
    assert hub.repositories[NAME].history[-1]["deleted"] == ["training_history.png"]
    assert sorted(hub.repositories[NAME].history[-1]["changed"]) == ["config.json", "manifest.json"]
    assert content(hub) == work.folder() | theirs


def test_what_cannot_be_published(hub, work):
    """A repository that ignores files, or holds another model; a damaged folder, of which nobody is asked."""
    hub.commit(NAME, {".gitattributes": ATTRIBUTES, ".gitignore": b"*.png\n"})
    assert "training_history.png did not arrive; does a .gitignore there name it?" in work.publish(check=False)
    work.change(publish={"repo_template": "{username}/one"})
    assert work.snakemake("published/deu.json")
    before = dict(content(hub, "models/ada/one"))
    assert "ada/one contains the model deu, not eng" in work.publish(check=False)
    assert content(hub, "models/ada/one") == before
    hub.log.clear()
    flip_a_bit(work.path / "converted/eng/model.safetensors")
    assert "model.safetensors: damaged" in work.publish(check=False) and hub.log == []


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"HF_TOKEN": ""}, "HF_TOKEN"),
        ({"HF_TOKEN": f"{TOKEN[:9]} {TOKEN[9:]}"}, "white space"),
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_what_is_lacking_is_said_before_anything_runs(hub, tmp_path, monkeypatch, environment, words, options):
    """Of a model that has yet to be trained, for the receipt and for a group of them."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    fresh = Publisher(tmp_path / "fresh")
    fresh.configure({"corpus": {"builtin": "python-docs"}, "groups": {"mine": ["eng", "deu"]}})
    done = fresh.snakemake("publish_mine" if options else RECEIPT, *options, check=False)
    assert done.returncode == 1
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("error: ")]
    assert len(lines) == 1 and words in lines[0], done.stdout + done.stderr
    assert TOKEN[9:] not in done.stdout + done.stderr
    assert not (fresh.path / "results/corpus").exists() and hub.log == []


def test_a_folder_is_published_by_hand(hub, work):
    """As the workflow does it: one commit, nothing twice; the repository's name is the user's."""
    command = ["-m", "babelmill", "publish", "converted/eng", "--repo", "lab/mine"]
    done = work.python(*command, check=True)
    commit = hub.repositories["models/lab/mine"].branches["main"]
    assert done.stdout == f"{hub.url}/lab/mine is converted/eng at {commit}\n"
    assert content(hub, "models/lab/mine").items() >= work.folder().items()
    assert work.python(*command).returncode == 0 and hub.repositories["models/lab/mine"].branches["main"] == commit
    for folder, name, words in (
        ("converted/eng", "mine", "expected owner/name"),
        ("config", "lab/mine", "config: has no manifest.json; publish a folder of the workflow"),
        ("results/of/eng/corpus", "lab/mine", "has the results of the stage corpus, not a converted model"),
    ):
        assert words in work.python("-m", "babelmill", "publish", folder, "--repo", name).stderr
