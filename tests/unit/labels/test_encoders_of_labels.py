"""Encoders of transformers in a model of labels: they are proved, take a step, and are exported as they were trained."""

import pytest
import torch
import transformers
from safetensors.torch import save_file

from babelmill.core.files import write_json
from babelmill.labels.codes import Codes
from babelmill.labels.data import LabelBatch
from babelmill.labels.folder import LabelsFolder
from babelmill.labels.network import LabelsNetwork
from babelmill.release.folder.hub_folder import ExportInputs
from babelmill.release.folder.prove import check_differences, compare_variant
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training.networks.transformers_models import CLASSIFIER, make_config
from helpers.models.transformers_models import ALONE, ENDS_AND_PADS
from helpers.training.training_data import VOCABULARY, section

pytestmark = pytest.mark.slow

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
KINDS = {
    "bert": SIZES,
    "canine": SIZES | {"num_hash_buckets": 640, "local_transformer_stride": 16},
    "modernbert": SIZES | {"num_hidden_layers": 3, "local_attention": 8},
    "electra": SIZES | {"embedding_size": 16},
    "roberta": SIZES,
    "deberta-v2": SIZES | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 2},
    "llama": SIZES,
}
LABELS = section("labels", code="general", block_size=2, decoder_layers=1)


def make(kind: str, precision: str = "fp32", vocabulary: Vocabulary = VOCABULARY) -> LabelsNetwork:
    """A network of a small encoder of a kind."""
    model = section("model", architecture="transformers", config={"model_type": kind, **KINDS[kind]})
    lengths = {"sequence_lengths": [30], "phase_starts": [0.0]}
    train = section("train", objective="labels", ema_decay=0, precision=precision, **lengths)
    codes = Codes(["a", "b", "cc", "d", "e"], "general", 2)
    return LabelsNetwork(make_config(model, CLASSIFIER, vocabulary), train, LABELS, codes, 2, ALONE)


def learn(network: LabelsNetwork, ids: torch.Tensor, lengths: list[int], pad: int = 3) -> None:
    """Compute the gradient of a batch of rows of these lengths."""
    count, seen = len(ids), torch.arange(ids.size(1)) < torch.tensor(lengths)[:, None]
    blocks = torch.tensor([[[5, 3], [1, 1]], [[6, 3], [1, 1]], [[7, 7], [1, 1]], [[8, 3], [5, 3]]])[:count]
    languages = torch.zeros(count, dtype=torch.long)
    batch = LabelBatch(ids.where(seen, pad), seen, torch.eye(5)[:count], blocks, languages, (1.0, 1.0, 1.0))
    network.forward(batch, 2)[0].backward()


def step(network: LabelsNetwork) -> None:
    """Change the weights by the gradient of a small batch; its shortest row has one token."""
    learn(network, torch.randint(16, 96, (4, 24), generator=torch.Generator().manual_seed(1)), [24, 9, 3, 1])
    with torch.no_grad():
        for parameter in network.model.parameters():
            if parameter.grad is not None:
                parameter -= 0.1 * parameter.grad


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"canine", "gpt2", "llama", "roberta"}))
def test_a_token_of_the_text_is_learned_although_it_pads(kind):
    """A loss and a gradient are the same with a padding token of its own and with the token that ends texts.

    (CANINE, GPT-2, Llama and RoBERTa read the padding token's number in their forward passes.)
    """
    made = [make(kind, vocabulary=vocabulary) for vocabulary in (VOCABULARY, ENDS_AND_PADS)]
    made[1].model.load_state_dict(made[0].model.state_dict())
    ids = torch.tensor([[1, 30, 40, 50, 2], [1, 60, 2, 0, 0]])
    gradients = []
    for network, pad in zip(made, (3, 2), strict=True):
        network.model.eval()
        learn(network, ids, [5, 3], pad)
        gradients.append({n: p.grad.full_tensor() for n, p in network.model.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for name, wanted in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], wanted, atol=1e-7, rtol=1e-5, msg=name)
    words = next(name for name, wanted in gradients[0].items() if len(wanted) == VOCABULARY.size)
    assert gradients[1][words][[2, 30]].norm(dim=1).min() > 0 and not gradients[1][words][3].any()


@pytest.mark.parametrize("kind", ["bert", "canine"])
def test_it_trains_in_bf16(kind):
    network = make(kind, "bf16")
    step(network)
    gradients = {name: p.grad for name, p in network.model.named_parameters() if p.grad is not None}
    assert all(gradient.isfinite().all() for gradient in gradients.values())
    assert {"decoder.token_emb.embedding.weight", "decoder.head.weight"} < gradients.keys()


@pytest.mark.parametrize("kind", list(KINDS))
def test_it_is_proved_trained_and_exported(kind, tmp_path):
    """Rows of each length have the scores of the trained model, one token alone included; so does padded text."""
    network = make(kind)
    before = {name: value.clone() for name, value in network.weights().items()}
    step(network)
    weights = network.weights()
    assert any(not torch.equal(before[name], value) for name, value in weights.items() if name.startswith("encoder."))
    model, folder = tmp_path / "model", tmp_path / "export"
    model.mkdir()
    folder.mkdir()
    write_json(model / "config.json", network.config | VOCABULARY.ids)
    save_file({name: value.contiguous() for name, value in weights.items()}, model / "model.safetensors")
    architecture, inputs = LabelsFolder(), ExportInputs(model, tmp_path, [])
    export = section("export", variants=["main"], default_variant="main")
    architecture.write(folder, inputs, export)
    generator = torch.Generator().manual_seed(2)
    rows = [torch.randint(16, 96, (1, length), generator=generator) for length in (1, 2, 4, 7, 13, 32)]
    cases = list(compare_variant(architecture, inputs, (folder, None), "main", rows))
    assert [case.mode for case, _ in cases] == ["classes", "blocks"]
    for case, differences in cases:
        check_differences(str(case), differences)

    found = transformers.AutoModel.from_pretrained(folder, trust_remote_code=True)
    assert_same_in_a_batch(found, rows)


def assert_same_in_a_batch(model, rows: list[torch.Tensor]) -> None:
    """Texts of several lengths, together and each alone."""
    longest = max(row.size(1) for row in rows)
    ids = torch.cat([torch.nn.functional.pad(row, (0, longest - row.size(1)), value=3) for row in rows])
    seen = torch.stack([torch.arange(longest) < row.size(1) for row in rows]).long()
    for method in ("linear", "blocks"):
        together = model.predict(ids, seen, top=3, method=method)
        for row, each in zip(rows, together, strict=True):
            (alone,) = model.predict(row, torch.ones_like(row), top=3, method=method)
            assert [code for code, _ in alone.likeliest] == [code for code, _ in each.likeliest]
            chances = [[chance for _, chance in found.likeliest] for found in (alone, each)]
            assert chances[0] == pytest.approx(chances[1], rel=1e-4)
