"""Files for a challenge: those that its own program wrote of the same predictions, byte for byte, and what it refuses."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelmill.config.submissions import Rules, Task, read_rules
from babelmill.core import manifest
from babelmill.core.files import UserError, write_json
from babelmill.suites import challenge
from babelmill.suites.challenge import Results, Scored, Tuned
from babelmill.suites.results import summary
from helpers import ROOT
from helpers.stages import any_settings

STORED = json.loads((ROOT / "tests/data/babylm_collation.json").read_text())
CHECKPOINTS = ["chck_1M", "chck_2M"]
SUITES = {"entity_tracking": "entity_tracking_filtered"}  # names in the stored file that differ from those of tasks
COLUMNS = ("paradigm", "prompts", "options", "right", "causal")  # of items.parquet


def small_rules() -> Rules:
    """The shipped rules, with the sizes of the stored items."""
    shipped, sizes = read_rules("babylm_2026_strict"), STORED["sizes"]
    values = shipped.model_dump()
    for name, of_task in sizes["full"].items():
        kind = values["tasks"][SUITES.get(name, name)]["kind"]
        values["tasks"][SUITES.get(name, name)]["sizes"] = len(of_task) if kind == "examples" else of_task
    for name, of_task in sizes["fast"].items():
        values["tasks"][SUITES.get(name, name)]["fast_sizes"] = of_task
    values["tasks"]["reading"]["sizes"] = sizes["reading"]
    values["tasks"]["aoa"]["sizes"] = sizes["aoa"]
    values["checkpoints"] = [1, 2]
    return Rules.model_validate(values)


def as_choices(items: list[Any]) -> list[Any]:
    """Stored items, of which pairs have four entries: paradigm, good, bad and two scores."""
    return [(name, ["", ""], [*texts], 0, scores) for name, *texts, scores in items] if len(items[0]) == 4 else items


def columns_of(rows: list[Any], *names: str) -> dict[str, list[Any]]:
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def entry_of(points: list[float], paradigms: list[str]) -> dict[str, Any]:
    return summary(pa.table({"phenomenon": paradigms, "paradigm": paradigms}), np.array(points, float))


def entry_of_items(items: list[Any]) -> dict[str, Any]:
    """The entry of scores.json that the stage writes of items."""
    points = []
    for item, (_, _, texts, right, scores) in zip(items, as_choices(items), strict=True):
        best = scores.index(max(scores))
        points.append(float(best == right or (texts[best] == texts[right] and len(item) == 4)))
    return entry_of(points, [item[0] for item in items])


def entry_of_shares(whole: float, **parts: float) -> dict[str, Any]:
    """The same from the scores of the whole and of parts."""
    of = {name: {"score": score, "n": 10, "interval": [score - 0.02, score + 0.02]} for name, score in parts.items()}
    return {"pairs": {"score": whole, "n": 10, "interval": [whole - 0.02, whole + 0.02]}, "by_paradigm": of}


def scored_as(task: Task, columns: dict[str, list[Any]], entry: Any, snapshots: Mapping[str, Any] = {}) -> Scored:
    """What a result of the stage `score` holds: the columns of its items, and entries of scores.json."""
    found = Scored(Path("scores", str(task.suite)), task, "eng", "causal")
    whole, *kept = ({"languages": {"eng": {"methods": {"causal": each}}}} for each in (entry, *snapshots.values()))
    parts = [{"name": name} | part for name, part in zip(snapshots, kept, strict=True)]
    vars(found).update(rows=pa.table(columns), scores=whole | {"snapshots": parts})
    return found


@pytest.fixture
def made() -> Results:
    """The scores of the stored items on all suites; those at checkpoints are of other items."""
    rules, items, full = small_rules(), STORED["items"], dict[str, Scored]()
    for name, of_task in items["full"].items():
        kept = {each: entry_of_items(items["fast"][each][name]) for each in CHECKPOINTS if name in items["fast"][each]}
        columns = columns_of(as_choices(of_task), *COLUMNS)
        task = SUITES.get(name, name)
        full[task] = scored_as(rules.tasks[task], columns, entry_of_items(of_task), kept)
    columns = columns_of(items["reading"], "causal", "causal_prev")
    columns["item_id"] = [*range(len(items["reading"]))]
    official = json.loads(STORED["official"]["complete"])["fast_eval_results"]["reading"]
    kept = {
        name: entry_of_shares(sum(each.values()) / 2, **each) for name, each in zip(CHECKPOINTS, official, strict=True)
    }
    full["reading"] = scored_as(rules.tasks["reading"], columns, kept["chck_2M"], kept)
    columns = columns_of(items["aoa"], "snapshot", "target_word", "context_id", "context", "causal")
    columns["million_words"] = [float(step[5:-1]) for step in columns["snapshot"]]
    full["aoa"] = scored_as(rules.tasks["aoa"], columns, entry_of_shares(items["score"]))
    fast = {name: each for name, each in full.items() if each.task.fast}
    return Results(rules, full, fast, there=frozenset(CHECKPOINTS))


def asking_for(made: Results, *points: float) -> Results:
    """The same for a challenge that asks for other checkpoints."""
    return dataclasses.replace(made, rules=made.rules.model_copy(update={"checkpoints": [*points]}))


def refused(made: Results) -> list[str]:
    """What the challenge would refuse."""
    found = [line for name in made.fast for line in challenge.wrong_at_checkpoints(made, name)]
    return [*challenge.wrong_in_strict(challenge.strict(made, "eng"), made.rules), *found]


@pytest.mark.parametrize(("name", "points"), [("complete", [1, 2]), ("partial", [1, 2, 3])])
def test_the_file_is_what_the_challenges_program_writes(tmp_path, made, name, points):
    """`partial`: a checkpoint is missing. Its scores are null, and so are all surprisals for the age of acquisition."""
    made = asking_for(made, *points)
    challenge.write_file(tmp_path / "made.json", challenge.strict(made, "eng"))
    assert (tmp_path / "made.json").read_text() == STORED["official"][name]
    assert refused(made) == []
    reasons = ("aoa: the challenge takes it only with all checkpoints",) if name == "partial" else ()
    assert challenge.numbers(made, {})["aoa"].missing == reasons


def test_scores_that_the_model_should_have_are_missed(made):
    more = dataclasses.replace(asking_for(made, 1, 2, 3), there=frozenset({*CHECKPOINTS, "chck_3M"}))
    with pytest.raises(UserError, match=r"scores\.json: has no scores of the snapshot chck_3M; add blimp_fast to"):
        challenge.strict(more, "eng")
    masked = dataclasses.replace(made.scored["reading"], method="masked")
    vars(masked)["scores"] = made.scored["reading"].scores
    with pytest.raises(UserError, match=r"scores\.json: has no masked score of eng, only causal; set evaluation\.back"):
        challenge.numbers(dataclasses.replace(made, scored={"reading": masked}), {})


@pytest.mark.parametrize(
    ("edit", "line"),
    [
        (lambda c: c["blimp"]["passive_1"]["predictions"].pop(), "blimp: passive_1 has 1 items, but the challenge's"),
        (lambda c: c["ewok"].update(more={"predictions": []}), "ewok: the challenge has no subtask more"),
        (lambda c: c["global_piqa_parallel"].popitem(), "global_piqa_parallel: global_piqa_parallel has 2 items, but"),
        (lambda c: c["aoa_surprisals"]["results"].pop(0), "aoa: chck_1M has 2 items, but the challenge's data has"),
    ],
)
def test_what_the_challenge_refuses_is_refused(edit, line):
    content = json.loads(STORED["official"]["complete"])
    edit(content)
    (found,) = challenge.wrong_in_strict(content, small_rules())
    assert found.startswith(line), found


def test_what_the_challenge_refuses_at_checkpoints_is_refused(made):
    of_blimp = next(iter(made.fast["blimp"].at_checkpoints().values()))["by_paradigm"]
    of_blimp["passive_1"]["n"] = 5
    of_blimp["more"] = of_blimp.pop("principle_A_case_2")
    assert refused(made) == [
        "blimp at chck_1M: passive_1 has 5 items, but the challenge's data has 2",
        "blimp at chck_1M: the challenge has no subtask more",
        "blimp at chck_1M: principle_a_case_2 is missing",
    ]


def test_what_is_missing_is_not_refused_but_counts_0(made):
    full, fast = ({name: each for name, each in of.items() if name != "ewok"} for of in (made.scored, made.fast))
    made = dataclasses.replace(made, scored=full, fast=fast)
    content = challenge.strict(made, "eng")
    assert content["ewok"] is None and content["glue"] == {} and content["fast_eval_results"]["ewok"] == [None, None]
    assert refused(made) == []
    found = challenge.numbers(made, {"ewok": "not scored", "glue": "needs fine-tuning"})
    mean, missing = challenge.overall(made.rules, found), ("ewok: not scored", "glue: needs fine-tuning")
    assert found["ewok"].missing + found["glue"].missing == missing == mean.missing
    assert found["ewok"].value == found["glue"].value == 0
    assert mean.value == pytest.approx(sum(each.value for each in found.values()) / 9)
    assert mean.half == pytest.approx(sum(each.half**2 for each in found.values()) ** 0.5 / 9)


def test_the_numbers_are_means_of_subtasks_in_percent(made):
    """One of two subtasks with 2 of 2 right, and 1 of 2; a pair of two equal sentences is right."""
    answers = made.scored["blimp"].answers
    assert answers["principle_A_case_2"][-1][1], "the two sentences are equal, the scores, too"
    answers |= {"passive_1": [("", True), ("", False)], "principle_A_case_2": [("", True)] * 2}
    found = challenge.numbers(made, {})
    assert found["blimp"].value == pytest.approx(75)
    assert found["aoa"].value == pytest.approx(100 * STORED["items"]["score"])
    assert found["aoa"].as_json()["interval"][0] < 0 <= found["ewok"].as_json()["interval"][0]
    assert all(each.as_json()["interval"][1] <= 100 for each in found.values())
    parts = json.loads(STORED["official"]["complete"])["fast_eval_results"]["reading"][-1]
    assert found["reading"].value == pytest.approx(50 * (parts["spr"] + parts["rt"]))
    assert found["reading"].half == pytest.approx(2), "that of the stage score: both parts have the same words"
    del answers["passive_1"]
    found = challenge.numbers(made, {})
    assert found["blimp"].value == pytest.approx(50) and found["blimp"].missing == ("blimp: no items of passive_1",)


CARD = "---\nlicense: mit\n---\n# eng\n" + "A small model of English. " * 10


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (CARD, None),
        (CARD.replace("license: mit", "license_name: own\nlicense_link: https://example.org"), None),
        (CARD.replace("license: mit", "tags: [a]"), "the model card names no licence; set card.license"),
        (CARD[:100], "the text of the model card has"),
        ("", "there is no model card"),
    ],
)
def test_model_cards(tmp_path, text, line):
    if text:
        (tmp_path / "README.md").write_text(text)
    found = [*challenge.wrong_in_card(tmp_path)]
    assert len(found) == bool(line) and (not line or line in found[0]), found


def test_multilingual_files():
    rules, name = read_rules("babylm_2026_multilingual"), "hellaswag_nl_mubench"
    kept = {"chck_1M": entry_of([1, 0], ["all"] * 2)}
    scored = {name: scored_as(rules.tasks[name], {}, entry_of([1, 1, 0, 1], ["all"] * 4), kept)}
    of = asking_for(Results(rules, scored, scored, there=frozenset({"chck_1M"})), 1, 2)
    scores, predictions = challenge.multilingual(of)
    assert scores == {"hellaswag_nl_mubench": {"hellaswag_nl_mubench": 0.75}}
    row = predictions["zeroshot"]["hellaswag_nl_mubench"]
    assert row["acc,none"] == 0.75 and row["acc_stderr,none"] == pytest.approx(0.25)
    assert predictions["fast_eval_results"] == [{"hellaswag_nl_mubench": 0.5}, {}]
    found = challenge.numbers(of, {})
    of_dutch = sum(each.group == "nld" for each in rules.numbers.values())
    assert challenge.overall(rules, found).value == pytest.approx(75 / of_dutch / 3)


@pytest.mark.parametrize(
    ("lost", "scores", "message"),
    [
        ("harness_id", [-1.0, -2.0], r"items have no `harness_id`, .*; set suites\.hanzi_pinyin\.harness_ids: true"),
        ("", None, r"an item of hanzi_pinyin has no causal score \('good'\): it is longer than"),
    ],
)
def test_items_that_the_challenge_scores_itself_need_a_name_and_scores(lost, scores, message):
    columns = {"harness_id": ["0:ab"], "options": [["good", "bad"]], "right": [0]}
    columns |= {"causal": [scores], "causal_points": [None if scores is None else 1.0]}
    columns.pop(lost, None)
    rules = read_rules("babylm_2026_multilingual")
    mine = {"hanzi_pinyin": scored_as(rules.tasks["hanzi_pinyin"], columns, entry_of([1], ["all"]))}
    with pytest.raises(UserError, match=message):
        challenge.multilingual(Results(rules, mine))


def write_tuned(folder, labels: list[str], predictions: list[str], score: float):
    """Scores and predictions as the stage `tune` writes them."""
    folder.mkdir(parents=True)
    table = pa.table({"language": ["eng"] * len(labels), "label": labels, "prediction": predictions})
    pq.write_table(table, folder / "predictions.parquet")
    metrics = {"accuracy": {"score": score, "n": len(labels), "interval": [score - 0.1, score + 0.1]}}
    entry = {**metrics["accuracy"], "metrics": metrics, "classes": sorted(set(labels))}
    write_json(folder / "scores.json", {"task": folder.parent.name, "languages": {"eng": entry}})
    manifest.write(folder, any_settings("tune"), ["predictions.parquet", "scores.json"])
    return folder


def test_scores_after_fine_tuning(tmp_path):
    """The numbers of classes in the strict file, labels in the multilingual one; a subtask that is missing counts 0."""
    rte = write_tuned(tmp_path / "rte/42", ["0", "1", "1"], ["1", "1", "0"], 0.4)
    task = Task(kind="labels", tuned=["rte", "wsc"], sizes={"rte": 3, "wsc": 2})
    numbers = {"glue": {"title": "GLUE", "tasks": ["glue"]}}
    about = {"title": "Tiny", "track": "strict", "words": 10, "state": "now", "form": "strict", "checkpoints": [1]}
    about |= {"numbers": numbers}
    rules = Rules.model_validate(about | {"tasks": {"glue": task.model_dump()}})
    tuned = {"glue": Tuned({"rte": rte}, "eng")}
    content = challenge.strict(Results(rules, tuned=tuned), "eng")
    rows = [{"id": "rte_0", "pred": 1}, {"id": "rte_1", "pred": 1}, {"id": "rte_2", "pred": 0}]
    assert content["glue"] == {"rte": {"predictions": rows}} and not [*challenge.wrong_in_strict(content, rules)]
    found = challenge.numbers(Results(rules, tuned=tuned), {})["glue"]
    assert found.value == pytest.approx(20.0) and found.missing == ("glue: the model is not fine-tuned for wsc",)
    of_language = {"sib200_en": Tuned({"sib200": rte}, "eng")}
    scores, predictions = challenge.multilingual(Results(read_rules("babylm_2026_multilingual"), tuned=of_language))
    assert scores == {"sib200": {"en": 0.4}}
    assert predictions["finetune"]["sib200_en"][0] == {"index": 0, "prediction": "1"}
