"""Exported folders in the evaluation suites that people use. What the BabyLM pipelines call is in `hub_checks.py`."""

import itertools
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from babelmill.score import ScoringModel
from helpers import ROOT
from helpers.environments import SUITES, TRANSFORMERS_4, installed
from helpers.hub.hub_data import SENTENCES
from helpers.programs.prepared import run_python

pytestmark = pytest.mark.slow

GUIDE = ROOT / "docs/evaluation.md"
PAIR = ["The black cat sat on the mat near the old door.", "The black cat sat mat on the near the old door."]
SWAPPED = {"cat sat": "sat cat", "dog runs": "runs dog", "wizards boil": "boil wizards"}


def run(command: list, home: Path, *folders: Path) -> str:
    """Run Python with the packages in these folders; its standard output."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(home / "cache")}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, folders))
    done = run_python(*command, cwd=home, environment=environment, check=True)
    return done.stdout


def guide_command(start: str, end: str) -> list[str]:
    """The words of the command in the guide that begins and ends like this."""
    (line,) = [line for line in GUIDE.read_text().splitlines() if line.startswith(start) and line.endswith(end)]
    return line.split()


def guide_code(word: str) -> str:
    """The piece of Python in the guide that has this word in it."""
    (code,) = [piece for piece in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL) if word in piece]
    return code


def harness(folder: Path, tmp_path: Path, end: str, *tasks: str) -> dict[str, list[dict]]:
    """Run the guide's command of the harness that ends like this; {task: samples}."""
    command = [word.replace("converted/eng", str(folder)) for word in guide_command("lm_eval ", end)]
    command[command.index("--tasks") + 1] = ",".join(tasks)
    command = ["-m", *command, "--include_path", tmp_path, "--device", "cpu", "--batch_size", "2", "--log_samples"]
    run([*command, "--output_path", tmp_path / end], tmp_path, installed(SUITES))
    found = {task: next((tmp_path / end).rglob(f"samples_{task}_*.jsonl")) for task in tasks}
    return {task: [json.loads(line) for line in path.read_text().splitlines()] for task, path in found.items()}


def test_lm_evaluation_harness(exported, tmp_path):
    """As the guide types it, on sentences in a local file: each score is that of the stage `score`, with one `<s>` first."""
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
    told = task | {"task": "told", "doc_to_text": "{{sen.split()[:3] | join(' ')}}", "target_delimiter": " "}
    # Not to the end: the harness takes requests with the same tokens, but another context, for the same request.
    told["doc_to_choice"] = "{{[sen.split()[3:7] | join(' '), sen.split()[4:7] | join(' ')]}}"
    rolling = {key: task[key] for key in ("dataset_path", "dataset_kwargs", "test_split")}
    rolling |= {"task": "whole", "output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{sen}}"}
    rolling["metric_list"] = [{"metric": "word_perplexity"}]
    for values in (task, told, rolling):
        (tmp_path / f"{values['task']}.yaml").write_text(yaml.safe_dump(values))
    plain = harness(exported / "export", tmp_path, "hellaswag", "pairs", "told")
    flagged = harness(exported / "export", tmp_path, "wikitext", "whole", "told")
    parts = [(" ".join(text.split()[:3]), " ".join(text.split()[:7])) for text in SENTENCES]
    texts = list(dict.fromkeys(itertools.chain(*pairs, *parts)))
    wanted = ours(exported / "export", "causal", texts, tmp_path)
    whole = {sample["doc"]["sen"]: float(sample["filtered_resps"][0]) for sample in flagged["whole"]}
    assert whole == pytest.approx({text: wanted[text] for text in SENTENCES}, abs=1e-3)
    told, without = ([float(sample["filtered_resps"][0][0]) for sample in run["told"]] for run in (plain, flagged))
    assert told == pytest.approx([wanted[end] - wanted[start] for start, end in parts], abs=1e-3)
    assert without != pytest.approx(told, abs=0.01), "the flag takes <s> away, as the guide says"
    found = {}
    for sample in plain["pairs"]:
        assert sample["acc"] == 1.0
        for choice, answer in zip(("sen", "wrong_sen"), sample["filtered_resps"], strict=True):
            found[sample["doc"][choice]] = float(answer[0])
    assert found == pytest.approx({text: wanted[text] for pair in pairs for text in pair}, abs=1e-4)


def ours(folder: Path, method: str, texts: list[str], tmp_path: Path) -> dict[str, float]:
    """The scores of sentences as the stage `score` has them."""
    pairs, all_of_them = [[text, text] for text in texts], np.ones(len(texts), bool)
    rows = ScoringModel(folder, {}).score(method, pairs, all_of_them, tmp_path / f"partial-{method}")
    return dict(zip(texts, rows[:, 0].tolist(), strict=True))


@pytest.mark.parametrize("kind, version", [("causal", "5.23.0"), ("masked", "4.57.6")])
def test_minicons(exported, tmp_path, kind, version):
    """By the guide's code, its scores are those of the stage `score`, and the good sentence is the likelier one.

    (Its masked scorer asks for a method of tokenizers that transformers 5 has no longer, whatever the model.)
    """
    folders = [*([installed(TRANSFORMERS_4)] if version == "4.57.6" else []), installed(SUITES)]
    code = guide_code("minicons").replace("converted/eng", str(exported / "export"))
    code = code.replace('["The cat sat."]', repr(PAIR))
    if kind == "masked":
        code = code.replace("IncrementalLMScorer", "MaskedLMScorer")
    good, bad = json.loads(run(["-c", code], tmp_path, *folders).splitlines()[-1])
    assert good > bad + 1
    assert ours(exported / "export", kind, PAIR, tmp_path) == pytest.approx(
        dict(zip(PAIR, (good, bad), strict=True)), abs=1e-4
    )
