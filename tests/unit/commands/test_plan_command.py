"""The plan: what it says before training is what training then does."""

import csv
import gzip
import io
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelmill import cli
from babelmill.commands.estimates import machine
from babelmill.commands.estimates.machine import assumed_speed, busy, has_gpu
from babelmill.commands.estimates.text_size import training_text
from babelmill.commands.estimates.training_cost import tenths
from babelmill.commands.estimates.tuning_cost import TuningCost, assumed, flops_of
from babelmill.commands.plan import not_taken, tuning_table
from babelmill.config import loading
from babelmill.config.model_size import parameters
from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.model.gpt_bert import GPTBert, GPTBertShape
from babelmill.runtime import cost
from babelmill.runtime.cost import flops, peak_of
from babelmill.stages import leading_to
from conftest import SMALL, Workspace
from helpers.results.finished import finish

pytestmark = pytest.mark.slow


@pytest.fixture
def fresh(tmp_path):
    workspace = Workspace(tmp_path)
    workspace.configure({})
    return workspace


def plan(workspace, *arguments):
    """Rows of the plan by model, as text."""
    done = workspace.python("-m", "babelmill", "plan", *arguments, "--tsv", check=True)
    return {row["model"]: row for row in csv.DictReader(io.StringIO(done.stdout), delimiter="\t")}


@pytest.mark.parametrize(
    ("sources", "hours"),
    [(("measured", "measured"), "2.0"), (("measured", "assumed"), "2.0 ?"), (("measured", ""), "1.0 + ?")],
)
def test_a_total_with_a_guess_says_so(sources, hours):
    costs = [
        TuningCost("eng", f"task{number}", 1, 100, 10, 1e12, 1.0 if source else None, source)
        for number, source in enumerate(sources)
    ]
    total = next(line for line in tuning_table(costs, []) if line.startswith("2 tasks"))
    assert total.endswith(f"  {hours}")


@pytest.mark.parametrize(("gate", "mixing", "layers"), list(itertools.product([False, True], [False, True], [1, 3])))
def test_the_number_of_parameters_is_the_models(gate, mixing, layers):
    config = GPTBertShape(400, 32, 48, 2, layers, gate=gate, layer_mixing=mixing)
    assert parameters(config, 400) == sum(parameter.numel() for parameter in GPTBert(config).parameters())


def test_the_speed_of_the_processor_is_the_same_on_a_busy_machine():
    """A product of microseconds is not interrupted. The load is a line of its own."""
    alone = assumed_speed.__wrapped__()
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        assert alone / 2 < assumed_speed.__wrapped__() < 2 * alone
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_a_busy_machine_is_said_to_be(monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 2)
    for load, note in ((1.9, ""), (7.93, "This machine is busy (load 7.9 on 2 cores)")):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert busy().partition(":")[0] == note


def test_it_foretells_what_training_did(workspace):
    """From the shards: the same parameters, steps and epochs as in the manifest of the trained model."""
    row = plan(workspace, "eng")["eng"]
    did = json.loads((workspace.path / "results/models/eng/manifest.json").read_text())["figures"]
    assert row["source"] == "shards"
    assert (int(row["parameters"]), int(row["steps"])) == (did["parameters"], did["steps"])
    assert float(row["epochs"]) == pytest.approx(did["epochs"])


def test_snapshots_are_counted_and_those_that_a_finished_run_has_not_kept_are_named(workspace, monkeypatch, capsys):
    before = plan(workspace, "eng")["eng"]
    workspace.configure(SMALL | {"run": SMALL["run"] | {"snapshots": [0.0002, 5]}})
    after = plan(workspace, "eng")["eng"]
    more = 1e9 * (float(after["disk_gb"]) - float(before["disk_gb"]))
    assert more == pytest.approx(2 * 4 * int(after["parameters"])), (
        "of the run, and exported; that of 5 million is beyond"
    )
    monkeypatch.chdir(workspace.path)
    assert cli.main(["plan", "eng"]) == 0
    assert (
        "eng: 0 snapshots kept of 2; not kept: chck_0.0002M (the run ended before, or was finished when you asked for them"
        in capsys.readouterr().out
    )


def test_hours_of_fine_tuning_are_estimated_from_the_rows_and_then_measured(workspace, monkeypatch, capsys):
    """With all rows filled up to 16 tokens, the operations are those of so many tokens."""
    (workspace.path / "a.tsv").write_text("a\tb\n" + "x\ty\nz\tw\n" * 20)
    tuning = {"same_length": True, "longest": 16, "epochs": 2, "batch": 4}
    (workspace.path / "b.tsv").write_text("a\tb\n" + "u\ty\nv\tw\n" * 20)
    task = {"train": ["a.tsv"], "test": ["b.tsv"], "language": "eng", "text": "{a}", "label": "b", "tuning": tuning}
    evaluation = SMALL["evaluation"] | {"tasks": ["mine"]}
    workspace.configure(SMALL | {"tasks": {"mine": task}, "evaluation": evaluation})
    monkeypatch.chdir(workspace.path)

    def row(name: str = "mine", start: str = "") -> list[str]:
        assert cli.main(["plan", "eng", "deu"]) == 0
        printed = capsys.readouterr().out
        assert (
            f"\ndeu: not fine-tuned for {name} (evaluation.tasks), since they have no rows in its languages.\n"
            in printed
        )
        (found,) = [line.split() for line in printed.splitlines() if line.startswith(start or f"{name} ")]
        return found

    assert row() == ["mine", "1", "3", "2", "unknown"]
    assert row(start="1 task ") == ["1", "task", "3", "unknown"] and not plan(workspace, "eng")["eng"]["tuning_hours"]
    assert (plan(workspace, "deu")["deu"]["tuning_jobs"], plan(workspace, "eng")["eng"]["tuning_jobs"]) == ("0", "3")
    workspace.snakemake("results/tasks/mine/eng/manifest.json")
    shape = Configuration([("test", SMALL)]).model("eng").model
    learnt, only_read = 2 * 36 * 16, (2 * 4 + 40) * 16 / 3  # a tenth of 40 rows chooses the epoch
    one = flops(shape, 320, 16, learnt + only_read, 0.0)
    found = row()
    assert found[:5] == ["mine", "1", "3", "40", "2"] and float(found[5]) == pytest.approx(3 * one, rel=0.05)
    assert found[-1] == "?", "the speed is assumed"
    settings = json.loads((workspace.path / "results/settings/eng/tune.mine.1.json").read_text())
    folder = workspace.path / "results/tuned/eng/mine/1"
    folder.mkdir(parents=True)
    figures = {"seconds": 1200.0, "device": "cpu"}
    manifest.write(folder, manifest.StageRequest("tune", "eng", settings), [], figures=figures)
    assert row()[6:] == ["1.0"], "three times 1,200 seconds"
    assert float(plan(workspace, "eng")["eng"]["tuning_hours"]) == pytest.approx(1.0)
    tuning["epochs"] = 4
    workspace.configure(SMALL | {"tasks": {"mine": task}, "evaluation": evaluation})
    assert 1.5 < float(row()[6]) < 2, "twice the epochs, the same test rows"
    two = {"evaluation": evaluation | {"tasks": ["mine", "other"]}, "tasks": {"mine": task, "other": task}}
    workspace.configure(SMALL | two)
    assert row("mine, other", start="2 tasks ")[-2:] == ["+", "?"], "the rows of the other are not read yet"
    (workspace.path / "a.conll").write_text("the DET\nfox NOUN\n\n" * 20)
    (workspace.path / "b.conll").write_text("a DET\nfox NOUN\n\n" * 20)
    files = {"train": ["a.conll"], "test": ["b.conll"]}
    task = {"kind": "tagging", **files, "language": "eng", "label": 2, "tuning": tuning}
    workspace.configure(SMALL | {"tasks": {"words": task}, "evaluation": evaluation | {"tasks": ["words"]}})
    workspace.snakemake("results/tasks/words/eng/manifest.json")
    assert row("words")[:5] == ["words", "1", "3", "20", "4"]


def test_a_joint_task_reads_equal_shares_of_all_languages(folder):
    """So the estimate is that of two times 20 rows, and not of 20 and 60."""
    for code, count in (("eng", 20), ("deu", 60)):
        rows = folder / f"results/tasks/apart/{code}"
        rows.mkdir(parents=True)
        for split in ("train", "test"):
            table = pa.table({"text": ["x"] * count, "pair": pa.nulls(count, pa.string()), "label": ["a"] * count})
            pq.write_table(table, rows / f"{split}.parquet")
        manifest.write(rows, manifest.StageRequest("task", code, {}), ["train.parquet", "test.parquet"])
    task = {"train": ["{language}"], "test": ["{language}.t"], "languages": {"eng": "en", "deu": "de"}, "text": "{a}"}
    task["tuning"] = {"same_length": True, "longest": 16, "epochs": 3, "batch": 4, "held_out": 0.0}
    tasks = {"apart": task, "joint": task | {"joint": True}}
    made = Configuration([("test", SMALL | {"tasks": tasks, "models": {"both": {"languages": ["eng", "deu"]}}})])
    (folder / "results/tasks/joint").symlink_to("apart")
    (each, apart), (equal, together) = (flops_of(made, "both", name, made.tuning(name)) for name in tasks)
    assert (each, equal) == (80, 40)
    judged = 80 * 16 / 3 * (3 + 1)  # all test rows are read after each epoch, and at the end
    assert apart / together == pytest.approx((3 * 80 * 16 + judged) / (3 * 40 * 16 + judged), rel=1e-3)


def test_an_estimate_of_snapshots_is_no_fact(fresh):
    """Short words: 200,000 of 4.9 bytes; ten epochs are 1.96 million words. Nothing is trained yet."""
    (fresh.path / "a.txt").write_text("".join(f"{'abc' if n % 10 == 0 else 'abcd'} " for n in range(200_000)))
    text = {"languages": {"eng": {"corpus": {"files": ["a.txt"], "document": "line", "deduplicate": False}}}}
    fresh.configure(text | {"run": {"snapshots": [0.1, 1, 1.9, 1.98, 3]}, "train": {"epochs": 10}})
    output = fresh.python("-m", "babelmill", "plan", "eng").stdout
    assert "eng: about 4 snapshots of 5, included in the disk space. run.snapshots: chck_3M: the run ends" in output
    ends = re.search(r"ends after about ([\d.]+) million words", output)
    assert 1.96 <= float(ends[1]) < 2.05, "the steps are whole"


def test_words_are_those_of_the_mixture(tmp_path):
    """Of 10 bytes of text with words of 4 bytes, and 1 byte with words of 2: weighed by their size, or alike."""
    languages = {}
    for code, text in (("qaa", "abc " * 10_000), ("qab", "a " * 2_000)):
        (tmp_path / f"{code}.txt").write_text(text)
        languages[code] = {"name": code, "byte_premium": 1, "corpus": {"files": [str(tmp_path / f"{code}.txt")]}}
    for weights, share in (("size", 1 / 11), ("uniform", 1 / 2)):
        model = {"languages": list(languages), "mixture": {"weights": weights}}
        found = training_text(Configuration([("test", {"languages": languages, "models": {"two": model}})]), "two")
        assert found.words_per_token == pytest.approx(0.98 * 4.2 * ((1 - share) / 4 + share / 2), rel=1e-3)
        assert not found.words_counted


def test_shards_of_earlier_settings_are_named_and_text_of_others_does_not_count(workspace):
    workspace.configure(SMALL | {"tokenizer": {"vocab_size": 300}})
    before = plan(workspace, "eng")["eng"]
    assert before["source"] == "old shards" and int(before["tokens"]) > 0
    output = workspace.python("-m", "babelmill", "plan", "eng").stdout
    assert "estimated" in output and "old shards: tokens of shards that earlier settings made" in output
    (workspace.path / "texts/eng/more.txt").write_text("word " * 840_000)
    after = plan(workspace, "eng")["eng"]
    assert after["source"] == "files" and int(after["tokens"]) > 1e6


def test_without_shards_it_estimates_and_says_from_what(fresh, tmp_path):
    (tmp_path / "a.txt").write_text("word " * 84_000)  # 420,000 bytes, 4.2 bytes a token
    fresh.configure({"languages": {"eng": {"corpus": {"files": ["a.txt"]}}, "deu": {"corpus": {"budget": "5M words"}}}})
    rows = plan(fresh, "eng", "deu", "nld", "swe")
    assert [row["source"] for row in rows.values()] == ["files", "budget", "tier 1", "tier 2"]
    assert int(rows["eng"]["tokens"]) == 100_000
    # The same English-equivalent words are about the same number of tokens in every language.
    assert int(rows["deu"]["tokens"]) == pytest.approx(5e6 * 5.43 / 4.2, rel=1e-3)
    assert int(rows["nld"]["tokens"]) == pytest.approx(10 * int(rows["swe"]["tokens"]), rel=1e-3)
    table = fresh.python("-m", "babelmill", "plan", "nld").stdout
    assert "estimated until the shards exist" in table


def test_a_budget_is_at_most_what_there_is(fresh):
    """Of a dataset of one's own nothing is known but the budget."""
    own = {"corpus": {"budget": "50M words", "hub": "me/text"}}
    fresh.configure({"corpus": {"budget": "50M words"}, "languages": {"nob": {"name": "Bokmål", **own}}})
    rows = plan(fresh, "nld", "swe", "nob")
    assert [row["source"] for row in rows.values()] == ["budget", "tier 2", "budget"]


def test_small_numbers_are_not_zero():
    assert [tenths(number) for number in (0.04, 0.44, 12.3, 1234.5)] == ["< 0.1", "0.4", "12", "1,234"]


def test_a_tiny_model_of_transformers_has_no_memory_to_choose(fresh):
    """Its lines of GiB for each number of GPUs would be zeros."""
    config = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 1}
    model = {"architecture": "transformers", "config": config}
    fresh.configure({"model": model, "train": {"objective": "causal"}, "corpus": {"builtin": "python-docs"}})
    assert plan(fresh, "eng")["eng"]["strategies"] == ""
    fresh.configure({"model": model | {"config": config | {"n_embd": 1024}}, "train": {"objective": "causal"}})
    strategies = plan(fresh, "eng")["eng"]["strategies"]
    assert "all weights: " in strategies and not re.search(r"[ :]0(, |;|$)", strategies)


def test_peaks_of_gpus():
    """By names as drivers and SLURM write them; an MI250X is two GPUs."""
    names = ["NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "h100_pcie", "NVIDIA H100 NVL", "NVIDIA A800-SXM4-80GB"]
    assert [peak_of(name) for name in names] == [989e12, 756e12, 756e12, 835e12, 312e12]
    assert [peak_of(f"AMD Instinct {name}") for name in ("MI250X", "MI300X", "MI7")] == [191.5e12, 1307e12, None]


def test_a_batch_has_a_total(fresh):
    rows = plan(fresh, "tier1", "eng", "--gpu", "H100")
    assert len(rows) == 9
    lines = fresh.python("-m", "babelmill", "plan", "tier1", "--gpu", "H100").stdout.splitlines()
    total = next(line for line in lines if line.startswith("9 models")).split()
    assert float(total[-1]) == pytest.approx(sum(float(row["gpu_hours"]) for row in rows.values()), abs=0.06)


def test_an_experiment_is_planned_as_it_will_be_trained(fresh):
    """A training that two models share counts once, and a note that is true of all models stands there once."""
    grid = {"base": "eng", "vary": {"train.optimizer": ["lamb", "adamw"]}, "seeds": 2}
    text = {"eng": {"corpus": {"builtin": "python-docs"}}, "deu": {"corpus": {"builtin": "python-docs"}}}
    run = {"snapshots": [1], "validate_every": 5}
    fresh.configure({"preset": "tiny", "languages": text, "experiments": {"masks": grid}, "run": run})
    words = "eng", "masks", "deu", "--gpu", "H100", "--mfu", "0.00001"
    output, rows = fresh.python("-m", "babelmill", "plan", *words).stdout, plan(fresh, *words)
    hours = [float(row["gpu_hours"]) for model, row in rows.items() if model != "masks_lamb_s1"]
    total = next(line for line in output.splitlines() if line.startswith("6 models")).split()
    assert len(hours) == 5 and float(total[-1]) == pytest.approx(sum(hours), abs=0.06)
    assert "\nmasks_lamb_s1: the same training as that of eng, whose weights are linked; the total counts" in output
    assert output.count("same training") == 1, "other text, seeds and optimizers are other trainings"
    cells = "eng, masks_lamb_s1, masks_lamb_s2"  # three are named
    assert f"\n{cells} and 2 more: validations take " in output and "\ndeu: validations take " in output
    assert output.count("validations take") == 2, "the text of deu is another one"
    assert f"\n{cells} and 3 more: about 1 snapshot of 1" in output


def test_what_is_trained_already_costs_nothing_under_another_name(fresh, monkeypatch):
    """Also if the other name is in no configuration any more."""
    values = {"preset": "tiny", "languages": {"eng": {"corpus": {"builtin": "python-docs"}}}}
    grid = {"base": "eng", "vary": {"train.optimizer": ["lamb", "adamw"]}}
    fresh.configure(values | {"experiments": {"old": grid}})
    monkeypatch.chdir(fresh.path)
    finish(loading.load(), "old_adamw_s1", stages=leading_to("train"))
    fresh.configure(values | {"experiments": {"new": grid}})
    shutil.rmtree("results/corpora")  # so that the text is estimated
    output = fresh.python("-m", "babelmill", "plan", "new", "--gpu", "H100", "--mfu", "0.00001").stdout
    assert "\nnew_adamw_s1: the same training as that of old_adamw_s1, whose weights are linked" in output
    hours = {line.split()[0]: line.split()[-1] for line in output.splitlines() if line.startswith(("new_", "2 models"))}
    assert hours["2"] == hours["new_lamb_s1"]


def test_twice_the_speed_is_half_the_hours(fresh):
    slow, fast = (float(plan(fresh, "swe", "--mfu", mfu)["swe"]["gpu_hours"]) for mfu in (0.1, 0.2))
    assert fast == pytest.approx(slow / 2)
    on = {gpu: float(plan(fresh, "swe", "--gpu", gpu)["swe"]["gpu_hours"]) for gpu in ("A100", "H100")}
    assert on["A100"] / on["H100"] == pytest.approx(peak_of("H100") / peak_of("A100"))


def test_gpus_without_a_micro_batch_stand_idle(fresh):
    """One micro-batch a step: four GPUs take as long as one, and cost four times as much. GPT-BERT's rows are dealt."""
    values = {"train": {"global_batch_tokens": 8192, "micro_batch_tokens": 8192, "batch_reduction": 1}}
    theirs = {"preset": "gpt2_30m"}
    fresh.configure(values | theirs | {"resources": {"gpus": 1}})
    one = plan(fresh, "swe", "--gpu", "H100")["swe"]
    fresh.configure(values | theirs | {"resources": {"gpus": 4}})
    four = plan(fresh, "swe", "--gpu", "H100")["swe"]
    assert (one["hours"], float(one["busy"])) == (four["hours"], 1.0)
    assert float(four["gpu_hours"]) == pytest.approx(4 * float(one["gpu_hours"]))
    assert float(four["busy"]) == pytest.approx(0.25)
    fresh.configure(values | {"resources": {"gpus": 4}})
    assert float(plan(fresh, "swe", "--gpu", "H100")["swe"]["busy"]) == 1.0


@pytest.mark.parametrize(
    ("profile", "gpus"),
    [
        ({"resources": {"gpu": 2}}, 2),  # a box with two GPUs
        ({"resources": {"gpu": 0}}, 0),
        ({"set-resources": {"train": {"gpu": 8}}}, 8),
        ({"set-resources": {"train": {"nodes": 2, "gres": "gpu:4"}}}, 8),
        ({}, 4),
    ],
)
def test_the_gpus_are_the_profiles(fresh, tmp_path, profile, gpus):
    (tmp_path / "profile.yaml").write_text(json.dumps(profile))
    row = plan(fresh, "eng", "--profile", tmp_path, "--gpu", "H100")["eng"]
    assert int(row["gpus"]) == gpus
    assert (row["gpu_hours"] == "") == (gpus == 0)


def test_what_a_training_measured_is_used(workspace):
    """A training with a known utilisation and memory is better than an assumption, for models of its shape."""
    workspace.configure(SMALL | {"resources": {"gpus": 1}})
    assert plan(workspace, "eng", "--gpu", "H100")["eng"]["measured"] == "False"
    record = next((workspace.path / "results/checkpoints/deu").glob("*/metrics.jsonl"))
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    record.write_text("".join(json.dumps(line | {"mfu": 0.41, "memory": 3072.0}) + "\n" for line in lines))
    row = plan(workspace, "eng", "--gpu", "H100")["eng"]
    assert (row["measured"], float(row["mfu"]), float(row["memory_gib"])) == ("True", 0.41, 3.0)


@pytest.mark.skipif(has_gpu(), reason="on a machine without GPUs")
def test_without_a_gpu_the_hours_are_of_this_machine(workspace):
    """Of the speed of trainings that ran here; of a guess before there is one, or if they ran elsewhere."""
    workspace.configure(SMALL | {"resources": {"gpus": 4}})
    for record in workspace.path.glob("results/checkpoints/*/*/metrics.jsonl"):
        record.write_text(re.sub(r'("tokens_per_second": )[\d.]+', r"\g<1>5000.0", record.read_text()))
    seconds = 8 * 256 / 5000
    row = plan(workspace, "eng")["eng"]
    assert (row["gpus"], row["mfu"], row["gpu_hours"], row["measured"]) == ("0", "", "", "True")
    assert seconds / 3 < 3600 * float(row["hours"]) < seconds * 3, "each step's length counts"
    output = workspace.python("-m", "babelmill", "plan", "eng").stdout
    assert "hours of this machine's processor" in output and "H100" not in output and "1 model " in output
    heading = output.splitlines()[0].split()
    assert re.search(r"e\+\d\d +(< )?0\.\d  ", output.splitlines()[1]), "GiB of a small model, which are not 0"
    assert "hours" in heading and not {"GPUs", "busy", "GPU-hours"} & set(heading) and "(of a GPU" not in output
    cluster = workspace.path / "cluster"
    cluster.mkdir()
    (cluster / "profile.yaml").write_text("executor: slurm\n")
    assert plan(workspace, "eng", "--profile", cluster)["eng"]["gpus"] == "4"
    for attempt in workspace.path.glob("results/checkpoints/*/*/attempt.json"):
        attempt.write_text(json.dumps(json.loads(attempt.read_text()) | {"host": "elsewhere"}))
    guessed = plan(workspace, "eng")["eng"]
    assert guessed["measured"] == "False" and float(guessed["flops_per_second"]) > 1e6
    training = float(guessed["hours"]) * (1 - float(guessed["validation"]))
    assert training * float(guessed["flops_per_second"]) == pytest.approx(float(row["flops"]) / 3600)
    workspace.configure(SMALL | {"resources": {"gpus": 4}, "run": SMALL["run"] | {"validation_tokens": 16}})
    fewer = plan(workspace, "eng")["eng"]
    work = [
        float(each["hours"]) * float(each["flops_per_second"]) for each in (fewer, guessed)
    ]  # speeds are measured anew
    assert work[0] < work[1] and "validations take" in output


OLD, NEW = "fma sse4_2 avx avx2", "fma avx avx2 avx512f avx512dq avx512bw avx512vl"
NO_BF16 = "eng: train.precision: bf16 takes many times as long as fp32 on processors without AVX-512, such as this one"


@pytest.mark.parametrize(
    ("processor", "slow"),
    [
        (f"model name : A\nflags\t\t: {OLD}\n", True),
        (f"flags : {NEW}\n", False),
        ("Features : fp asimd bf16\n", False),
        (None, False),
    ],
    ids=["AVX2", "AVX-512", "ARM", "no Linux"],
)
def test_bf16_on_a_processor_without_it_is_named(fresh, monkeypatch, capsys, processor, slow):
    """PyTorch computes it ten times as slowly as fp32 there, which is what the preset `tiny` has."""
    info = fresh.path / "cpuinfo"
    if processor:
        info.write_text(processor)
    monkeypatch.setattr(cost, "CPU_INFO", info)
    monkeypatch.chdir(fresh.path)

    def output(precision: str, *arguments: str) -> str:
        fresh.configure({"train": {"precision": precision}})
        assert cli.main(["plan", "eng", "--gpus", "0", *arguments]) == 0
        return capsys.readouterr().out

    assert (NO_BF16 in output("bf16")) is slow and NO_BF16 not in output("fp32") + output("auto")
    hours = [
        float(next(csv.DictReader(io.StringIO(output(each, "--tsv")), delimiter="\t"))["hours"])
        for each in ("bf16", "fp32", "auto")
    ]
    assert hours[0] / hours[1] == pytest.approx(10 if slow else 1) and hours[2] == pytest.approx(hours[1])
    speeds = [
        assumed(SimpleNamespace(flops_per_second=6e9 / cost.slowdown(each)), "", each) for each in ("bf16", "fp32")
    ]
    assert speeds == [6e9, 6e9], "fine-tuning computes in fp32"


@pytest.mark.parametrize(
    ("flags", "gpus", "same"), [(NEW, "0", "fp32"), (f"{NEW} avx512_bf16", "0", "bf16"), (OLD, "1", "bf16")]
)
def test_auto_is_planned_as_it_will_run(fresh, monkeypatch, capsys, flags, gpus, same):
    """On GPUs in bf16: the machine that plans may be a login node."""
    monkeypatch.setattr(cost, "CPU_INFO", fresh.path / "cpuinfo")
    cost.CPU_INFO.write_text(f"flags : {flags}\n")
    monkeypatch.chdir(fresh.path)
    memory = {}
    for precision in ("auto", "bf16", "fp32"):
        fresh.configure({"train": {"precision": precision}})
        assert cli.main(["plan", "eng", "--gpus", gpus, "--tsv"]) == 0
        (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out), delimiter="\t")
        memory[precision] = row["memory_gib"]
    assert memory["auto"] == memory[same] and memory["bf16"] != memory["fp32"]


# As the repository of LLaDA-8B has it, as far as it counts.
LLADA = {
    "model_type": "llada",
    "d_model": 4096,
    "n_layers": 32,
    "n_heads": 32,
    "n_kv_heads": 32,
    "rope_theta": 500000.0,
}
LLADA |= {"mlp_hidden_size": 12288, "embedding_size": 126464, "max_sequence_length": 4096, "rms_norm_eps": 1e-05}


def test_downloads_are_told_before_anything_is_fetched(fresh, hub):
    data = gzip.compress(random.Random(0).randbytes(100_000).hex().encode())
    hub.commit("datasets/ada/prose", {f"data/{i:02}.json.gz": data for i in range(40)})
    own = {"name": "Prose", "corpus": {"hub": "ada/prose"}}
    fresh.configure(
        {"languages": {"prose": own, "few": own | {"corpus": {"hub": "ada/prose", "budget": "150 documents"}}}}
    )
    assert [row["source"] for row in plan(fresh, "prose", "few").values()] == ["listing", "budget"]
    done = fresh.python("-m", "babelmill", "plan", "prose", "few")
    output = done.stdout
    assert "Fetching" not in done.stderr and "No files matched" not in done.stderr, done.stderr
    whole = 40 * len(data) / 1e6
    assert (
        f"prose: downloads 40 of 40 files, {whole:.1f} MB; the text takes about {whole:.1f} MB more on disk" in output
    )
    assert "few: downloads 2 of 40 files, 229.0 kB; " in output  # 375,000 bytes of text
    assert not hub.sent, "no file of the repository was asked for"


def test_a_model_of_the_hub_is_planned_from_its_configuration_alone(fresh, hub):
    """No weights are fetched (there are none); memory by what is trained, on each number of GPUs."""
    hub.commit("models/GSAI-ML/LLaDA-8B-Base", {"config.json": json.dumps(LLADA).encode()})
    fresh.configure({"models": {"bard": {"languages": ["eng"], "preset": "diffusion_8b"}}})
    done = fresh.python(
        "-m", "babelmill", "plan", "bard", "--gpu", "H200", "--gpus", "1", "2", "8", "--tsv", check=True
    )
    rows = list(csv.DictReader(io.StringIO(done.stdout), delimiter="\t"))
    assert [row["gpus"] for row in rows] == ["1", "2", "8"]
    assert {row["parameters"] for row in rows} == {"8015581184"}
    assert [round(float(row["memory_gib"])) for row in rows] == [25, 17, 11]
    hours = [float(row["hours"]) for row in rows]
    assert hours[0] / hours[1] == pytest.approx(2, rel=0.1) and float(rows[0]["disk_gb"]) > 2 * 32
    output = fresh.python("-m", "babelmill", "plan", "bard", "--gpus", "2", "4").stdout
    assert "2 models" not in output
    assert "bard: GiB of each of 1, 2, 4, 8 GPUs, calculated: all weights: 161, 86, 48, 30;" in output
    assert "The evaluation takes 30 GiB of one GPU and more for its scores: it computes in fp32." in output
    assert "adapters of rank 16 (LoRA), train.ema_decay: 0: 25, 17, 13, 11." in output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["eng", "--gpus", "-1"], "--gpus -1"),
        (["enf"], "did you mean eng"),
        (["eng", "--gpu", "Voodoo2"], "--gpu Voodoo2"),
        (["eng", "--mfu", "40"], "--mfu 40"),
        (["eng", "--profile", "nowhere"], "--profile nowhere"),
        (["eng", "--profile", "odd"], "gpu_model in odd: potato"),
        (["eng", "--profile", "list"], "list: set-resources"),
    ],
)
def test_a_mistake_is_one_line(fresh, arguments, words):
    odd = {"odd": {"set-resources": {"train": {"gpu_model": "potato"}}}, "list": {"set-resources": ["train:gpu=2"]}}
    for name, values in odd.items():
        (fresh.path / name).mkdir()
        (fresh.path / name / "profile.yaml").write_text(json.dumps(values))
    done = fresh.python("-m", "babelmill", "plan", *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and words in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["plan", "status"])
def test_a_login_node_need_not_import_torch(fresh, command):
    code = (
        f"import sys; from babelmill import cli; sys.argv = ['babelmill', '{command}', 'tier1']; cli.main()\n"
        "print({'torch', 'transformers', 'tokenizers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=fresh.path, capture_output=True, text=True)
    assert done.stdout.endswith("set()\n")


def test_an_equal_model_keeps_the_fine_tunings_that_the_other_one_lacks():
    """Or if the other one is trained already, and in no plan."""

    def tuning(model: str, task: str, seeds: int = 3) -> TuningCost:
        return TuningCost(model, task, seeds, 10, 1, 1.0, 1.0, "assumed")

    first, same, more, other = (tuning("a", "rte"), tuning("b", "rte"), tuning("b", "rte", 5), tuning("b", "wsc"))
    tuned = {"a": [first], "b": [same, more, other]}
    assert not_taken(tuned, {"b": "a"}) == [first, more, other]
    assert not_taken({"b": [other]}, {"b": "earlier"}) == [other]
