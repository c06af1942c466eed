"""`snakemake submissions/mine.json`: from text to the files that a challenge takes, of a tiny challenge of the test."""

import json

import pytest
import yaml

from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError, read_json, sha256
from babelmill.stages import STAGES
from conftest import SMALL, Checkout

pytestmark = pytest.mark.slow

POINTS = [0.001, 0.002, 0.003]
NAMES = [f"chck_{point:g}M" for point in POINTS]
SIZES = {"order": 4, "words": 2}
PAIRS = """good\tbad\tparadigm
the quick fox\tfox quick the\torder
seven wizards boil water\twater seven boil wizards\torder
a lazy dog\tdog a lazy\torder
in large pots\tlarge in pots\torder
the quick fox\tthe qvick fux\twords
warm water\twarm water\twords
"""
CONTEXTS = """{"domain": "water", "c1": "The wizards boil it.", "c2": "The wizards see it.", "t": "It is warm."}
{"domain": "water", "c1": "The dog sleeps.", "c2": "The dog jumps.", "t": "It is lazy."}
"""
BASICS = {"files": ["pairs.tsv"], "language": "eng", "good": "good", "bad": "bad", "paradigm": "paradigm"}
ELSE = {"files": ["contexts.jsonl"], "language": "eng", "kind": "choices", "paradigm": "domain"}
ELSE |= {"prompt": ["{c1}", "{c2}"], "options": [" {t}", " {t}"], "scored": "completion", "ties": "first"}
TEXT = {"language": "eng", "name": "tiny", "corpus": {"files": ["texts/eng/*.txt"], "validation_share": 0.2}}
CHALLENGE = {
    "languages": ["tiny_text"],
    "submission": "tiny",
    "train": {"max_words": 3000, "max_steps": None},
    "run": {"snapshots": POINTS},
    "evaluation": {"suites": ["basics", "contexts"], "snapshot_suites": ["basics"]},
}
TASK = {"suite": "basics", "sizes": SIZES}
RULES = {
    "title": "Tiny challenge",
    "track": "strict-small",
    "words": 3000,
    "state": "the state of the test",
    "form": "strict",
    "checkpoints": POINTS,
    "tasks": {
        "basics": TASK | {"fast": "basics", "fast_sizes": SIZES},
        "contexts": {"suite": "contexts", "sizes": {"water": 2}, "prediction": "whole"},
        "more": {"suite": "blimp_filtered", "sizes": 10},
        "glue": {"kind": "labels", "missing": "needs fine-tuning"},
    },
    "numbers": {
        "basics": {"title": "Basics", "tasks": ["basics"]},
        "more": {"title": "More", "tasks": ["contexts", "more"]},
        "glue": {"title": "GLUE", "tasks": ["glue"]},
    },
}
COLLATED = "submissions/mine/all_full_preds_and_fast_scores_{backend}.json"


@pytest.fixture
def checkout(workspace, tmp_path) -> Checkout:
    """The project with a tiny challenge, and the results of another model."""
    made = Checkout(tmp_path / "checkout", workspace.path)
    for folder, values in (("presets", CHALLENGE), ("submissions", RULES)):
        (made.project / f"config/{folder}/{'tiny_challenge' if folder == 'presets' else 'tiny'}.yaml").write_text(
            yaml.safe_dump(values, sort_keys=False)
        )
    (made.path / "pairs.tsv").write_text(PAIRS)
    (made.path / "contexts.jsonl").write_text(CONTEXTS)
    made.configure(configured())
    return made


def configured(**evaluation) -> dict:
    entry = {"preset": ["tiny", "tiny_challenge"], "publish": {"username": "lab"}, "evaluation": evaluation}
    values = SMALL | {
        "languages": SMALL["languages"] | {"tiny_text": TEXT},
        "targets": ["mine"],
        "models": {"mine": entry},
        "suites": {"basics": BASICS, "contexts": ELSE},
    }
    return values | {"train": SMALL["train"] | {"global_batch_tokens": 1024, "max_steps": None}}


def test_from_text_to_the_challenge(checkout, hub, monkeypatch):
    root = checkout.path
    (root / "texts/eng/planted.txt").write_text("Seven wizards boil water!")  # not for validation
    checkout.snakemake("submissions/mine.json")
    summary = read_json(root / "submissions/mine.json")
    found, path = summary["figures"], root / COLLATED.format(backend="causal")
    scores = read_json(root / "results/of/mine/score/basics/scores.json")
    causal = scores["languages"]["tiny_text"]["methods"]["causal"]
    content = json.loads(path.read_text())
    assert [*content] == ["basics", "contexts", "more", "glue", "fast_eval_results"]
    assert {name: len(each["predictions"]) for name, each in content["basics"].items()} == SIZES
    first = content["contexts"]["water"]["predictions"][0]
    wizards = [f"The wizards {verb} it. It is warm." for verb in ("boil", "see")]
    assert first["id"] == "water_0" and first["pred"] in wizards
    assert content["more"] is None and content["glue"] == {}
    fast = content["fast_eval_results"]["basics"]
    kept = [each["languages"]["tiny_text"]["methods"]["causal"]["by_paradigm"] for each in scores["snapshots"]]
    assert fast == [{name: each["score"] for name, each in of.items()} for of in kept] and len(fast) == 3
    shown = read_json(root / "submissions/mine.json")["figures"]["summary"]
    assert shown.startswith(f"{found['leaderboard']['score']:.2f} on the leaderboard, ")
    assert " numbers incomplete: " in shown
    basics = found["numbers"]["basics"]
    half = 0.5 / 2 / 2  # of the two equal sentences, which the challenge counts as right
    assert basics["score"] == pytest.approx(100 * (causal["paradigms"]["score"] + half))
    both = [basics["score"], found["numbers"]["more"]["score"]]
    assert found["leaderboard"]["score"] == pytest.approx(sum(both) / 3)
    assert found["numbers"]["more"]["missing"] == [
        "more: the model is not scored on blimp_filtered (evaluation.suites)"
    ]
    assert found["checkpoints"] == {"there": NAMES, "missing": [], "without": {}}
    assert found["read"]["model"]["words"] <= 3100 and [*found["read"]["checkpoints"]] == NAMES
    assert summary["files"] == {
        f"mine/{path.name}": {"sha256": sha256(path), "bytes": path.stat().st_size},
    }

    assert checkout.would_run(targets=["submissions/mine.json"]) == set()
    assert "submission       up to date" in checkout.babelmill("why", "mine")
    card = (root / "converted/mine/README.md").read_text()
    assert "1 of 6 pairs stands in the training text (5 are too short to tell); without it " in card
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    checkout.snakemake("published/mine.json")
    (repository,) = hub.repositories.values()
    files = repository.commits[repository.branches["main"]]
    assert files["submission.json"] == (root / "submissions/mine.json").read_bytes()
    assert not any(path.name in name for name in files), "the items of some suites may not be published"
    assert set(NAMES) <= repository.branches.keys()

    checkout.configure(configured(backend="mlm"))
    assert checkout.would_run(targets=["submissions/mine.json"]) == {("submission", "mine")}
    checkout.snakemake("submissions/mine.json")
    assert [path.name for path in (root / "submissions/mine").iterdir() if path.suffix] == [
        COLLATED.format(backend="mlm").rpartition("/")[2]
    ]
    rules = RULES | {"tasks": RULES["tasks"] | {"basics": RULES["tasks"]["basics"] | {"sizes": SIZES | {"words": 3}}}}
    (checkout.project / "config/submissions/tiny.yaml").write_text(yaml.safe_dump(rules, sort_keys=False))
    output = checkout.snakemake("submissions/mine.json", check=False).stderr
    line = "the challenge would refuse this submission: basics: words has 2 items, but the challenge's data has"
    assert line in output and "Traceback" not in output


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ({"languages": ["eng"]}, r"model mine has no `submission`, as presets such as babylm_strict_small have it"),
        (
            {"preset": ["auto", "babylm_multilingual"], "train": {"objective": "masked"}},
            "train.objective = 'masked' of model mine: BabyLM 2026 multilingual takes scores that are causal",
        ),
        (
            {"preset": ["auto", "babylm_strict"], "train": {"objective": "causal"}, "evaluation": {"backend": "mlm"}},
            "evaluation.backend = 'mlm' of model mine: BabyLM 2026 strict takes scores that are causal or mlm",
        ),
    ],
)
def test_a_model_that_has_nothing_to_submit_is_refused_before_anything_runs(folder, model, line):
    values = {"models": {"mine": model}}
    configuration = Configuration([("config/config.yaml", values)])
    with pytest.raises(UserError, match=line):
        STAGES["submission"].refuse(configuration, configuration.model("mine"), "")
    assert STAGES["submission"].parts(configuration.model("mine")) == [], "the model itself is made as any other"
