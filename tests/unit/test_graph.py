"""The results that a configuration asks for: where they are, which of them are shared, and why they would run."""

import re
import shutil
from pathlib import Path

import pytest

from babelmill.commands.clean import unused
from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError, canonical_json, read_json, write_json
from babelmill.core.local_sources import matched
from babelmill.graph import Graph, reasons
from babelmill.stages import STAGES, run_settings_of
from helpers.results.report_results import finish

TEXT = {code: {"corpus": {"files": [f"{code}.txt"]}} for code in ("eng", "deu")}


@pytest.fixture(autouse=True)
def texts(folder):
    """The text of two languages."""
    for code in TEXT:
        Path(f"{code}.txt").write_text(f"This is {code}.\n")


def made(models: dict | None = None, **more) -> Configuration:
    return Configuration([("config.yaml", {"preset": "tiny", "languages": TEXT, "models": models or {}} | more)])


def graph(models: dict | None = None, **more) -> Graph:
    return Graph(made(models, **more))


def why(asked: Graph, model: str = "eng") -> dict[str, str]:
    """Return what would run for a model, and why."""
    found = reasons(model, results := asked.of_model(model))
    return {each.title_for(model): "; ".join(found[each.path]) for each in results if found[each.path]}


def test_models_that_ask_for_the_same_share_all_results_but_those_that_carry_a_name():
    both, names = graph({"one": {"languages": ["eng"]}, "like": {"like": "one"}}), ["eng", "one", "like"]
    paths = [{each.path for each in both.of_model(name)} - {Path("converted", name)} for name in names]
    assert paths[0] == paths[1] == paths[2] and both.result("train", "one").models == names
    assert both.result("train", "one") is both.result("train", "like")
    finish(made({"one": {"languages": ["eng"]}}), "one")
    assert why(graph({"renamed": {"languages": ["eng"]}}), "renamed") == {"convert": "has not run yet"}


def test_a_path_has_the_languages_and_the_digest_of_the_settings():
    asked = graph({"both": {"languages": ["deu", "eng"], "evaluation": {"suites": ["english_basics"]}}})
    names, digest = {each.title: each.path.as_posix() for each in asked.of_model("both")}, "-[0-9a-f]{10}"
    for title, form in {
        "train": f"results/train/deu.eng{digest}",  # the + is any character
        "corpus eng": f"results/corpus/eng{digest}",
        "score english_basics": f"results/score/english_basics_deu.eng{digest}",
        "suite english_basics.eng": f"results/suite/english_basics_eng{digest}",
        "convert": "converted/both",
    }.items():
        assert re.fullmatch(form, names[title]), names
    of_all = graph().result("train", "multilingual_all").name
    assert re.fullmatch(rf".{{40}}{digest}", of_all) and of_all.startswith("eng+zho+nld+"), "a label is cut"


def test_a_model_that_continues_another_is_made_from_its_training(folder):
    values = {"train": {"epochs": 1}, "run": {"log_every": 9}, "resources": {"gpus": 4}}
    asked = graph(more := {"more": {"model": {"source": "eng"}} | values})
    training, source = asked.result("train", "more"), asked.result("train", "eng")
    assert training.asked["made_from"]["source"] == [source.path.as_posix()]
    titles = {each.title_for("more"): each.path for each in asked.of_model("more")}
    assert (titles["train"], titles["train of eng"]) == (training.path, source.path)
    finish(made(more), "more")
    assert Path("results/of/more/train").resolve() == training.path.resolve(), "not that of its source"
    assert Path("results/of/more/tokenizer").resolve() == asked.result("tokenizer", "more").path.resolve()
    assert [each for each in asked.own("more") if each.stage.stage == "train"] == [training]
    changed = graph({**more, "eng": {"train": {"seed": 43}}})
    found = why(changed, "more")
    assert found["train of eng"] == "train.seed 42 -> 43" and found["train"] == "runs because train does"
    Graph(made(more)).write_settings("more")
    for each, log_every, gpus in ((training, 9, 4), (source, 10, 1)):
        run = read_json(run_settings_of(each.settings_file))
        assert (run["run"]["log_every"], run["gpus"]) == (log_every, gpus), "each as its own model says"


def test_settings_files_that_are_missing_or_no_settings_are_one_line():
    write_json("results/settings/train/eng-1.json", {"stage": "export"})
    for path, line in {
        "train/eng-0": r"results/train/eng-0: no model asks for this result \(results/settings/.*json is missing",
        "train/eng-1": "results/settings/train/eng-1.json: .*'export'",
        "nothing/eng": "results/nothing/eng: not the path of a result$",
    }.items():
        with pytest.raises(UserError, match=f"^{line}"):
            graph().at(Path("results", path))
    with pytest.raises(UserError, match="no model 'tow'; did you mean"):
        graph({"two": {"languages": ["eng"]}}).write_settings("tow")


def test_results_are_found_by_what_their_settings_files_say():
    """So jobs in a queue keep their settings, whatever the configuration says by then."""
    graph().write_settings("eng")
    training = graph().result("train", "eng")
    found = graph(train={"seed": 43}).at(training.path)
    assert canonical_json(found.asked) == canonical_json(training.asked)
    assert {each.path for each in found.upstream} == {each.path for each in training.upstream}
    assert Graph(made(targets=[])).at(Path("converted/eng")).training.path == training.path


def test_a_value_that_changed_since_the_last_run_is_named():
    finish(made(), "eng")
    assert why(graph()) == {}
    found = why(graph(train={"seed": 43, "lora_rank": 0}))
    assert found.pop("train") == "train.seed 42 -> 43"
    because = {"export": "train does", "evaluate": "export does", "convert": "export and evaluate and train do"}
    assert found == {stage: f"runs because {of}" for stage, of in because.items()}
    assert why(graph(), "deu")["corpus deu"] == "has not run yet"
    Path("eng.txt").write_text("Another text.\n")
    matched.cache_clear()
    assert why(graph())["corpus eng"] == "eng.txt changed"
    Path("eng.txt").write_text("This is eng.\n")
    matched.cache_clear()
    evaluation = graph().result("evaluate", "eng")
    evaluation.record.unlink()
    assert why(graph()) == {}, "what is made of it is there"
    graph().result("convert", "eng").record.unlink()
    assert why(graph()) == {"evaluate": f"{evaluation.path} is missing", "convert": "runs because evaluate does"}
    training = (other := graph(train={"seed": 43})).result("train", "eng")
    write_json(f"results/checkpoints/{training.name}/step-00001200.json", {})
    assert why(other)["train"] == "train.seed 42 -> 43; continues after step 1,200"


def test_links_lead_to_what_a_model_uses_now():
    finish(made(), "eng")
    of = Path("results/of/eng")
    before = {path.name: path.resolve() for path in of.iterdir()}
    assert before.keys() == {"corpus", "tokenizer", "shards", "train", "export", "evaluate"}
    assert (of / "train/metrics.jsonl").is_file() and not (of / "train").readlink().is_absolute()
    other = made({"eng": {"languages": ["eng", "deu"], "evaluation": {"suites": ["english_basics"]}}})
    finish(other, "eng")
    assert {path.name for path in (of / "shards").iterdir()} == {"eng", "deu"}
    assert (of / "score/english_basics/scores.json").is_file() and (of / "suite/english_basics.eng").is_symlink()
    assert (of / "train").resolve() != before["train"]
    finish(made(), "eng")
    assert {path.name: path.resolve() for path in of.iterdir()} == before, "what it no longer uses has no link"


def test_clean_lists_what_nobody_asks_for_and_nothing_else():
    of_two = {"languages": ["eng", "deu"], "evaluation": {"suites": ["english_basics"]}}
    models = {"m": of_two, "more": {"model": {"source": "m"}}}
    configuration = made(models, targets=["deu"], experiments={"seeds": {"base": "m", "seeds": 2}})
    finish(configuration, "deu", "m", "more", *(cell.name for cell in configuration.cells["seeds"]))
    assert {*map(str, unused(Graph(configuration)))} == set()
    training = Graph(configuration).result("train", "m").name
    kept = [f"results/checkpoints/{training}", f"results/unfinished/train/{training}", f"results/train/.{training}.tmp"]
    for path in kept:
        Path(path).mkdir(parents=True)
    assert {*map(str, unused(Graph(configuration)))} == set()
    former = made({"gone": of_two | {"train": {"seed": 9}}})
    finish(former, "gone")
    stages = ("train", "export", "evaluate", "score", "convert")
    lost = {each.settings_file: each.path for each in Graph(former).of_model("gone") if each.stage.stage in stages}
    expected = {*map(str, [*lost, *lost.values()])} - {"converted/gone"}
    (run,) = (f"results/settings/run/{path.name}.json" for path in lost.values() if path.parent.name == "train")
    assert {*map(str, unused(Graph(configuration)))} == expected | {"results/of/gone", run}


def test_models_that_share_a_training_keep_the_same_snapshots():
    """They would all have those of the first one; other run settings may differ."""
    runs = {"one": {"snapshots": [1], "log_every": 9}, "two": {"snapshots": [1]}, "three": {}}
    asked = graph({name: {"languages": ["eng"], "run": run} for name, run in runs.items()})
    assert asked.of_model("one") and asked.of_model("two")
    line = r"run.snapshots = \[\] of model three: \[1.*\] is expected, as model one has it"
    with pytest.raises(UserError, match=line):
        asked.of_model("three")
    graph({"three": {"languages": ["eng"]}}).of_model("three")


def test_what_is_published_is_the_model_that_the_settings_are_about():
    finish(configuration := made(publish={"username": "ada"}), "eng")
    asked = Graph(configuration)
    asked.write(publish := asked.result("publish", "eng"))
    assert STAGES["publish"].read(publish.settings_file).keys
    shutil.rmtree("converted")
    finish(made(publish={"username": "ada"}, card={"license": "mit"}), "eng")
    with pytest.raises(UserError, match=r"converted/eng: is not the one that .*publish/eng.json is about"):
        STAGES["publish"].read(publish.settings_file)
