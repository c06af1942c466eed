"""Adapters on a frozen model: what is trained and kept, and the merged weights of the export."""

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from babelmill.config.schema import Export
from babelmill.core.files import write_json
from babelmill.release.folder.hub_folder import ExportInputs, TransformersFolder
from babelmill.release.folder.loading import load
from babelmill.release.folder.prove import check_differences, compare_variant, random_rows
from babelmill.training.networks.source_weights import load_weights
from helpers.models.transformers_models import KINDS, network, train_section
from helpers.training.training_data import VOCABULARY

RANK = {"lora_rank": 2, "lora_alpha": 6}


@pytest.mark.parametrize("kind", KINDS)
def test_the_merged_weights_are_the_trained_model(kind, tmp_path):
    """Adapters alone are trained and kept. Merged, the scores are the same, in a folder that any program loads."""
    other = train_section(kind, seed=3)
    base, model, out = tmp_path / "base.safetensors", tmp_path / "model", tmp_path / "export"
    save_file({name: value.clone() for name, value in network(kind, train=other).weights().items()}, base)
    made, before = network(kind, train=train_section(kind, **RANK), loaded=True), load_file(base)
    load_weights(base, made)
    assert made.weights().keys() == made.trained().keys() and all("lora_" in name for name in made.weights())
    assert sum(p.numel() for p in made.trained().values()) < made.parameters / 2
    frozen = {n.replace(".base_layer.", "."): p for n, p in made.model.named_parameters() if not p.requires_grad}
    assert all(torch.equal(value.full_tensor(), before[name]) for name, value in frozen.items())
    assert made.config["adapter"] == {"rank": 2, "alpha": 6} and "lora" not in str(made.config["config"])

    generator = torch.Generator().manual_seed(3)
    for parameter in made.trained().values():  # at first, they change nothing of the model
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    model.mkdir()
    save_file({name: value.clone() for name, value in made.weights().items()}, model / "model.safetensors")
    write_json(model / "config.json", made.config)
    out.mkdir()
    architecture, inputs = TransformersFolder(), ExportInputs(model, model, [], base)
    architecture.write(out, inputs, Export(variants=["main"], default_variant="main"))
    trained, rows = architecture.trained(inputs, "main"), random_rows(VOCABULARY.size, 32)
    ((case, found),) = compare_variant(architecture, inputs, (out, None), "main", rows)
    check_differences(kind, found)
    exported = load(getattr(transformers, case.auto_class), out, None)
    for module in trained.modules():
        if hasattr(module, "unmerge"):
            module.unmerge()
    with torch.no_grad():
        wanted = architecture.logits(trained, rows[-1], "")
        torch.testing.assert_close(exported(rows[-1]).logits, wanted, atol=1e-5, rtol=1e-5)
    assert any(not torch.equal(value, before[name]) for name, value in load_file(out / "model.safetensors").items())
