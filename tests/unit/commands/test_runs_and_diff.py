"""`babelmill runs` and `babelmill diff`: the record of all runs, and the settings in which two models differ."""

import argparse
import csv
import datetime
import json
import os
import re
import shutil

import pytest
import yaml

from babelmill.commands import diff, runs
from babelmill.config import loading
from babelmill.core import manifest
from babelmill.core.files import UserError, read_json, write_json
from babelmill.reporting.results import ReportedModel
from babelmill.runtime.record import newest_log
from babelmill.settings import settings_of
from babelmill.stages import STAGES
from conftest import SMALL
from helpers.results import report_results
from helpers.results.finished import finish

pytestmark = pytest.mark.slow


@pytest.fixture
def interrupted(workspace, monkeypatch):
    """A folder in which `eng` is converted, and `deu` was interrupted at step 6 of 400."""
    monkeypatch.chdir(workspace.path)
    for name in ("results/models", "results/exports", "results/evaluations", "converted"):
        shutil.rmtree(workspace.path / name / "deu")
    workspace.configure(LONGER)
    write_json("results/settings/deu/train.json", settings_of(loading.load(), "deu", "train"))
    (place,) = workspace.path.glob("results/checkpoints/deu/*")
    about = read_json(place / "identity.json")
    write_json(place / "identity.json", about | {"settings": settings_of(loading.load(), "deu", "train")})
    write_json(place / "attempt.json", read_json(place / "attempt.json") | {"steps": 400})
    lines = (place / "metrics.jsonl").read_text().splitlines(keepends=True)
    (place / "metrics.jsonl").write_text("".join(line for line in lines if json.loads(line)["step"] <= 6))
    place.rename(place.with_name("dce60fcfd8046cdd"))
    return workspace.path


LONGER = SMALL | {"models": {"deu": {"train": {"max_steps": 400}}}}


def listed(capsys, *arguments) -> tuple[list[str], list[str], str]:
    """Return the heading, the lines and the standard error of `babelmill runs`."""
    parser = argparse.ArgumentParser()
    runs.add_arguments(parser)
    runs.run(parser.parse_args(arguments))
    output = capsys.readouterr()
    heading, *lines = output.out.splitlines()
    return re.split(r"\s{2,}", heading), lines, output.err


def as_csv(capsys, folder) -> list[dict[str, str]]:
    """Return the rows of the table that `babelmill runs --csv` writes."""
    listed(capsys, "--csv", str(folder / "runs.csv"))
    with open(folder / "runs.csv", newline="") as file:
        return list(csv.DictReader(file))


def run_settings(model: str, **values) -> None:
    """Add values to the run settings of a model."""
    path = f"results/settings/{model}/run.json"
    write_json(path, (read_json(path) if os.path.exists(path) else {}) | values)


def test_a_run_that_ended_and_one_that_was_interrupted(interrupted, capsys):
    heading, (*lines, note), errors = listed(capsys)
    eng, deu = sorted(lines, reverse=True)
    wanted = ["model", "last trained", "steps", "words", "hours", "loss", "causal", "masked", "base", "differs in"]
    assert heading == wanted
    assert re.match(r"eng +\S+ \S+ +8 +\S+ k +< 0\.01 +\d\.\d{3} +\d\.\d{3} +\d\.\d{3} +tiny +", eng)
    assert re.match(r"deu dce60fcf +\S+ \S+ +6/400 +< 0\.01 +tiny +", deu)
    assert "model.hidden_size=32 " in eng and "train.max_steps=8 " in eng and "train.max_steps=400 " in deu
    assert "tokenizer.vocab_size=320" in eng and not re.search("learning_rate|epochs|revision", eng)
    assert "causal, masked: bits per byte" in note and errors == ""
    (record,) = interrupted.glob("results/checkpoints/deu/*/metrics.jsonl")
    with record.open("a") as file:
        file.write('{"step": 7, "kind": "validation", "loss": 5.5}\n')
    assert re.match(r"deu dce60fcf +\S+ \S+ +7/400 ", min(listed(capsys)[1])), "a validation between two logged steps"


def test_the_table_for_programs(interrupted, capsys):
    rows = {row["model"]: row for row in as_csv(capsys, interrupted)}
    eng, deu = rows["eng"], rows["deu"]
    assert (eng["present"], deu["present"]) == ("yes", "no")
    assert (deu["fingerprint"], deu["steps_done"], deu["steps"]) == ("dce60fcfd8046cdd", "6", "400")
    assert (eng["steps"], eng["base"], eng["version"]) == ("8", "tiny", "1")
    assert int(eng["parameters"]) > 0 and float(eng["hours"]) > 0
    assert float(eng["causal (bits per byte)"]) > 0 and deu["causal (bits per byte)"] == ""


def test_the_time_is_that_of_the_log_after_a_copy_and_that_of_the_file_without_logs(interrupted):
    (place,) = interrupted.glob("results/checkpoints/eng/*")
    os.utime(STAGES["train"].record("eng", ""), (86400, 86400))
    log = newest_log(place)
    found = {run.name: run for run in runs.all_runs()[0]}
    assert log and f"{found['eng'].when:%Y-%m-%d %H:%M:%S}" in log.read_text()
    for log in interrupted.glob("results/checkpoints/eng/*/logs/*"):
        log.unlink()
    (run,) = [run for run in runs.all_runs()[0] if run.model == "eng"]
    assert run.when == datetime.datetime.fromtimestamp(86400)


def test_devices_of_attempts(interrupted, capsys):
    (place,) = interrupted.glob("results/checkpoints/eng/*")
    log = newest_log(place)
    assert log and runs.devices_of(place) == {(1, "cpu")}
    log.write_text(log.read_text().replace("; 1 x cpu", "; 2 x cuda"))
    assert "  < 0.01 x 2 GPUs  " in max(listed(capsys)[1][:-1])
    log.with_name("20261124-000000_tiny_attempt2.log").write_text(log.read_text().replace("; 2 x cuda", "; 4 x cuda"))
    assert {row["devices"] for row in as_csv(capsys, interrupted)} == {"2 to 4 GPUs", ""}


def test_scores_on_suites_stand_beside_each_other_and_the_newest_run_is_last(folder, capsys):
    report_results.make(folder, "two", ["eng", "deu"], {"blimp": ["eng"], "multiblimp": ["eng", "deu"]})
    report_results.make(folder, "eng", ["eng"], {}, seed=2)
    for model, day in (("two", 2), ("eng", 1)):
        os.utime(STAGES["train"].record(model, ""), (86400 * day, 86400 * day))
    heading, (eng, two, note), errors = listed(capsys)
    assert [*heading[-4:]] == ["causal", "masked", "blimp", "multiblimp"] and errors == ""
    assert eng.startswith("eng ") and two.startswith("two ")
    scores = read_json("results/scores/two/multiblimp/scores.json")["languages"]
    mean = sum(each["headline"]["score"] for each in scores.values()) / 2
    assert two.endswith(f" {100 * mean:.1f}") and "blimp, multiblimp: % right, mean of languages" in note
    rows = {row["model"]: row for row in as_csv(capsys, folder)}
    assert float(rows["two"]["multiblimp deu"]) == pytest.approx(scores["deu"]["headline"]["score"], abs=1e-5)
    assert rows["eng"]["multiblimp deu"] == "" and "blimp deu" not in rows["eng"]


def test_a_run_is_compared_with_the_model_that_it_is_like(folder, capsys):
    report_results.make(folder, "a", ["eng"], {})
    report_results.make(folder, "b", ["eng"], {}, seed=3, learning_rate=0.02)
    for model, more in (("a", {"preset": "small"}), ("b", {"preset": "small", "like": "a"})):
        run_settings(model, **more)
    found = {row["model"]: row for row in as_csv(capsys, folder)}
    assert (found["b"]["base"], found["b"]["differs"]) == ("a", "train.learning_rate=0.02 train.seed=3")
    assert (found["a"]["base"], found["a"]["differs"]) == ("small", "train.learning_rate=0.01 train.seed=1")
    run_settings("b", like="gone")
    assert as_csv(capsys, folder)[1]["base"] == "small"
    run_settings("b", preset="gone")
    assert [(row["base"], row["differs"]) for row in as_csv(capsys, folder)][1] == ("", "")


def test_a_base_that_was_never_trained_has_the_settings_of_the_configuration(folder, capsys):
    """As in an experiment, whose cells are trained and whose base is not."""
    report_results.make(folder, "b", ["eng"], {}, learning_rate=0.02)
    run_settings("b", preset="tiny", like="a")
    base = {
        "languages": ["eng"],
        "preset": "tiny",
        "train": {"learning_rate": 0.02},
        "model": {"num_hidden_layers": 12},
    }
    text = {"languages": {"eng": {"corpus": {"builtin": "python-docs"}}}}
    configure(folder, text | {"models": {"a": base}})
    assert [(row["base"], row["differs"]) for row in as_csv(capsys, folder)] == [("a", "train.seed=1")]
    base["train"]["learning_rate"] = 0.5
    (folder / "other.yaml").write_text(yaml.safe_dump({"models": {"a": base}}))
    _, (line, _), _ = listed(capsys, "--configfile", "other.yaml")
    assert line.split()[-2:] == ["train.learning_rate=0.02", "train.seed=1"]
    configure(folder, text | {"models": {}})
    assert as_csv(capsys, folder)[0]["base"] == "tiny", "the model is no longer there"
    (folder / "config/config.yaml").write_text("models: [")
    assert as_csv(capsys, folder)[0]["base"] == "tiny", "the record needs no configuration"


def test_damaged_results_are_named_and_the_others_are_listed(interrupted, capsys):
    text = STAGES["train"].record("eng", "").read_text()
    STAGES["train"].record("eng", "").write_text(text.replace('"stage"', '"state"'))
    (place,) = interrupted.glob("results/checkpoints/eng/*")
    (identity,) = interrupted.glob("results/checkpoints/deu/*/identity.json")
    identity.write_text("{}")
    _, lines, errors = listed(capsys)
    assert "not read: results/models/eng/manifest.json: was changed after it was written" in errors
    assert "not read: results/checkpoints/deu/dce60fcfd8046cdd: cannot be read (KeyError" in errors
    assert [line.split("  ")[0] for line in lines[:-1]] == [f"eng {place.name[:8]}"], "its run is in the checkpoints"


def test_a_folder_without_runs_says_so(folder, capsys):
    assert listed(capsys)[0] == ["no model has been trained in this folder"]


def test_text_from_outside_is_no_formula(interrupted, capsys):
    run_settings("eng", preset="")
    path = STAGES["train"].record("eng", "")
    about = read_json(path)
    about["settings"]["version"] = "=1+1"
    manifest.write_sealed(path, {key: value for key, value in about.items() if key != "sha256"})
    assert {row["model"]: row["version"] for row in as_csv(capsys, interrupted)} == {"eng": "'=1+1", "deu": "1"}


def test_a_run_of_other_settings_has_a_line_of_its_own(workspace):
    """After really training again with another seed."""
    before = workspace.python("-m", "babelmill", "runs", check=True).stdout.splitlines()
    assert {line.split()[0] for line in before[1:-1]} == {"eng", "deu"}
    (place,) = (workspace.path / "results/checkpoints/eng").glob("*")
    assert runs.devices_of(place) == {(1, "cpu")}, "the log says it in other words: see `PROCESSES`"
    workspace.configure(SMALL | {"models": {"eng": {"train": {"seed": 7}}}})
    workspace.snakemake("results/models/eng/manifest.json")
    lines = workspace.python("-m", "babelmill", "runs", check=True).stdout.splitlines()[1:-1]
    (earlier,) = [line for line in lines if line.startswith(f"eng {place.name[:8]}  ")]
    (present,) = [line for line in lines if line.startswith("eng  ")]
    assert lines[-1] == present and present.endswith("train.seed=7 train.sequence_lengths=[16, 32, 64]")
    assert "train.seed" not in earlier and re.search(r"  8  +< 0\.01  +\d\.\d{3}  ", earlier)


# babelmill diff


def differing(capsys, *names) -> tuple[list[str], dict[str, list[str]]]:
    """Return where the settings are from, and the lines of `babelmill diff`: {key: values}."""
    parser = argparse.ArgumentParser()
    diff.add_arguments(parser)
    diff.run(parser.parse_args(names))
    first, second, *lines = capsys.readouterr().out.splitlines()
    cells = [re.split(r"\s{2,}", line) for line in lines[1:]]
    return [first, second], {key: values for key, *values in cells}


def configure(folder, values) -> None:
    (folder / "config").mkdir(exist_ok=True)
    (folder / "config/config.yaml").write_text(yaml.safe_dump(values))


def test_results_and_configuration(interrupted, capsys):
    origins, found = differing(capsys, "eng", "deu")
    assert origins[0] == "eng: from the results (train, tokenizer, export, evaluate, corpus)"
    assert (
        origins[1] == "deu: from the results (tokenizer, corpus), and from the configuration (train, export, evaluate)"
    )
    assert found == {
        "languages": ["[eng]", "[deu]"],
        "train.max_steps": ["8", "400"],
        "corpus.files": ["[texts/eng/*.txt]", "[texts/deu/*.txt]"],
    }


def test_results_count_more_than_the_present_configuration(interrupted, capsys):
    configure(interrupted, LONGER | {"models": {"eng": {"train": {"learning_rate": 0.5}}}})
    assert "train.learning_rate" not in differing(capsys, "eng", "deu")[1]
    configure(interrupted, LONGER | {"models": {"deu": {"train": {"learning_rate": 0.5}}}})
    assert differing(capsys, "eng", "deu")[1]["train.learning_rate"] == ["0.01", "0.5"]


MODELS = {
    "one": {"languages": ["eng"], "preset": "tiny"},
    "same": {"languages": ["eng"], "preset": "tiny", "run": {"log_every": 3}, "card": {"license": "mit"}},
    "causal": {"languages": ["eng"], "preset": "tiny", "train": {"objective": "causal"}},
    "gpt2": {"languages": ["eng"], "preset": "gpt2_30m"},
    "child": {"languages": ["eng"], "preset": "tiny", "model": {"source": "one"}},
    "two": {"languages": ["eng", "deu"], "preset": "tiny", "evaluation": {"suites": ["blimp"], "pairs": 9}},
}


@pytest.fixture
def planned(folder):
    """Models without results, and their text."""
    text = {"corpus": {"builtin": "python-docs"}}
    values = {"targets": ["one"], "models": MODELS, "languages": {"eng": text, "deu": text}}
    configure(folder, values)
    return folder


def test_what_cannot_matter_and_what_changes_no_result_is_no_difference(planned, capsys):
    origins, found = differing(capsys, "one", "same")
    assert origins == [f"{name}: from the configuration (no results)" for name in ("one", "same")]
    assert found == {}
    found = differing(capsys, "one", "causal")[1]
    assert found["train.objective"] == ["hybrid", "causal"]
    assert found["train.mask_rate_start"] == ["0.3", "unset"] and found["train.mask_keep"] == ["0.1", "unset"]
    assert "train.learning_rate" not in found
    found = differing(capsys, "one", "gpt2")[1]
    assert found["model.config.n_embd"] == ["unset", "512"] and found["model.hidden_size"] == ["128", "unset"]


def test_a_tokenizer_that_is_that_of_another_model_has_no_settings(planned, capsys):
    found = differing(capsys, "one", "child")[1]
    assert found["model.source"] == ["null", "one"] and found["tokenizer.vocab_size"] == ["2048", "unset"]


def test_corpora_of_mixtures_are_compared_by_language(planned, capsys):
    finish(loading.load(), "one")
    path = STAGES["corpus"].record("eng", "eng")
    about = read_json(path)
    about["settings"]["corpus"]["min_words"] = 5
    manifest.write_sealed(path, {key: value for key, value in about.items() if key != "sha256"})
    origins, found = differing(capsys, "one", "two")
    assert origins[1] == (
        "two: from the results (corpus of eng), and from the configuration (train, tokenizer, export, evaluate, corpus"
        " of deu)"
    )
    assert found["languages"] == ["[eng]", "[eng, deu]"] and found["mixture.weights"][0] == "unset"
    assert found["evaluation.suites"] == ["[]", "[blimp]"] and found["evaluation.pairs"] == ["all", "9"]
    assert not any(key.startswith(("eng: ", "deu: ", "corpus.")) for key in found), "the corpus of eng is the same one"
    assert differing(capsys, "two", "one")[1]["languages"] == ["[eng, deu]", "[eng]"]


def test_the_stage_that_reads_all_keys_of_a_section_decides(folder, capsys):
    """The evaluation of a label model leaves out how its codes are learned."""
    (folder / "codes.csv").write_text("text,code\na smith,1\na miller,2\n")
    corpus = {"files": ["codes.csv"], "text_column": "text", "label_columns": ["code"]}
    models = {
        name: {"languages": ["occ"], "preset": "labels_tiny", "labels": {"code": "general", "blocks_weight": weight}}
        for name, weight in (("even", 0.5), ("blocks", 0.9))
    }
    configure(
        folder, {"targets": ["even"], "models": models, "languages": {"occ": {"name": "Codes", "corpus": corpus}}}
    )
    assert differing(capsys, "even", "blocks")[1] == {"labels.blocks_weight": ["0.5", "0.9"]}


def test_a_model_that_the_configuration_no_longer_has(planned, capsys):
    finish(loading.load(), "gpt2", "one")
    configure(planned, {"targets": ["one"], "models": {"one": MODELS["one"]}})
    origins, found = differing(capsys, "gpt2", "one")
    assert "configuration" not in origins[0] and found["train.objective"] == ["causal", "hybrid"]
    with pytest.raises(UserError, match="there is no model 'cauasl'"):
        differing(capsys, "one", "cauasl")


def test_long_values_and_what_a_terminal_obeys_are_shown_safely(planned, capsys):
    values = yaml.safe_load((planned / "config/config.yaml").read_text())
    values["models"]["same"]["model"] = {"source": "./a\x1b[2J" + 100 * "b"}
    configure(planned, values)
    write_json(planned / ("a\x1b[2J" + 100 * "b") / "config.json", {})
    finish(loading.load(), "one")
    path = STAGES["train"].record("one", "")
    about = read_json(path)
    about["settings"]["train"]["optimizer"] = "\x1b[2J" + 100 * "b"
    manifest.write_sealed(path, json.loads(json.dumps({k: v for k, v in about.items() if k != "sha256"})))
    found = differing(capsys, "one", "causal")[1]
    assert found["train.optimizer"][0].startswith(r"\x1b[2Jbbb") and "characters)" in found["train.optimizer"][0]


def test_seeds_of_different_settings_are_named():
    """Their mean would be that of two protocols; another seed alone is no difference."""
    found = ReportedModel("eng", ["eng"], [], [])
    about = {"task": "rte", "protocol": "sound", "code": "tune 1"}
    found.manifests = {("tune", f"rte.{seed}"): {"settings": about | {"seed": seed}} for seed in (1, 2)}
    assert [*runs.mixed_tunings(found)] == []
    found.manifests["tune", "rte.3"] = {"settings": about | {"seed": 3, "protocol": "babylm"}}
    (line,) = runs.mixed_tunings(found)
    assert line.startswith("seeds in results/tuned/eng/rte were tuned with different settings; delete the folders")
