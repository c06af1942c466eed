"""Adapters on a frozen model: what is trained and kept, and the merged weights of the export."""

from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from babelmill.config import schema
from babelmill.core.files import write_json
from babelmill.release.loading import load
from babelmill.release.merged_adapters import write_merged
from babelmill.release.prove import Comparison, check_differences, random_rows
from babelmill.release.transformers_folder import TransformersFolder, hub_config
from babelmill.training.batches import TokenStream
from babelmill.training.beginning import load_weights
from babelmill.training.layouts import Packed
from babelmill.training.objectives import objective_of
from babelmill.training.plan import Plan
from training_data import VOCABULARY, documents, write_documents
from transformers_models import ALONE, KINDS, network, train_section

RANK = {"lora_rank": 2, "lora_alpha": 6}


def batch_of(kind: str, folder: Path, train: schema.Train):
    shard = write_documents(folder / "shard.safetensors", documents(60))
    plan, objective = Plan(train, 1.0, [Packed(shard.offsets)]), objective_of(train)
    tokens = TokenStream(
        [shard], VOCABULARY, 7, torch.device("cpu"), objective, objective.kinds[0].hides and kind != "gpt2"
    )
    step = plan.step(0)
    return tokens.micro_batch(step.rows, step.length, step.weights)


@pytest.fixture
def begun(tmp_path):
    """Make a network with adapters on the weights of another one."""

    def begin(kind: str, processes=ALONE, **train):
        base = tmp_path / "base.safetensors"
        if not base.is_file():
            plain = network(kind, train=train_section(kind, seed=3))
            save_file({name: value.clone() for name, value in plain.weights().items()}, base)
        made = network(kind, processes, train_section(kind, **RANK, **train))
        load_weights(base, made)
        return made, base

    return begin


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
    generator = torch.Generator().manual_seed(3)
    for parameter in made.trained().values():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    model, out = tmp_path / "model", tmp_path / "export"
    model.mkdir()
    save_file({name: value.clone() for name, value in made.weights().items()}, model / "model.safetensors")
    write_json(model / "config.json", made.config)
    write_merged(out / "model.safetensors", base, model / "model.safetensors", made.config)
    write_json(out / "config.json", hub_config(made.config))
    architecture = TransformersFolder()
    trained, rows = architecture.trained(model, "main", base), random_rows(VOCABULARY.size, 32)
    for case in architecture.cases(model):
        exported = load(getattr(transformers, case.auto_class), out, None)
        check_differences(kind, Comparison(architecture, trained, exported).differences(rows, case))
    row = rows[-1]
    for module in trained.modules():
        if hasattr(module, "unmerge"):
            module.unmerge()
    with torch.no_grad():
        wanted = architecture.logits(trained, row, "")
        torch.testing.assert_close(exported(row).logits, wanted, atol=1e-5, rtol=1e-5)
        before = load_file(base)
        assert any(not torch.equal(value, before[name]) for name, value in load_file(out / "model.safetensors").items())


def test_the_frozen_weights_are_bf16_where_the_precision_is(begun, tmp_path):
    made, _ = begun("llama", precision="bf16")
    types = {p.dtype for p in made.model.parameters() if not p.requires_grad}
    assert types == {torch.bfloat16} and {p.dtype for p in made.trained().values()} == {torch.float32}
    batch = batch_of("llama", tmp_path, train_section("llama", **RANK, precision="bf16"))
    loss, _ = made.forward(batch, 2)
    loss.backward()
    made.gradients.reduce()
    assert any(p.grad is not None and p.grad.norm() > 0 for p in made.trained().values())
