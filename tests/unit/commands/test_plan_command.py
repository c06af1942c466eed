"""The plan: what it says before training is what training then does."""

import contextlib
import itertools
import json
import re

import pytest

from babelmill import cli
from babelmill.commands import plan as command
from babelmill.config import loading
from babelmill.config.models import gpt_bert
from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.graph import Graph
from babelmill.model.gpt_bert import GPTBert, GPTBertShape
from babelmill.runtime import cost
from babelmill.runtime.cost import flops, has_gpu, peak_of
from conftest import SMALL, Workspace

pytestmark = pytest.mark.slow


@pytest.fixture
def fresh(tmp_path):
    workspace = Workspace(tmp_path)
    workspace.configure({})
    return workspace


def plan(workspace, *words) -> list[dict]:
    """The rows of the plan."""
    args = cli.parser_for(["plan"]).parse_args(["plan", *map(str, words)])
    with contextlib.chdir(workspace.path):
        graph = Graph(loading.from_arguments(args))
        gpu, of_preset = command.gpus_for(args)
        gpus = {name: of_preset(graph.configuration.model(name).resources.gpus) for name in args.names}
        return [command.plan(graph, name, gpus[name], gpu)[0] for name in args.names]


def printed(workspace, *words) -> tuple[list[dict[str, str]], str]:
    """The lines of the printed table, and what is below it."""
    heading, *lines = workspace.babelmill("plan", *words).splitlines()
    end = next(i for i, line in enumerate(lines) if line.startswith(("GPU: ", "No GPU: ")))
    rows = [dict(zip(heading.split(), re.split(r"\s{2,}", line.strip()), strict=False)) for line in lines[:end]]
    return rows, "\n".join(lines[end:])


@pytest.mark.parametrize(("gate", "mixing", "layers"), list(itertools.product([False, True], [False, True], [1, 3])))
def test_the_number_of_parameters_is_the_models(gate, mixing, layers):
    shape = GPTBertShape(400, 32, 48, 2, layers, gate=gate, layer_mixing=mixing)
    size = gpt_bert(shape, 400)
    assert size.parameters == sum(parameter.numel() for parameter in GPTBert(shape).parameters())
    per_position = layers * ((5 if gate else 4) * 32 * 32 + 3 * 32 * 48 + 2 * 16 * 32 + 2 * 63 * 32)
    assert flops(size, 16, 10.0, 3.0) == 6 * (10 * per_position + 3 * (32 * 32 + 400 * 32))


def test_it_foretells_what_training_did(workspace):
    """From the shards: the same parameters, steps and epochs as in the manifest of the trained model."""
    (row,) = plan(workspace, "eng")
    did = manifest.read(workspace.path / "results/of/eng/train")["figures"]
    assert (row["from"], row["parameters"], row["steps"]) == ("shards", did["parameters"], did["steps"])
    assert row["epochs"] == pytest.approx(did["epochs"])
    workspace.configure(SMALL | {"tokenizer": {"vocab_size": 300}})
    assert plan(workspace, "eng")[0]["from"] == "corpus", "the shards have another tokenizer"
    (workspace.path / "texts/eng/more.txt").write_text("word " * 840_000)
    ((after,), _) = printed(workspace, "eng")
    assert after["from"] == "files" and after["tokens"] == "802.2 k"


def test_without_shards_it_estimates_and_says_from_what(fresh, tmp_path):
    (tmp_path / "a.txt").write_text("word " * 84_000)  # 420,000 bytes, 4.2 bytes a token
    corpora = {"eng": {"files": ["a.txt"]}, "deu": {"budget": "5M words"}, "swe": {"budget": "50M words"}}
    corpora |= {"nob": {"hub": "me/text", "budget": "50M words"}, "own": {"hub": "me/text"}}
    fresh.configure({"languages": {code: {"name": code, "corpus": corpus} for code, corpus in corpora.items()}})
    eng, deu, nld, zul, swe, nob, own = plan(fresh, "eng", "deu", "nld", "zul", "swe", "nob", "own")
    assert [row["from"] for row in (eng, deu, nld, zul)] == ["files", "budget", "tier 1", "tier 3"]
    assert swe["from"] == "tier 2", "a budget is at most what there is"
    assert (nob["from"], own["from"]) == ("budget", "guess"), "nothing else is known of a dataset of one's own"
    assert eng["tokens"] == 98_000, "2 % are set aside for validation"
    # The same English-equivalent words are about the same number of tokens in every language.
    assert deu["tokens"] == pytest.approx(0.98 * 5e6 * 5.43 / 4.2, rel=1e-3)
    assert nld["tokens"] == pytest.approx(100 * zul["tokens"], rel=1e-3)


def test_peaks_of_gpus():
    """By names as drivers and SLURM write them; an MI250X is two GPUs."""
    names = ["NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "h100_pcie", "NVIDIA H100 NVL", "NVIDIA A800-SXM4-80GB"]
    assert [peak_of(name) for name in names] == [989e12, 756e12, 756e12, 835e12, 312e12]
    assert [peak_of(f"AMD Instinct {name}") for name in ("MI250X", "MI300X", "MI7")] == [191.5e12, 1307e12, None]


def test_hours_follow_speed_and_gpus_which_are_the_profiles_and_a_batch_has_a_total(fresh, tmp_path):
    a100, h100 = (plan(fresh, "swe", "--gpu", gpu, "--gpus", "2")[0] for gpu in ("A100", "H100"))
    assert a100["hours"] / h100["hours"] == pytest.approx(peak_of("H100") / peak_of("A100"))
    assert a100["GPU-hours"] == pytest.approx(2 * a100["hours"])
    *rows, total = printed(fresh, "tier1", "--gpu", "H100")[0]
    assert len(rows) == 9 and total["model"] == "9 models"
    assert sum(float(row["GPU-hours"]) for row in rows) == pytest.approx(float([*total.values()][-1]), abs=0.5)
    fresh.configure({"resources": {"gpus": 4}})
    of_train = {"set-resources": {"train": {"gpu": 8}}}
    for profile, gpus in ({"resources": {"gpu": 2}}, 2), ({"resources": {"gpu": 0}}, 0), (of_train, 8), ({}, 4):
        (tmp_path / "profile.yaml").write_text(json.dumps(profile))
        assert plan(fresh, "eng", "--profile", tmp_path, "--gpu", "H100")[0]["GPUs"] == gpus


def test_what_a_training_measured_is_used(workspace):
    """A training with a known utilisation is better than an assumption, for models of its size."""
    values = SMALL | {"train": SMALL["train"] | {"precision": "bf16"}, "resources": {"gpus": 1}}
    workspace.configure(values)
    assert not plan(workspace, "eng", "--gpu", "H100")[0]["measured"]
    record = workspace.path / "results/of/deu/train/metrics.jsonl"
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    record.write_text("".join(json.dumps(line | {"mfu": 0.41}) + "\n" for line in lines))
    about = manifest.read(record.parent)
    about["figures"]["precision"] = "bf16"
    manifest.write_sealed(record.with_name("manifest.json"), about)
    (row,) = plan(workspace, "eng", "--gpu", "H100")
    assert row["measured"] and row["speed"] == pytest.approx(0.41 * peak_of("H100"))
    workspace.configure(values | {"model": SMALL["model"] | {"hidden_size": 8 * SMALL["model"]["hidden_size"]}})
    assert not plan(workspace, "eng", "--gpu", "H100")[0]["measured"]


@pytest.mark.skipif(has_gpu(), reason="on a machine without GPUs")
def test_without_a_gpu_the_hours_are_of_this_machine(workspace):
    """Of the speed of trainings that ran here; of a guess before there is one."""
    workspace.configure(SMALL | {"resources": {"gpus": 4}})
    records = list(workspace.path.glob("results/train/*/metrics.jsonl"))
    for record in records:
        record.write_text(re.sub(r'("tokens_per_second": )[\d.]+', r"\g<1>5000.0", record.read_text()))
    (row,) = plan(workspace, "eng")
    assert (row["GPUs"], row["GPU-hours"], row["measured"]) == (0, 0.0, True)
    assert 3600 * row["hours"] == pytest.approx(row["tokens"] * row["epochs"] / 5000)
    (shown,), below = printed(workspace, "eng")
    assert "hours of this machine's processor" in below and "H100" not in below
    assert "hours" in shown and not {"GPUs", "GPU-hours"} & shown.keys()
    (workspace.path / "cluster").mkdir()
    (workspace.path / "cluster/profile.yaml").write_text("executor: slurm\n")
    assert plan(workspace, "eng", "--profile", workspace.path / "cluster")[0]["GPUs"] == 4
    for record in records:
        record.unlink()
    (guessed,) = plan(workspace, "eng")
    assert not guessed["measured"] and guessed["hours"] * guessed["speed"] * 3600 == pytest.approx(row["FLOPs"])


def test_what_cannot_work_or_will_be_missing_is_said(workspace):
    """Once for all models of which it is true."""
    train = SMALL["train"] | {"global_batch_tokens": 2**20, "max_steps": 2}
    workspace.configure(SMALL | {"run": {"snapshots": [0.0002, 5]}, "train": train})
    output = printed(workspace, "eng", "deu")[1]
    assert "eng, deu: train.global_batch_tokens = 1,048,576 is more than its whole text." in output
    assert re.search(r"\n(eng|deu|eng, deu): only \d+ documents? for validation: raise", output)
    assert "run.snapshots: chck_5M: the run ends after about" in output and "chck_0.0002M" not in output


OLD, NEW = "fma sse4_2 avx avx2", "fma avx avx2 avx512f avx512dq avx512bw avx512vl"


@pytest.mark.parametrize(
    ("flags", "gpus", "same"), [(NEW, "0", "fp32"), (f"{NEW} avx512_bf16", "0", "bf16"), (OLD, "1", "bf16")]
)
def test_auto_is_planned_as_it_will_run(fresh, monkeypatch, flags, gpus, same):
    """On GPUs in bf16: the machine that plans may be a login node."""
    monkeypatch.setattr(cost, "CPU_INFO", fresh.path / "cpuinfo")
    cost.CPU_INFO.write_text(f"flags : {flags}\n")
    rows = {}
    for precision in ("auto", "bf16", "fp32"):
        fresh.configure({"train": {"precision": precision}})
        (rows[precision],) = plan(fresh, "eng", "--gpus", gpus)
    assert rows["auto"]["GiB"] == rows[same]["GiB"] and rows["bf16"]["GiB"] != rows["fp32"]["GiB"]


# As the repository of LLaDA-8B has it, as far as it counts.
LLADA = {
    **{"model_type": "llada", "d_model": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 32, "rope_theta": 500000.0},
    **{"mlp_hidden_size": 12288, "embedding_size": 126464, "max_sequence_length": 4096, "rms_norm_eps": 1e-05},
    **{"mask_token_id": 126336},
}


def test_a_model_of_the_hub_is_planned_from_its_configuration_alone(fresh, hub):
    """No weights are fetched (there are none). With adapters, only these have states."""
    hub.commit("models/GSAI-ML/LLaDA-8B-Base", {"config.json": json.dumps(LLADA).encode()})
    bard = {"languages": ["eng"], "preset": "diffusion_8b"}
    fresh.configure({"models": {"bard": bard, "whole": bard | {"train": {"lora_rank": 0}}}})
    tables = [printed(fresh, "bard", "whole", "--gpu", "H200", "--gpus", gpus)[0][:2] for gpus in ("1", "8")]
    assert {row["parameters"] for rows in tables for row in rows} == {"8.0 G"}
    gib = [float(row["GiB"]) for rows in zip(*tables, strict=True) for row in rows]
    assert gib == pytest.approx([19.9, 6.7, 131.1, 23.3], rel=0.26), "what was measured (benchmarks/README.md)"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--gpus", "-1"], "--gpus -1"),
        (["--gpu", "Voodoo2"], "--gpu Voodoo2"),
        (["--profile", "odd"], "gpu_model in odd: potato"),
        (["--profile", "list"], "list: resources"),
        (["--config", "corpus={files: [none.txt]}"], "corpus file none.txt: no such file"),
    ],
)
def test_a_mistake_is_one_line(fresh, monkeypatch, capsys, words, expected):
    for name, values in (("odd", {"train": {"gpu_model": "potato"}}), ("list", ["train:gpu=2"])):
        (fresh.path / name).mkdir()
        (fresh.path / name / "profile.yaml").write_text(json.dumps({"set-resources": values}))
    monkeypatch.chdir(fresh.path)
    assert cli.main(["plan", "eng", *words]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and expected in error and error.count("\n") == 1


def test_words_are_those_of_the_mixture(tmp_path, monkeypatch):
    """Of 10 bytes of text with words of 4.2 bytes, and 1 byte with words of 2.1: weighed by their size, or alike."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "WORD", 4.2)
    monkeypatch.setattr(command, "bytes_per_word", lambda *_: {"qab": 2.1})
    languages = {}
    for code, size in (("qaa", 40_000), ("qab", 4_000)):
        (tmp_path / f"{code}.txt").write_text("a" * size)
        languages[code] = {"name": code, "byte_premium": 1, "corpus": {"files": [f"{code}.txt"]}}
    for weights, share in (("size", 1 / 11), ("uniform", 1 / 2)):
        model = {"languages": list(languages), "mixture": {"weights": weights}}
        found = command.text_of(Graph(Configuration([("", {"languages": languages, "models": {"two": model}})])), "two")
        assert found.words_per_token == pytest.approx((1 - share) + 2 * share, rel=1e-3)
