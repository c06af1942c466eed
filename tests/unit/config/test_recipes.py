"""Recipes: a layer between the preset and the user's settings; as published, it changes nothing."""

import shutil

import pytest
from test_config import configuration, refused

from babelmill.commands import config
from babelmill.config import resolve
from babelmill.config.layers import RECIPES
from babelmill.config.resolve import ROOT, Configuration
from babelmill.core.files import UserError
from babelmill.settings import settings_of

TUNED = f"{RECIPES}tuned.yaml"


@pytest.mark.parametrize("preset", ["tiny", "h200_8gpu_quality", "gpt2_30m", "bert_30m"])
def test_published_is_what_there_was_without_recipes(preset):
    made, said = configuration({"preset": preset}), configuration({"preset": preset, "recipe": "published"})
    model = made.model("eng")
    assert not any(label.startswith(RECIPES) for label in model.origins.values())
    assert settings_of(made, "eng", "train") == settings_of(said, "eng", "train")
    assert "recipe" not in config.describe(made, "eng").splitlines()[0]


def test_a_recipe_lies_between_preset_and_user():
    made = configuration({"preset": "tiny", "recipe": "tuned", "train": {"learning_rate": 0.003}})
    model = made.model("eng")
    assert (model.train.optimizer, model.train.weight_decay, model.train.learning_rate) == ("muon", 0.5, 0.003)
    assert model.origins["train.optimizer"] == TUNED and model.origins["train.learning_rate"] == "layer0.yaml"
    assert model.train.global_batch_tokens == 4096, "of the preset"
    shown = config.describe(made, "eng").splitlines()
    assert shown[0].endswith("preset tiny; recipe tuned") and any(TUNED in line for line in shown)
    assert made.corpus("eng").origins == configuration({"preset": "tiny"}).corpus("eng").origins


def test_a_model_may_have_a_recipe_of_its_own():
    """Also one that it inherits, and as what an experiment varies."""
    models = {"eng": {"recipe": "tuned"}, "more": {"like": "eng"}, "old": {"like": "more", "recipe": "published"}}
    grid = {"base": "deu", "vary": {"recipe": ["published", "tuned"]}, "compare_with": {"recipe": "published"}}
    made = configuration({"preset": "tiny", "models": models, "experiments": {"both": grid}})
    optimizers = {name: made.model(name).train.optimizer for name in ("eng", "more", "old", *made.batches["both"])}
    assert list(optimizers.values()) == ["muon", "muon", "lamb", "lamb", "muon"], optimizers


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"preset": "gpt2_30m"}, ["only for model.architecture = gpt_bert", "has transformers (config/presets/gpt2"]),
        ({"preset": "diffusion_8b"}, ["only for model.architecture = gpt_bert", "(config/presets/diffusion_8b.yaml)"]),
        ({"preset": "h200_8gpu_fast"}, ["only for train.objective = hybrid, and this model has masked"]),
        ({"models": {"eng": {"model": {"source": "deu"}}}}, ["only for model.source = null", "has deu", "layer1.yaml"]),
    ],
)
def test_a_recipe_is_refused_for_models_that_it_is_not_for(values, parts):
    message = refused({"recipe": "tuned"}, values, name="eng")
    assert all(part in message for part in ["recipe tuned of model eng", "models.eng.recipe: published", *parts])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# Mine.\ntran: {epochs: 3}\n", "config/recipes/mine.yaml: unknown section tran; did you mean train"),
        ("# Mine.\ntrain: {epoch: 3}\n", "config/recipes/mine.yaml: unknown key train.epoch; did you mean epochs"),
        (
            "# Mine.\nonly: {model.kind: bert}\n",
            "config/recipes/mine.yaml: only: there is no key model.kind; did you mean",
        ),
        (
            "# Mine.\nonly: {train: {objective: causal}}\n",
            "only for train.objective = causal, and this model has hybrid",
        ),
        ("# Mine.\nonly: {train.objective: [causal, masked]}\n", "only for train.objective = causal or masked"),
        ("# Mine.\nonly: {train.hybrid_ratio: 8/16, train.eps: 1e-8}\ntrain: {seed: 7}\n", ""),
        ("# Mine.\nonly: {train.hybrid_ratio: 0.5}\n", "train.hybrid_ratio = 0.5: this key cannot have this value"),
        ("# Mine.\ntrain: {optimizer: muon, lora_rank: 3}\n", "config/recipes/mine.yaml: train.optimizer = muon"),
        ("# Mine.\ntrain: {seed: 7}\n", ""),
    ],
)
def test_a_recipe_of_ones_own_is_checked(tmp_path, text, message):
    shutil.copytree(ROOT / "config", tmp_path / "config")
    (tmp_path / "config/recipes/mine.yaml").write_text(text)
    sources = [("config.yaml", {"recipe": "mine"})]
    if not message:
        assert Configuration(sources, tmp_path).model("eng").train.seed == 7
        return
    with pytest.raises(UserError) as error:
        Configuration(sources, tmp_path).model("eng")
    assert message in str(error.value)


def test_a_recipe_that_an_experiment_varies_is_left_out_there():
    grid = {"base": "eng", "vary": {"recipe": ["published", "tuned"]}}
    made = configuration({"preset": "gpt2_30m", "experiments": {"both": grid}})
    with pytest.raises(UserError, match=r"leave tuned out of what the experiment varies$"):
        [made.model(name) for name in made.batches["both"]]


@pytest.mark.parametrize(
    ("train", "warning"),
    [
        ({}, ""),
        ({"epochs": 2}, "train.epochs = 2 of model eng: config/recipes/tuned.yaml is for at least 5;"),
        ({"epochs": 2, "max_steps": 9}, ""),
        ({"recipe": "tuned_once"}, "train.epochs = 10 of model eng: config/recipes/tuned_once.yaml is for at most 1;"),
        ({"recipe": "tuned_once", "epochs": 0.5}, ""),
        ({"optimizer": "lamb"}, "train.learning_rate and train.weight_decay still come from config/recipes/tuned.yaml"),
        ({"optimizer": "lamb", "learning_rate": 0.01}, "of model eng: train.weight_decay still come"),
        ({"optimizer": "lamb", "learning_rate": 0.01, "weight_decay": 0.1}, ""),
    ],
)
def test_what_a_recipe_was_not_measured_with_is_a_warning(caplog, train, warning):
    resolve._warn.cache_clear()
    train = {"epochs": 10} | train
    configuration({"preset": "tiny", "recipe": train.pop("recipe", "tuned"), "train": train}).model("eng")
    said = [record.getMessage() for record in caplog.records if "recipe" in record.getMessage()]
    assert len(said) == bool(warning) and warning in "".join(said)
