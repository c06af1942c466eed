"""Models of transformers in training: their loss, their gradients, their folders."""

import json
from dataclasses import replace

import pytest
import torch
import transformers

from babelmill.config.schema import Export
from babelmill.core.files import write_json
from babelmill.release.folder.hub_folder import ExportInputs, TransformersFolder
from babelmill.release.folder.loading import runs_code
from babelmill.release.folder.prove import check_differences, compare_variant, random_rows
from babelmill.runtime.checkpoint import write_tensors
from babelmill.training.networks.transformers_models import blocks_of, planned, read_config
from helpers.models.transformers_models import KINDS, batch_of, loss_by_document, model_section, network, train_section
from helpers.training.training_data import VOCABULARY

PADS_WITH_TEXT = replace(VOCABULARY, pad=42)  # its padding token is a token of the text


# What is proven.


@pytest.mark.parametrize("vocabulary", [VOCABULARY, PADS_WITH_TEXT], ids=["own padding", "padding of the text"])
@pytest.mark.parametrize("kind, train", [*((kind, {}) for kind in KINDS), ("eurobert", {"objective": "diffusion"})])
def test_a_batch_has_the_loss_and_gradient_of_its_documents_one_by_one(kind, train, vocabulary, tmp_path):
    """Each document of each row alone in a batch, through transformers' own forward pass, without any mask of ours.

    A token of the text is also learned where it is the padding token. There, transformers' class would drop the
    gradient, so it is told nothing of padding.
    """
    made = network(kind, train=train_section(kind, **train), vocabulary=vocabulary)
    plan, _, batch = batch_of(kind, tmp_path, **train)
    made.model.eval()
    loss, sums = made.forward(batch, 2)
    loss.backward()
    made.gradients.reduce()
    found = {name: parameter.grad.clone() for name, parameter in made.trained().items()}

    assert made.config["config"]["pad_token_id"] == vocabulary.pad
    plain = transformers.AutoConfig.for_model(**made.config["config"] | {"pad_token_id": None})
    reference = getattr(transformers, made.config["auto_class"]).from_config(plain).eval()
    reference.load_state_dict(made.weights(), strict=False)
    total, nats = loss_by_document(reference, batch)
    total.backward()
    assert len(batch.targets) > 20 and batch.segments.max() > 1
    if train:
        rows = plan.step(0).rows
        length = batch.input_ids.size(1)
        every = plan.layouts[0].targets(rows.row, length)[1]
        assert float(batch.weights.sum()) == pytest.approx(1) and (rows.stands_for == every).all()
        assert batch.importance.tolist() == pytest.approx((every / rows.targets)[batch.positions // length])
        assert (batch.input_ids.flatten()[batch.positions] == VOCABULARY.mask).all(), "hidden where they stand"
    torch.testing.assert_close(loss, total, atol=1e-6, rtol=1e-6)
    assert float(sums[:, 0].sum()) == pytest.approx(nats, rel=1e-5)
    for name, parameter in reference.named_parameters():
        wanted = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(found[name], wanted, atol=1e-6, rtol=1e-5, msg=name)
    learned = reference.get_input_embeddings().weight.grad
    assert (batch.input_ids == PADS_WITH_TEXT.pad).any() and learned[PADS_WITH_TEXT.pad].norm() > 0


@pytest.mark.parametrize("kind", KINDS)
def test_activation_checkpointing_and_bf16(kind, tmp_path):
    """With dropout: the same gradient, to the last bit, where activations are made again; nearly the same in bf16."""
    found = []
    for train in ({}, {"activation_checkpointing": True}, {"precision": "bf16"}):
        made = network(kind, train=train_section(kind, **train))
        batch = batch_of(kind, tmp_path)[2]
        made.model.train()
        torch.manual_seed(1)
        loss, _ = made.forward(batch, 2)
        loss.backward()
        made.gradients.reduce()
        found.append(torch.cat([parameter.grad.flatten() for parameter in made.trained().values()]))
    assert torch.equal(found[0], found[1])
    assert 0 < (found[2] - found[0]).norm() < 0.1 * found[0].norm()


@pytest.mark.parametrize("kind", KINDS)
def test_the_size_is_known_without_weights(kind):
    made, size = network(kind), planned(model_section(kind), train_section(kind), VOCABULARY.size)
    assert size.parameters == made.parameters
    assert made.flops(16, 32.0, 5.0) == 6 * ((size.matrices + 2 * 16 * 16 * size.num_hidden_layers) * 32 + 96 * 16 * 5)
    assert len(blocks_of(made.model)) == size.num_hidden_layers == KINDS[kind][1].get("n_layer", size.num_hidden_layers)


# Their folders.

GRANITE = "granitemoehybrid"
OF_GRANITE = {"num_local_experts": 0, "shared_intermediate_size": 32, "mamba_n_heads": 4, "mamba_d_head": 8}


@pytest.mark.parametrize("kind", [*KINDS, GRANITE])
def test_the_folder_is_the_trained_model(kind, tmp_path, monkeypatch):
    """Of both variants. The configurations of Granite 4 have an infinite number; its dense ones have only attention."""
    dense = KINDS["llama"][1] | OF_GRANITE | {"layer_types": ["attention"] * 2}
    monkeypatch.setitem(KINDS, GRANITE, ("causal", dense))
    made, model, out = network(kind), tmp_path / "model", tmp_path / "export"
    for parameter in made.trained().values():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3))
    for name, weights in (("model", made.weights()), ("ema", network(kind).weights())):
        write_tensors(model / f"{name}.safetensors", weights, {"format": "pt"})
    write_json(model / "config.json", made.config)
    out.mkdir()
    architecture, inputs = TransformersFolder(), ExportInputs(model, model, [])
    choices = {"variants": ["main", "ema"], "default_variant": "main", "logits_alignment": "mlm"}
    architecture.write(out, inputs, Export.model_validate(choices))
    for variant, named in (("main", None), ("ema", "ema")):
        for _, found in compare_variant(architecture, inputs, (out, named), variant, random_rows(VOCABULARY.size, 32)):
            check_differences(kind, found)
            assert found["rounding"] > 1e-9, "float64 is another precision"
    text = (out / "config.json").read_text()
    assert not runs_code(out) and not list(out.glob("*.py")) and "auto_map" not in text
    if kind == GRANITE:
        assert "Infinity" in text
        assert read_config(json.loads(text), "AutoModelForCausalLM", "it").time_step_limit[1] == float("inf")
