"""Adapters on a frozen model: what is trained and kept, and the merged weights of the export."""

import json
from types import SimpleNamespace

import pytest
import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file, save_file

from babelmill.core.files import UserError, write_json
from babelmill.release.folder.adapters import write_adapter, write_merged
from babelmill.release.folder.architectures import ExportInputs, TransformersFolder, hub_config
from babelmill.release.folder.loading import load
from babelmill.release.folder.prove import check_differences, compare_variant, random_rows
from babelmill.training.networks.loss import loss
from babelmill.training.networks.source_weights import load_weights
from helpers.models.transformers_models import ALONE, KINDS, batch_of, network, train_section
from helpers.training.training_data import VOCABULARY

RANK = {"lora_rank": 2, "lora_alpha": 6}


@pytest.fixture
def begun(tmp_path):
    """Make a network with adapters on the weights of another one."""

    def begin(kind: str, processes=ALONE, **train):
        base = tmp_path / "base.safetensors"
        if not base.is_file():
            plain = network(kind, train=train_section(kind, seed=3))
            save_file({name: value.clone() for name, value in plain.weights().items()}, base)
        made = network(kind, processes, train_section(kind, **RANK, **train), loaded=True)
        load_weights(base, made)
        return made, base

    return begin


def change(made) -> None:
    """Change the adapters, as training does: at first, they change nothing of the model."""
    generator = torch.Generator().manual_seed(3)
    for parameter in made.trained().values():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)


@pytest.mark.parametrize("kind", KINDS)
def test_adapters_alone_are_trained_and_kept(kind, begun, tmp_path):
    made, base = begun(kind)
    plain = load_file(base)
    assert made.weights().keys() == made.trained().keys() and all("lora_" in name for name in made.weights())
    assert sum(p.numel() for p in made.trained().values()) < made.parameters / 2
    frozen = {n.replace(".base_layer.", "."): p for n, p in made.model.named_parameters() if not p.requires_grad}
    assert all(torch.equal(value.full_tensor(), plain[name]) for name, value in frozen.items())
    assert made.config["adapter"] == {"rank": 2, "alpha": 6} and "lora" not in str(made.config["config"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_merged_weights_are_the_trained_model(kind, begun, tmp_path):
    """Written from files, and merged by peft: the same; and the same scores as with adapters that are not merged."""
    made, base = begun(kind)
    change(made)
    model, out = tmp_path / "model", tmp_path / "export"
    model.mkdir()
    save_file({name: value.clone() for name, value in made.weights().items()}, model / "model.safetensors")
    write_json(model / "config.json", made.config)
    write_merged(out / "model.safetensors", base, model / "model.safetensors", made.config)
    write_json(out / "config.json", hub_config(made.config))
    architecture = TransformersFolder()
    trained, rows = architecture.trained(model, "main", base), random_rows(VOCABULARY.size, 32)
    ((case, found),) = compare_variant(architecture, ExportInputs(model, model, [], base), (out, None), "main", rows)
    check_differences(kind, found)
    exported = load(getattr(transformers, case.auto_class), out, None)
    row = rows[-1]
    for module in trained.modules():
        if hasattr(module, "unmerge"):
            module.unmerge()
    with torch.no_grad():
        wanted = architecture.logits(trained, row, "")
        torch.testing.assert_close(exported(row).logits, wanted, atol=1e-5, rtol=1e-5)
        before = load_file(base)
        assert any(not torch.equal(value, before[name]) for name, value in load_file(out / "model.safetensors").items())


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_adapters_begin_alike_whether_the_frozen_weights_were_drawn_or_not(kind):
    drawn, read = (
        network(kind, train=train_section(kind, **RANK), loaded=loaded).trained() for loaded in (False, True)
    )
    assert all(torch.equal(value, read[name]) for name, value in drawn.items())
    assert all(bool(value.any()) == ("lora_A" in name) for name, value in read.items())


def test_the_frozen_weights_are_bf16_where_the_precision_is(begun, tmp_path):
    made, _ = begun("llama", precision="bf16")
    types = {p.dtype for p in made.model.parameters() if not p.requires_grad}
    assert types == {torch.bfloat16} and {p.dtype for p in made.trained().values()} == {torch.float32}
    loss, _ = made.forward(batch_of("llama", tmp_path)[2], 2)
    loss.backward()
    made.gradients.reduce()
    assert any(p.grad is not None and p.grad.norm() > 0 for p in made.trained().values())


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_adapters_are_those_that_peft_loads(kind, begun, tmp_path):
    """From their folder onto the model that they were trained on: the merged model."""
    made, base = begun(kind)
    change(made)
    saved = tmp_path / "model.safetensors"
    save_file({name: value.clone() for name, value in made.weights().items()}, saved)
    known = {"name": "owner/name", "repository": "owner/name", "commit": "c" * 40}
    files = write_adapter(tmp_path, saved, made.config["adapter"], known)
    assert sorted(files) == sorted(f"adapter/{path.name}" for path in (tmp_path / "adapter").iterdir())
    config = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["revision"]) == ("owner/name", "c" * 40)
    write_json(tmp_path / "base/config.json", hub_config(made.config))
    base.rename(tmp_path / "base/model.safetensors")
    write_merged(tmp_path / "merged/model.safetensors", tmp_path / "base/model.safetensors", saved, made.config)
    write_json(tmp_path / "merged/config.json", hub_config(made.config))
    auto_class = getattr(transformers, made.config["auto_class"])
    found = PeftModel.from_pretrained(auto_class.from_pretrained(tmp_path / "base"), tmp_path, subfolder="adapter")
    merged = auto_class.from_pretrained(tmp_path / "merged").eval()
    row = torch.arange(5, 25)[None]
    with torch.no_grad():
        torch.testing.assert_close(found.eval()(row).logits, merged(row).logits, atol=1e-5, rtol=1e-5)
    with pytest.raises(UserError, match="have new names here, those of EuroBERT"):
        write_adapter(tmp_path / "other", saved, made.config["adapter"], known | {"renamed": "EuroBERT"})


def test_a_frozen_output_layer_gets_no_gradient():
    """And features the one that they have with a layer that learns."""
    tensors = torch.randn(7, 4), torch.randn(9, 4), torch.randn(9)
    gradients = []
    for learns in (True, False):
        features, matrix, bias = (t.clone().requires_grad_(learns or i == 0) for i, t in enumerate(tensors))
        weights = torch.ones(7)
        batch = SimpleNamespace(targets=torch.arange(7), weights=weights, groups=torch.zeros(7).long(), importance=None)
        loss(features, matrix, bias, batch, 1e-4, 1)[0].backward()
        assert (matrix.grad is not None) == (bias.grad is not None) == learns
        gradients.append(features.grad)
    assert torch.equal(*gradients)
