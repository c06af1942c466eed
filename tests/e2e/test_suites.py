"""Exported folders in the evaluation suites that people use. What the BabyLM pipelines call is in
`hub_training_checks.py`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from babelmill.core.files import read_json
from babelmill.model.gpt_bert import GPTBert, GPTBertShape
from environments import SUITES, TRANSFORMERS_4, installed
from hub_data import BOS, SENTENCES

HERE = Path(__file__).parent
SWAPPED = {"cat sat": "sat cat", "dog runs": "runs dog", "wizards boil": "boil wizards"}


def run(command: list, home: Path, *folders: Path) -> str:
    """Run Python with the packages in these folders; its standard output."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(home / "cache")}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, folders))
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-5_000:]
    return done.stdout


def test_lm_evaluation_harness(exported, tmp_path):
    """`--model hf` on minimal pairs in a local file: right on each, with the likelihoods that training saw."""
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
    (tmp_path / "pairs.yaml").write_text(yaml.safe_dump(task))
    command = ["-m", "lm_eval", "--model", "hf", "--tasks", "pairs", "--include_path", tmp_path, "--device", "cpu"]
    command += ["--model_args", f"pretrained={exported / 'export'},trust_remote_code=True", "--batch_size", "2"]
    run([*command, "--log_samples", "--output_path", tmp_path / "out"], tmp_path, installed(SUITES))
    (results,) = (tmp_path / "out").rglob("results_*.json")
    (samples,) = (tmp_path / "out").rglob("samples_pairs_*.jsonl")
    assert read_json(results)["results"]["pairs"]["acc,none"] == 1.0
    found = {}
    for line in samples.read_text().splitlines():
        sample = json.loads(line)
        for choice, answer in zip(("sen", "wrong_sen"), sample["filtered_resps"], strict=True):
            found[sample["doc"][choice]] = float(answer[0])
    assert found == pytest.approx({text: likelihood(exported, text) for text in found}, abs=1e-3)


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
