"""A model of two languages, really built: each is sampled, trained, validated and evaluated as the mixture says."""

import numpy as np
import pytest

from babelmill.core import manifest
from babelmill.core.files import read_json
from babelmill.stages import TrainStage
from babelmill.tokens.shard_file import ShardFile
from babelmill.training.plan.plan import Plan
from babelmill.training.plan.rows import Packed
from conftest import SMALL
from helpers.results.fields import undocumented
from helpers.stages import settings_at

pytestmark = pytest.mark.slow

LANGUAGES = ["eng", "deu"]


def test_every_language_is_reported(workspace):
    workspace.configure(SMALL | {"models": {"two": {"languages": LANGUAGES, "mixture": {"weights": "uniform"}}}})
    rules = {rule for rule, _ in workspace.would_run(targets=["converted/two"])}
    assert "corpus" not in rules, "corpora belong to languages, not to models"
    workspace.snakemake("converted/two")
    assert workspace.would_run(targets=["converted/two", "converted/eng", "converted/deu"]) == set()
    made = workspace.path / "results/of/two"
    report = manifest.read(made / "tokenizer")["figures"]["report"]
    assert list(report) == sorted(LANGUAGES)
    assert all(figures["round_trip_rate"] == 1 for figures in report.values())

    lines = workspace.metrics("two")
    for kind, prefixes in (("train", [""]), ("validation", ["", "ema_"])):
        line = [line for line in lines if line["kind"] == kind][-1]
        for prefix in prefixes:
            assert set(line[f"{prefix}languages"]) == set(LANGUAGES)
            for losses in line[f"{prefix}languages"].values():
                assert 0 < losses["loss_masked"] < 10 and 0 < losses["loss_causal"] < 10

    for file in ("train/metrics.jsonl", "evaluate/evaluation.json"):
        assert not undocumented(made / file)
    evaluation = read_json(made / "evaluate/evaluation.json")
    assert set(evaluation["languages"]) == set(evaluation["tokenizer"]) == set(LANGUAGES)
    sizes = [manifest.read(made / f"corpus/{code}")["figures"]["bytes"]["validation"] for code in LANGUAGES]
    for variant in ("main", "ema"):
        for mode in ("masked", "causal"):
            parts = [evaluation["languages"][language]["variants"][variant][mode] for language in LANGUAGES]
            whole = evaluation["variants"][variant][mode]
            assert whole["bytes"] == sum(part["bytes"] for part in parts)
            bits = sum(part["value"] * size for part, size in zip(parts, sizes, strict=True))
            assert whole["value"] == pytest.approx(bits / sum(sizes)), "a sample stands for all of its language"
            assert parts[0]["value"] != parts[1]["value"]
    card = (workspace.path / "converted/two/README.md").read_text()
    assert all(language in card for language in ("English", "German"))
    shares = manifest.read(made / "train")["figures"]["shares"]
    assert sum(shares.values()) == pytest.approx(1)
    assert all(f" | {100 * share:.1f} % | " in card for share in shares.values())

    shards = [ShardFile.open(made / f"shards/{code}/train.safetensors") for code in LANGUAGES]
    settings = TrainStage.read(settings_at(workspace.path, "results/of/two/train"))
    plan = Plan(settings.train, settings.mixture.weights, [Packed(shard.offsets) for shard in shards])
    rows = np.concatenate([plan.step(step).rows.language for step in range(plan.steps)])
    assert abs(int((rows == 0).sum()) - int((rows == 1).sum())) <= 1, "uniform, though their sizes differ"
    assert len(shards[0].tokens) != len(shards[1].tokens)
