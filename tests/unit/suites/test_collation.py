"""Files for a challenge: those that its own program wrote of the same predictions, byte for byte, and what it refuses."""

import copy
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelmill.config.resolve import Configuration
from babelmill.config.submissions import Rules, Task, read_rules, rules_of_model, submission_of
from babelmill.core import manifest
from babelmill.core.files import UserError, write_json
from babelmill.suites.challenge import checks, files, leaderboard
from babelmill.suites.challenge.scored import Scored
from babelmill.suites.challenge.tuned import Tuned
from helpers import ROOT
from helpers.results.challenge_scores import CODE, choices, entry_of, entry_of_shares, put
from helpers.stages import any_settings

STORED = json.loads((ROOT / "tests/data/babylm_collation.json").read_text())
CHECKPOINTS = ["chck_1M", "chck_2M"]
SUITES = {"entity_tracking": "entity_tracking_filtered"}  # names in the stored file that differ from those of tasks


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
    return Rules.model_validate(values)


def columns_of(items: list[Any]) -> dict[str, list[Any]]:
    """The columns of stored items: pairs have four entries, others five."""
    if len(items[0]) == 4:
        names, goods, bads, scores = zip(*items, strict=True)
        columns = {"paradigm": list(names), "good": list(goods), "bad": list(bads)}
        return columns | {f"causal_{key}": [each[i] for each in scores] for i, key in enumerate(("good", "bad"))}
    return choices(items)


def fast_entry(items: list[Any]) -> dict[str, Any]:
    """The entry of scores.json that the stage writes of items."""
    points = []
    for item in items:
        texts, right, scores = (item[1:3], 0, item[3]) if len(item) == 4 else (item[2], item[3], item[4])
        best = scores.index(max(scores))
        points.append(float(best == right or (texts[best] == texts[right] and len(item) == 4)))
    return entry_of(points, [item[0] for item in items])


@pytest.fixture
def rules() -> Rules:
    return small_rules()


@pytest.fixture
def scored(tmp_path, rules) -> tuple[dict[str, Scored], dict[str, Scored]]:
    """The scores of the stored items on all suites, and on the fast ones, by task."""
    folder, items = tmp_path / "results/scores/eng", STORED["items"]
    official = json.loads(STORED["official"]["complete"])["fast_eval_results"]
    full: dict[str, Scored] = {}
    fast: dict[str, Scored] = {}
    for name, of_task in items["full"].items():
        task = rules.tasks[SUITES.get(name, name)]
        examples = task.kind == "examples"
        entries = {each: fast_entry(items["fast"][each][name]) for each in CHECKPOINTS if name in items["fast"][each]}
        where = put(folder / str(task.suite), columns_of(of_task), fast_entry(of_task), entries)
        full[SUITES.get(name, name)] = Scored(where, task, CODE, "causal")
        if task.fast and not examples:
            fast[SUITES.get(name, name)] = Scored(
                put(folder / task.fast, columns_of(of_task), fast_entry(of_task), entries), task, CODE, "causal"
            )
        elif task.fast:
            fast[name] = full[name]
    own, before = zip(*items["reading"], strict=True)
    columns = {"item_id": list(range(len(own))), "causal": list(own), "causal_prev": list(before)}
    parts = [{name: each[name] for name in ("rt", "spr")} for each in official["reading"]]
    shares = [entry_of_shares(each, sum(each.values()) / 2) for each in parts]
    where = put(folder / "reading", columns, shares[-1], dict(zip(CHECKPOINTS, shares, strict=True)))
    full["reading"] = fast["reading"] = Scored(where, rules.tasks["reading"], CODE, "causal")
    steps, words, numbers, contexts, values = zip(*items["aoa"], strict=True)
    columns = {"snapshot": steps, "target_word": words, "context_id": numbers, "context": contexts, "causal": values}
    columns["million_words"] = [float(step[5:-1]) for step in steps]
    entry = entry_of_shares({}, items["score"])
    where = put(folder / "aoa", {key: list(values) for key, values in columns.items()}, entry)
    full["aoa"] = Scored(where, rules.tasks["aoa"], CODE, "causal")
    return full, fast


def written(path: Path, rules, scored, checkpoints, there) -> tuple[str, dict[str, Any], dict[str, Any]]:
    content, right = files.strict(rules, *scored, checkpoints, there, "eng", {})
    files.write_compact(path, content)
    return path.read_text(), content, right


@pytest.mark.parametrize(("name", "more"), [("complete", []), ("partial", ["chck_3M"])])
def test_the_file_is_what_the_challenges_program_writes(tmp_path, rules, scored, name, more):
    """`partial`: a checkpoint is missing. Its scores are null, and so are all surprisals for the age of acquisition."""
    text, content, _ = written(tmp_path / "made.json", rules, scored, CHECKPOINTS + more, set(CHECKPOINTS))
    assert text == STORED["official"][name]
    assert checks.wrong_in_strict(content, rules, CHECKPOINTS + more) == []


def test_snapshots_that_the_challenge_does_not_ask_for_are_left_out(rules, scored):
    content, _ = files.strict(rules, *scored, ["chck_2M"], set(CHECKPOINTS), "eng", {})
    assert {row["step"] for row in content["aoa_surprisals"]["results"]} == {"chck_2M"}
    assert content["aoa_surprisals"]["metadata"]["completed_steps"] == 1
    assert all(len(each) == 1 for each in content["fast_eval_results"].values())


def test_a_snapshot_without_scores_is_refused(rules, scored):
    with pytest.raises(Exception, match=r"scores\.json: has no scores of the snapshot chck_3M; add blimp_fast to"):
        files.strict(rules, *scored, [*CHECKPOINTS, "chck_3M"], {*CHECKPOINTS, "chck_3M"}, "eng", {})


def test_a_table_of_an_earlier_kind_of_the_suite_is_not_read(tmp_path):
    """Snakemake deletes no files of an earlier run that its rule does not declare."""
    where = put(tmp_path / "mine", {"good": ["a"], "bad": ["b"], "paradigm": ["all"]}, entry_of([1], ["all"]))
    (where / "items.parquet").write_text("an earlier run")
    assert Scored(where, Task(suite="mine"), CODE, "causal").rows["good"].to_pylist() == ["a"]
    (where / "pairs.parquet").unlink()
    with pytest.raises(Exception, match=r"pairs\.parquet: .* lists it; delete .*mine and run the workflow again$"):
        assert Scored(where, Task(suite="mine"), CODE, "causal").rows


def test_a_method_without_scores_is_refused(rules, scored):
    full = {name: Scored(each.folder, each.task, each.code, "masked") for name, each in scored[0].items()}
    with pytest.raises(
        Exception, match=r"reading/scores\.json: has no masked score, only causal; set evaluation\.backend"
    ):
        leaderboard.numbers(rules, {"reading": full["reading"]}, {}, {}, {})


def lose(content: dict[str, Any], *keys: Any) -> None:
    """Delete an entry of nested content."""
    for key in keys[:-1]:
        content = content[key]
    del content[keys[-1]]


@pytest.mark.parametrize(
    ("edit", "line"),
    [
        (lambda c: lose(c, "blimp", "passive_1", "predictions", 0), "blimp: passive_1 has 1 prediction, but the"),
        (lambda c: c["ewok"].update(more={"predictions": []}), "ewok: the challenge has no subtask more"),
        (
            lambda c: c["comps"]["base"]["predictions"][0].update(pred=1),
            "comps: base has a prediction that is not text",
        ),
        (
            lambda c: c["reading"]["reading"]["predictions"][0].update(pred="1"),
            "reading: reading has a prediction that is not a number",
        ),
        (lambda c: c["global_piqa_parallel"].popitem(), "global_piqa_parallel has 2 examples, but the"),
        (lambda c: lose(c, "aoa_surprisals", "results", 0), "aoa: chck_1M has 2 surprisals, but the"),
        (
            lambda c: lose(c, "fast_eval_results", "blimp", 1, "passive_1"),
            "blimp at chck_2M: passive_1 is missing",
        ),
        (
            lambda c: c["fast_eval_results"]["ewok"][0].update(more=0.5),
            "ewok at chck_1M: the challenge has no subtask more",
        ),
        (
            lambda c: c["fast_eval_results"]["reading"].append(None),
            "reading has scores at 3 checkpoints, but the challenge takes at most 2",
        ),
    ],
)
def test_what_the_challenge_refuses_is_refused(rules, edit, line):
    content = json.loads(STORED["official"]["complete"])
    assert checks.wrong_in_strict(content, rules, CHECKPOINTS) == []
    damaged = copy.deepcopy(content)
    edit(damaged)
    found = checks.wrong_in_strict(damaged, rules, CHECKPOINTS)
    assert len(found) == 1 and found[0].startswith(line), found


def test_what_is_missing_is_not_refused_but_counts_0(tmp_path, rules, scored):
    full, fast = ({name: each for name, each in of.items() if name != "ewok"} for of in scored)
    content, right = files.strict(rules, full, fast, CHECKPOINTS, set(CHECKPOINTS), "eng", {})
    assert content["ewok"] is None and content["glue"] == {} and content["fast_eval_results"]["ewok"] == [None, None]
    assert checks.wrong_in_strict(content, rules, CHECKPOINTS) == []
    why = {"ewok": "not scored", "glue": "needs fine-tuning"}
    found = leaderboard.numbers(rules, full, right, why, {})
    assert {name: each.missing for name, each in found.items() if each.missing} == {
        "ewok": ["ewok: not scored"],
        "glue": ["glue: needs fine-tuning"],
    }
    mean = leaderboard.overall(rules, found)
    assert found["ewok"].value == found["glue"].value == 0
    assert mean.value == pytest.approx(sum(each.value for each in found.values()) / 9)
    assert mean.half == pytest.approx(sum(each.half**2 for each in found.values()) ** 0.5 / 9)
    assert mean.missing == ["ewok: not scored", "glue: needs fine-tuning"]


def test_the_numbers_are_means_of_subtasks_in_percent(rules, scored):
    """One of two subtasks with 2 of 2 right, and 1 of 2; a pair of two equal sentences is right."""
    _, right = files.strict(rules, *scored, CHECKPOINTS, set(CHECKPOINTS), "eng", {})
    right["blimp"]["passive_1"][:] = [1, 0]
    assert right["blimp"]["principle_A_case_2"][-1] == 1, "the two sentences are equal, the scores, too"
    right["blimp"]["principle_A_case_2"][:] = [1, 1]
    found = leaderboard.numbers(rules, scored[0], right, {}, {})
    assert found["blimp"].value == pytest.approx(75)
    assert found["aoa"].value == pytest.approx(100 * STORED["items"]["score"])
    assert found["aoa"].as_json()["interval"][0] < 0 <= found["ewok"].as_json()["interval"][0]
    assert all(each.as_json()["interval"][1] <= 100 for each in found.values())
    parts = json.loads(STORED["official"]["complete"])["fast_eval_results"]["reading"][-1]
    assert found["reading"].value == pytest.approx(50 * (parts["spr"] + parts["rt"]))
    assert found["reading"].half == pytest.approx(2), "that of the stage score: both parts have the same words"
    del right["blimp"]["passive_1"]
    found = leaderboard.numbers(rules, scored[0], right, {}, {})
    assert found["blimp"].value == pytest.approx(50) and found["blimp"].missing == ["blimp: no items of passive_1"]


def test_sizes_of_fast_scores(rules, scored):
    entry = next(iter(scored[1]["blimp"].at_checkpoints().values()))
    task = rules.tasks["blimp"]
    assert [*checks.wrong_sizes_of_scores("blimp", task, "chck_1M", entry)] == []
    entry["by_paradigm"]["passive_1"]["n"] = 5
    assert [*checks.wrong_sizes_of_scores("blimp", task, "chck_1M", entry)] == [
        "blimp at chck_1M: passive_1 has 5 items, but the challenge's data has 2"
    ]


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
    found = checks.wrong_in_card(tmp_path)
    assert len(found) == bool(line) and (not line or line in found[0]), found


def test_multilingual_files(tmp_path):
    rules = read_rules("babylm_2026_multilingual")
    task = rules.tasks["hellaswag_nl_mubench"]
    columns = choices([("all", ["x"], ["y"], 0, [-1.0])])
    where = put(
        tmp_path / "scores/eng/hellaswag",
        columns,
        entry_of([1, 1, 0, 1], ["all"] * 4),
        {"chck_1M": entry_of([1, 0], ["all"] * 2)},
    )
    scored = {"hellaswag_nl_mubench": Scored(where, task, CODE, "causal")}
    scores, predictions = files.multilingual(rules, scored, scored, CHECKPOINTS, {"chck_1M"}, {})
    assert scores == {"hellaswag_nl_mubench": {"hellaswag_nl_mubench": 0.75}}
    row = predictions["zeroshot"]["hellaswag_nl_mubench"]
    assert row["acc,none"] == 0.75 and row["acc_stderr,none"] == pytest.approx(0.25)
    assert predictions["fast_eval_results"] == [{"hellaswag_nl_mubench": 0.5}, {}]
    assert checks.wrong_in_multilingual(scores, predictions, CHECKPOINTS) == []
    found = leaderboard.numbers(rules, scored, {}, {}, {})
    of_dutch = sum(each.group == "nld" for each in rules.numbers.values())
    assert leaderboard.overall(rules, found).value == pytest.approx(75 / of_dutch / 3)
    scores |= {"hanzi_pinyin": {"hanzi_pinyin": 0.5}, "arc": {}, "mnli": {"en": "0.5"}}
    assert checks.wrong_in_multilingual(scores, {"zeroshot": {}}, CHECKPOINTS) == [
        "hanzi_pinyin is scored by the challenge, and may not be in the scores",
        "arc has no score",
        "mnli has a score that is not a number",
        "there are no predictions: the model is scored on no suite of the challenge",
    ]


@pytest.mark.parametrize(
    ("lost", "scores", "message"),
    [
        ("harness_id", [-1.0, -2.0], r"items have no `harness_id`, .*; set suites\.hanzi_pinyin\.harness_ids: true"),
        ("", None, r"an item of hanzi_pinyin has no causal score \('good'\): it is longer than"),
    ],
)
def test_items_that_the_challenge_scores_itself_need_a_name_and_scores(tmp_path, lost, scores, message):
    columns = {"harness_id": ["0:ab"], "options": [["good", "bad"]], "right": [0]}
    columns |= {"causal": [scores], "causal_points": [None if scores is None else 1.0]}
    columns.pop(lost, None)
    rules = read_rules("babylm_2026_multilingual")
    where = put(tmp_path / "hanzi_pinyin", columns, entry_of([1], ["all"]))
    mine = {"hanzi_pinyin": Scored(where, rules.tasks["hanzi_pinyin"], CODE, "causal")}
    with pytest.raises(UserError, match=message):
        files.multilingual(rules, mine, {}, CHECKPOINTS, set(), {})


@pytest.mark.parametrize("name", ["babylm_strict_small", "babylm_strict", "babylm_multilingual"])
def test_each_shipped_challenge_scores_all_that_it_submits(name):
    configuration = Configuration([("config/config.yaml", {"models": {"mine": {"preset": ["auto", name]}}})])
    asked = submission_of(configuration, "mine")
    rules = rules_of_model(configuration.model("mine"))
    assert asked["missing"] == {task: each.missing for task, each in rules.tasks.items() if each.missing}
    assert asked["missing_at_checkpoints"] == {}
    assert asked["checkpoints"][-1] == {"babylm_strict_small": "chck_100M"}.get(name, "chck_1000M")
    assert len(asked["checkpoints"]) == {"babylm_strict_small": 19}.get(name, 28)


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
    content, _ = files.strict(rules, {}, {}, CHECKPOINTS, set(), "eng", tuned)
    rows = [{"id": "rte_0", "pred": 1}, {"id": "rte_1", "pred": 1}, {"id": "rte_2", "pred": 0}]
    assert content["glue"] == {"rte": {"predictions": rows}}
    assert not checks.wrong_in_strict(content, rules, CHECKPOINTS)
    rows.pop()
    assert checks.wrong_in_strict(content | {"glue": {"rte": {"predictions": rows}}}, rules, CHECKPOINTS)
    found = leaderboard.numbers(rules, {}, {}, {}, tuned)["glue"]
    assert found.value == pytest.approx(20.0) and found.missing == ["glue: the model is not fine-tuned for wsc"]
    of_language = {"sib200_en": Tuned({"sib200": rte}, "eng")}
    scores, predictions = files.multilingual(rules, {}, {}, CHECKPOINTS, set(), of_language)
    assert scores == {"sib200": {"en": 0.4}}
    assert predictions["finetune"]["sib200_en"][0] == {"index": 0, "prediction": "1"}


def test_tags_of_words_that_are_only_predicted(tmp_path):
    """The multilingual file has the score of the scored sentences, and the tags of others; a word may have none."""
    folder = write_tuned(tmp_path / "pos/12", ["NOUN", "VERB"], ["NOUN", "NOUN"], 0.5)
    table = {"language": ["eng"] * 4 + ["nld"], "sentence": [0, 0, 0, 1, 0], "prediction": ["DET", None, "X", "X", "Y"]}
    pq.write_table(pa.table(table), folder / "predicted.parquet")
    names = ["predictions.parquet", "predicted.parquet", "scores.json"]
    manifest.write(folder, any_settings("tune"), names)
    rules = read_rules("babylm_2026_multilingual")
    tuned = {"pos_en": Tuned({"pos": folder}, "eng")}
    scores, predictions = files.multilingual(rules, {}, {}, CHECKPOINTS, set(), tuned)
    assert scores == {"pos": {"en": 0.5}}
    assert predictions["finetune"] == {"pos_en": [{"index": 0, "prediction": "DET X"}, {"index": 1, "prediction": "X"}]}
    assert leaderboard.numbers(rules, {}, {}, {}, tuned)["pos_en"].value == pytest.approx(50.0)
