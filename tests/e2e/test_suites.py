"""Exported folders in the evaluation suites that people use. What the BabyLM pipelines call is in
`hub_training_checks.py`."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
import yaml
from safetensors.torch import load_file

from babelmill.core.files import read_json
from babelmill.model.gpt_bert import GPTBert, GPTBertShape
from babelmill.score import Model
from babelmill.suites.partial import Partial
from environments import SUITES, TRANSFORMERS_4, installed
from hub_data import BOS, SENTENCES
from prepared import run_python

HERE = Path(__file__).parent
GUIDE = HERE.parents[1] / "docs/evaluation.md"
PAIR = ("The black cat sat on the mat near the old door.", "The black cat sat mat on the near the old door.")
SWAPPED = {"cat sat": "sat cat", "dog runs": "runs dog", "wizards boil": "boil wizards"}


def run(command: list, home: Path, *folders: Path) -> str:
    """Run Python with the packages in these folders; its standard output."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(home / "cache")}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, folders))
    done = run_python(*command, cwd=home, environment=environment)
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-5_000:]
    return done.stdout


def guide_command(start: str) -> list[str]:
    """The words of the command in the guide that begins like this."""
    (line,) = [line for line in GUIDE.read_text().splitlines() if line.startswith(start)]
    return line.split()


def guide_code(word: str) -> str:
    """The piece of Python in the guide that has this word in it."""
    (code,) = [piece for piece in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL) if word in piece]
    return code


def test_lm_evaluation_harness(exported, tmp_path):
    """As the guide types it, on sentences in a local file: pairs, and rolling perplexity, with training's likelihoods."""
    pairs = [(text, text.replace(*next(swap for swap in SWAPPED.items() if swap[0] in text))) for text in SENTENCES]
    lines = ["sen\twrong_sen", *map("\t".join, pairs)]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n")
    task = {
        "task": "pairs",
        "dataset_path": "csv",
        "dataset_kwargs": {"data_files": {"test": str(tmp_path / "pairs.tsv")}, "delimiter": "\t"},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "",
        "doc_to_choice": "{{[sen, wrong_sen]}}",
        "doc_to_target": 0,
        "target_delimiter": "",  # else a space is put before each sentence
        "metric_list": [{"metric": "acc"}],
    }
    rolling = {key: task[key] for key in ("dataset_path", "dataset_kwargs", "test_split")}
    rolling |= {"task": "whole", "output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{sen}}"}
    rolling["metric_list"] = [{"metric": "word_perplexity"}]
    for values in (task, rolling):
        (tmp_path / f"{values['task']}.yaml").write_text(yaml.safe_dump(values))
    command = [word.replace("converted/eng", str(exported / "export")) for word in guide_command("lm_eval ")]
    command[command.index("--tasks") + 1] = "pairs,whole"
    command = ["-m", *command, "--include_path", tmp_path, "--device", "cpu", "--batch_size", "2"]
    run([*command, "--log_samples", "--output_path", tmp_path / "out"], tmp_path, installed(SUITES))
    (results,) = (tmp_path / "out").rglob("results_*.json")
    (samples,) = (tmp_path / "out").rglob("samples_pairs_*.jsonl")
    (wholes,) = (tmp_path / "out").rglob("samples_whole_*.jsonl")
    for sample in map(json.loads, wholes.read_text().splitlines()):
        found = float(sample["filtered_resps"][0])
        assert found == pytest.approx(likelihood(exported, sample["doc"]["sen"]), abs=1e-3)
    assert read_json(results)["results"]["pairs"]["acc,none"] == 1.0
    found = {}
    for line in samples.read_text().splitlines():
        sample = json.loads(line)
        for choice, answer in zip(("sen", "wrong_sen"), sample["filtered_resps"], strict=True):
            found[sample["doc"][choice]] = float(answer[0])
    assert found == pytest.approx({text: likelihood(exported, text) for text in found}, abs=1e-3)
    assert ours(exported / "export", "causal", pairs, tmp_path) == pytest.approx(found, abs=1e-4)


def ours(folder: Path, method: str, pairs: list[tuple[str, str]], tmp_path: Path) -> dict[str, float]:
    """The scores of sentences as the stage `score` has them."""
    table = pa.table({"good": [good for good, _ in pairs], "bad": [bad for _, bad in pairs]})
    model = Model(folder, within_word_l2r=False)
    rows = model.score(method, table, np.ones(len(pairs), bool), Partial(tmp_path / f"partial-{method}", {}))
    scores = dict(zip(table["good"].to_pylist(), rows[:, 0].tolist(), strict=True))
    return scores | dict(zip(table["bad"].to_pylist(), rows[:, 1].tolist(), strict=True))


@torch.inference_mode()
def likelihood(folder: Path, text: str) -> float:
    """ln p of a text after `<s>` under the training model."""
    from tokenizers import Tokenizer

    shape = read_json(folder / "model/config.json")
    model = GPTBert(GPTBertShape(**{name: shape[name] for name in GPTBertShape.__dataclass_fields__})).eval()
    model.load_state_dict(load_file(folder / "model/model.safetensors"))
    ids = torch.tensor(Tokenizer.from_file(str(folder / "tokenizer/tokenizer.json")).encode(text).ids)
    assert ids[0] == BOS
    allowed = torch.ones(1, 1, len(ids), len(ids), dtype=torch.bool).tril()
    scores = model(ids[None], allowed)[0, :-1].log_softmax(-1)
    return scores.gather(1, ids[1:, None]).sum().item()


@pytest.mark.parametrize("kind, version", [("causal", "5.23.0"), ("masked", "4.57.6")])
def test_minicons(exported, tmp_path, kind, version):
    """Its own scores are ours, and the good sentence is the likelier one.

    (Its masked scorer asks for a method of tokenizers that transformers 5 has no longer, whatever the model.)
    """
    folders = [installed(SUITES), *([installed(TRANSFORMERS_4)] if version == "4.57.6" else [])]
    output = run([HERE / "minicons_checks.py", exported / "export", kind], tmp_path, *reversed(folders))
    good, bad = (tuple(map(float, line.split())) for line in output.splitlines()[-2:])
    assert good[0] == pytest.approx(good[1], abs=1e-3) and bad[0] == pytest.approx(bad[1], abs=1e-3)
    assert good[0] > bad[0] + 1
    scores = ours(exported / "export", kind, [PAIR], tmp_path)
    assert [scores[text] for text in PAIR] == pytest.approx([good[0], bad[0]], abs=1e-4)
    code = guide_code("minicons").replace("converted/eng", str(exported / "export"))
    code = code.replace('"The cat sat."', repr(SENTENCES[0]))
    if kind == "masked":
        code = code.replace("IncrementalLMScorer", "MaskedLMScorer")
    output = run(["-c", code], tmp_path, *reversed(folders))
    assert float(output.splitlines()[-1].strip("[]")) == pytest.approx(good[0], abs=1e-3)
