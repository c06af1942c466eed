"""How many tokens masked diffusion hides, and which: `train.noise` and `train.rarity`, against their formulas."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from babelmill.config.resolve import Configuration
from babelmill.settings import settings_of
from babelmill.training.batches import masking, rarity
from babelmill.training.data import Data
from babelmill.training.plan import randomness
from babelmill.training.plan.objectives import Diffusion, objective_of
from babelmill.training.plan.plan import every_row
from conftest import SMALL
from helpers.training import training_data
from helpers.training.tiny_trainer import ALONE
from helpers.training.training_data import documents, section, train_settings, write_documents

CPU = torch.device("cpu")


def diffusion(**values) -> Diffusion:
    objective = objective_of(section("train", objective="diffusion", **values))
    assert isinstance(objective, Diffusion)
    return objective


def aims(noise: str, every: int, rows: int = 40_000):
    """What rows of so many targets learn; their times fill [0, 1) evenly."""
    targets = np.full(rows, every)
    return diffusion(noise=noise).aims(5, 100, np.arange(rows), np.arange(rows), targets, targets)


@pytest.mark.parametrize("every", [1, 2, 3, 17, 60])
@pytest.mark.parametrize("noise", ["uniform", "cosine"])
def test_the_expectation_of_the_loss_is_that_of_llada(noise, every):
    """Rows with k hidden tokens have the weight 1 in it for each k from 1 to e: their share, times k targets, times r."""
    found = aims(noise, every)
    assert found.targets.min() == 1 and found.targets.max() == every
    weight = np.bincount(found.targets, found.targets * found.importance, every + 1)[1:] / len(found.targets)
    assert weight == pytest.approx(np.ones(every), rel=0.02)


def test_long_rows_have_the_published_shares_and_weights():
    """alpha(t) = cos(pi/2 (1 - t)); a token is hidden with probability 1 - alpha and weighs |alpha'| / (1 - alpha)."""
    every = 1_000_000
    found = aims("cosine", every, 1000)
    first = randomness.uniform(randomness.key(7, randomness.RATES, 5))
    t = 1 - (first + (5**0.5 - 1) / 2 * np.arange(1000)) % 1
    alpha, derivative = np.cos(np.pi / 2 * (1 - t)), np.pi / 2 * np.sin(np.pi / 2 * (1 - t))
    assert found.targets / every == pytest.approx(1 - alpha, abs=2e-6)
    usual = found.targets > 1000  # of few hidden tokens the exact weight differs
    assert usual.mean() > 0.9
    assert found.importance[usual] == pytest.approx((derivative / (1 - alpha))[usual], rel=2e-3)
    assert (found.targets / every).mean() == pytest.approx(diffusion(noise="cosine").mask_rate(5, 100), abs=2e-3)


def test_rows_without_targets_hide_none():
    found = aims("cosine", 0, 10)
    assert not found.targets.any() and np.isfinite(found.importance).all()


def test_validation_measures_the_same_whatever_the_noise():
    number, every = np.arange(50), np.full(50, 40)
    one, other = (diffusion(noise=noise).validation_aims(0, number, every, every) for noise in ("uniform", "cosine"))
    assert (one.targets == other.targets).all() and (one.importance == other.importance).all()
    assert one.targets.tolist() == (1 + np.floor((5**0.5 - 1) / 2 * number % 1 * 40)).tolist()


def test_costs_are_the_formula():
    counts = np.array([5, 900, 40, 40, 0])
    weight = (np.array([4, 1, 2, 3, 5]) / 5) ** 0.5
    assert rarity.costs_of(counts, 0.5) == pytest.approx(1024 / weight, abs=0.5)
    assert rarity.costs_of(np.arange(2**20), 1.0).max() < 2**19, "a rank has 63 bits"


def test_tokens_are_counted_in_all_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(rarity, "AT_ONCE", 100)
    shards = [write_documents(tmp_path / f"{i}.safetensors", documents(20, i)) for i in range(2)]
    every = np.concatenate([shard.tokens for shard in shards])
    assert len(every) > 800
    assert rarity.token_counts(shards, 96).tolist() == np.bincount(every, minlength=96).tolist()


def test_tokens_are_hidden_in_proportion_to_their_weights():
    """Few of many; exactly as many as asked for."""
    rows, length, weights = 4000, 256, np.array([0.25, 0.5, 0.75, 1.0])
    tokens = torch.arange(length).expand(rows, length) % 4
    costs = torch.tensor(1024 / weights).long()[tokens]
    position, keys = torch.arange(length), randomness.key(3, torch.arange(rows))
    every, count = torch.ones(rows, length, dtype=torch.bool), torch.full((rows,), 12)
    chosen = masking.choose(every, count, position.expand(rows, length), keys, position, costs)
    assert (chosen.sum(1) == 12).all()
    share = np.bincount(tokens[chosen].numpy()) / (12 * rows)
    assert share == pytest.approx(weights / weights.sum(), rel=0.04)
    without = masking.choose(every, count, position.expand(rows, length), keys, position)
    assert np.bincount(tokens[without].numpy()) / (12 * rows) == pytest.approx([0.25] * 4, rel=0.04)


def test_training_hides_rare_tokens_more_often_and_validation_does_not(tmp_path):
    training_data.Data(tmp_path)
    network, shares = SimpleNamespace(in_place=True, compiled=None), {}
    for power in (0.0, 0.5):
        train = section("train", objective="diffusion", rarity=power)
        settings = train_settings(["eng"], section("model"), train)
        data = Data(settings, tmp_path / "tokenizer", [tmp_path / "shards/eng"])
        for split in ("train", "validation"):
            stream = data.stream(split, network, objective_of(train), ALONE)
            rows = every_row(data.layouts[split], 32, objective_of(train), 0)
            counts = np.bincount(data.shards["train"][0].tokens, minlength=96)
            shares[split, power] = counts[stream.micro_batch(rows, 32, (1.0,)).targets.numpy()].mean()
    assert shares["train", 0.5] < 0.95 * shares["train", 0.0], "what is hidden is rarer"
    assert shares["validation", 0.5] == shares["validation", 0.0]


@pytest.mark.parametrize("keys", [{"noise": "cosine"}, {"rarity": 0.02}], ids=str)
def test_the_keys_are_of_diffusion_alone(keys):
    """Other models' settings files do not have them, so that nothing runs again; nor do they have the neutral values."""

    def files(**train):
        values = copy.deepcopy(SMALL)
        values.setdefault("models", {})["eng"] = {"train": train}
        configuration = Configuration([("config/config.yaml", values)])
        return [settings_of(configuration, "eng", stage) for stage in ("tokenizer", "train", "export")]

    assert files(**keys) == files() and files(noise="uniform", rarity=0.0) == files()
    plain, ours = files(objective="diffusion"), files(objective="diffusion", **keys)
    assert plain[0] == ours[0] and plain[1] != ours[1] and plain[2] == ours[2]
