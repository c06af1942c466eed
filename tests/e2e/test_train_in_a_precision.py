"""`train.precision: auto`: the device where a run begins decides, and all that describes the model says what ran."""

import shutil
from pathlib import Path

import pytest
import torch
import yaml

from babelmill.core import manifest
from babelmill.core.files import read_json
from babelmill.runtime.cost import precision_of
from babelmill.training.kernels.compilation import fast_in_bf16
from helpers.programs.prepared import START, run_python
from helpers.training.training_data import Data

pytestmark = pytest.mark.slow

FAST, SLOW = "avx2 avx512bw avx512vl avx512dq avx512_bf16", "avx2"


def train(data: Data, flags: str) -> str:
    """Train on a processor with these flags. Return the output."""
    processor = data.folder / "cpuinfo"
    processor.write_text(f"flags : {flags}\n")
    code = f"import pathlib; from babelmill.runtime import cost; cost.CPU_INFO = pathlib.Path({str(processor)!r}); "
    return run_python("-c", code + START, *data.command(), cwd=data.folder, check=True).stderr


def recorded(data: Data) -> list[str]:
    """Return the precision that each of the records names: of the model, of the attempt; and that of the settings."""
    (run,), made = data.runs, manifest.read(data.folder / "model")
    attempt = read_json(run / "attempt.json")
    return [made["figures"]["precision"], attempt["precision"], made["settings"]["train"]["precision"]]


def test_a_run_keeps_the_precision_in_which_it_began(data):
    """Also where it is another processor that continues it: then the log says so, and the weights are the same."""
    data.settings(precision="auto")
    assert "precision   bf16" in train(data, FAST)
    weights, (run,) = data.weights(), data.runs
    assert recorded(data) == ["bf16", "bf16", "auto"]

    for path in run.glob("step-00000012.*"):
        path.unlink()
    shutil.rmtree(data.result)
    output = train(data, SLOW)
    assert "going on after step 10" in output and "precision   bf16" in output
    assert "this run stays in bf16, in which it began; a new one would be in fp32 here" in output
    assert data.weights() == weights and recorded(data) == ["bf16", "bf16", "auto"]
    (run / "attempt.json").unlink()
    assert "already trained" in train(data, SLOW)
    assert manifest.read(data.folder / "model")["figures"]["precision"] == "bf16", "the checkpoint says it"

    shutil.rmtree(run)
    output = train(data, SLOW)
    assert "precision   fp32" in output and "bf16" not in output
    assert data.weights() != weights and recorded(data) == ["fp32", "fp32", "auto"]


def test_the_card_names_what_ran(workspace):
    """And so does the manifest beside it, which goes where the model goes: the comparison reads it."""
    values = yaml.safe_load(workspace.config_file.read_text())
    values["train"] |= {"precision": "auto"}
    workspace.configure(values)
    workspace.snakemake("converted/eng")
    folder = Path(workspace.path, "converted/eng")
    here = precision_of("auto", fast_in_bf16(torch.device("cuda" if torch.cuda.is_available() else "cpu")))
    trained = manifest.read(workspace.path / "results/of/eng/train")
    assert (trained["settings"]["train"]["precision"], trained["figures"]["precision"]) == ("auto", here)
    assert f"  precision: {here}\n" in (folder / "README.md").read_text()
    assert manifest.read(folder)["figures"]["precision"] == here
    compared = workspace.python("-m", "babelmill", "compare", "converted/eng", "deu").stdout
    assert ("\nnote: eng ran in bf16, deu in fp32\n" in compared) == (here == "bf16")
