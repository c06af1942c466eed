"""`model.source`: what it may name, what follows from it for the configuration and the settings of all stages."""

import json
import os
from pathlib import Path

import pytest

from babelmill.commands.plan import plan, size_of_model
from babelmill.config.models import SHAPE
from babelmill.config.resolve import Configuration
from babelmill.core.files import UserError, write_json
from babelmill.graph import Graph
from babelmill.stages import HERE, TrainStage
from helpers.stages import settings_of

pytestmark = pytest.mark.usefixtures("folder")

MORE = {"more": {"model": {"source": "eng"}, "train": {"epochs": 1}}}


def configuration(models: dict, **more) -> Configuration:
    return Configuration([("config.yaml", {"models": models, **more})])


def refused(models: dict, name: str = "more", stage: str = "train", **more) -> str:
    with pytest.raises(UserError) as error:
        settings_of(configuration(models, **more), name, stage)
    assert "\n" not in str(error.value) and str(error.value).startswith("config.yaml")
    return str(error.value)


def test_a_model_of_this_workflow_gives_shape_languages_tokenizer_and_weights():
    made = configuration(MORE | {"eng": {"preset": "tiny", "model": {"hidden_size": 64, "num_attention_heads": 4}}})
    assert made.languages_of("more") == ("eng",) and made.ancestors("more") == ["eng"]
    more, eng = made.model("more"), made.model("eng")
    assert {key: getattr(more.model, key) for key in SHAPE} == {key: getattr(eng.model, key) for key in SHAPE}
    assert more.preset != eng.preset, "its own preset says how long it trains, not what it is"
    asked = settings_of(made, "more", "train")
    assert asked["begin_with"] == "ema.safetensors" and asked["model"].keys() & set(SHAPE) == set()
    assert settings_of(made, "more", "tokenizer")["of_model"] == HERE
    write_json("train.json", asked)
    assert TrainStage.read(Path("train.json")).model.source == HERE
    shipped = MORE | {"eng": {"export": {"default_variant": "main"}}, "still": {"model": {"source": "more"}}}
    assert settings_of(configuration(shipped), "more", "train")["begin_with"] == "model.safetensors"
    assert configuration(shipped).ancestors("still") == ["more", "eng"]


def test_what_is_said_of_models_in_general_is_no_contradiction():
    made = configuration(MORE | {"eng": {"model": {"hidden_size": 96}}}, model={"hidden_size": 192})
    assert made.model("more").model.hidden_size == 96


def test_a_folder_counts_by_its_content():
    Path("theirs").mkdir()
    for name in ("config.json", "model.safetensors", "notes.txt"):
        Path("theirs", name).write_text("{}")
    models = {"more": {"languages": ["eng"], "model": {"source": "./theirs", "hidden_size": 64}}}
    first = settings_of(configuration(models), "more", "base_model")
    assert (first["sources"]["./theirs"]["files"], first["sources"]["./theirs"]["bytes"]) == (2, 4)
    assert first["shape"] == {"hidden_size": 64} and first["source"] is None
    os.utime("theirs/model.safetensors", (1, 1))
    Path("theirs/notes.txt").write_text("other")
    assert settings_of(configuration(models), "more", "base_model") == first, "touching reruns nothing"
    Path("theirs/model.safetensors").write_text("[]")
    assert settings_of(configuration(models), "more", "base_model") != first
    Path("theirs/config.json").unlink()
    assert "'./theirs' of model more: has no config.json" in refused(models, stage="base_model")
    models["more"]["model"]["source"] = "./nothing"
    assert "'./nothing' of model more: no such folder" in refused(models, stage="base_model")


def test_plan_counts_with_the_shape_of_the_source():
    models = MORE | {"eng": {"model": {"hidden_size": 96}, "tokenizer": {"vocab_size": 500}}}
    made = configuration(models | {"other": {"languages": ["eng"], "model": {"source": "./theirs"}}})
    graph = Graph(made)
    costs = {name: plan(graph, name, 1, "H100")[0] for name in ("eng", "more")}
    assert costs["more"]["parameters"] == costs["eng"]["parameters"] and costs["more"]["FLOPs"] < costs["eng"]["FLOPs"]
    with pytest.raises(UserError, match=r"models.other: model.source = './theirs' of model other: no such folder"):
        size_of_model(graph, "other")
    Path("theirs").mkdir()
    shape = json.loads(made.model("eng").model.model_dump_json())
    write_json("theirs/config.json", {key: shape[key] for key in SHAPE} | {"vocab_size": 700})
    assert size_of_model(graph, "other").output == 96 * (96 + 700)
    write_json("theirs/config.json", {"hidden_size": 96, "vocab_size": 700})
    with pytest.raises(UserError, match=r"^other: model.source = './theirs': its config.json is of another model$"):
        size_of_model(graph, "other")
