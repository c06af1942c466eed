"""The model: equal to the published implementation's numbers, of the published size, and causal where it says so."""

import json

import pytest
import torch
from safetensors import safe_open
from torch.nn import functional as F

from babelmill.model.attention import position_buckets
from babelmill.model.gpt_bert import GPTBert, GPTBertShape, training_mask
from babelmill.runtime.processes import Processes
from babelmill.training.kernels.dropout import Keys
from babelmill.training.kernels.install import install
from helpers import DATA

GOLDEN = DATA / "gpt_bert_tiny.safetensors"
SIZES = {  # vocabulary, width, inner width, heads; parameters of GPT-BERT and of LTG-BERT
    "small": (8192, 384, 1280, 6, 29_892_164, 28_117_760),
    "base": (16384, 768, 2560, 12, 119_454_532, 112_367_104),
    "multilingual": (32768, 768, 3072, 12, 146_209_604, 139_122_176),
}


@pytest.fixture(scope="module")
def golden():
    with safe_open(GOLDEN, "pt") as file:
        config = GPTBertShape(**json.loads(file.metadata()["config"]))
        return config, {name: file.get_tensor(name) for name in file.keys()}


def group(tensors, prefix):
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


@pytest.fixture
def model(golden):
    config, tensors = golden
    model = GPTBert(config).double()
    model.load_state_dict(group(tensors, "weight."), strict=True)
    return model


def tiny(**changes):
    torch.manual_seed(0)
    shape = dict(vocab_size=50, hidden_size=24, intermediate_size=40, num_attention_heads=3, num_hidden_layers=3)
    return GPTBert(GPTBertShape(**shape | changes))


@pytest.mark.parametrize("implementation", ["by hand", "sdpa", "plain"])
def test_equals_the_published_implementation(golden, model, implementation):
    """Hidden states, logits, loss, z-loss and every gradient of a batch with padding, segments and both objectives."""
    _, tensors = golden
    if implementation == "by hand":
        cpu = torch.device("cpu")
        install(model, Keys(0, cpu), Processes(0, 1, 1, cpu), "fp32")
        implementation = "sdpa"
    allowed = training_mask(tensors["segments"], tensors["causal"])
    hidden = model.encode(tensors["input_ids"], allowed, implementation)
    torch.testing.assert_close(hidden, tensors["hidden"], rtol=0, atol=1e-9)

    labels = tensors["labels"].T  # the published implementation is time-major
    logits = model.logits(hidden.transpose(0, 1)[labels != -100])
    torch.testing.assert_close(logits, tensors["logits_time_major"], rtol=0, atol=1e-9)

    loss = F.cross_entropy(logits, labels[labels != -100])
    z_loss = logits.logsumexp(-1).square().mean()
    torch.testing.assert_close(loss[None], tensors["loss"], rtol=0, atol=1e-9)
    torch.testing.assert_close(z_loss[None], tensors["z_loss"], rtol=0, atol=1e-9)

    (loss + 1e-4 * z_loss).backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    expected = group(tensors, "grad.")
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=0, atol=1e-9, msg=lambda text, n=name: f"{n}: {text}")


def test_position_buckets_are_the_published_ones(golden):
    _, tensors = golden
    buckets = position_buckets(512, 512, 32, 512)
    ours = torch.cat([buckets[0].flip(0), buckets[1:, 0]])  # distances -511 .. 511
    assert tensors["bucket_distance"].tolist() == list(range(-511, 512))
    assert ours.tolist() == tensors["bucket_index"].tolist()


@pytest.mark.parametrize("size", SIZES)
def test_parameter_counts(size):
    vocabulary, width, inner, heads, gpt_bert, ltg_bert = SIZES[size]
    for switches, count in [({}, gpt_bert), ({"gate": False, "layer_mixing": False}, ltg_bert)]:
        with torch.device("meta"):
            model = GPTBert(GPTBertShape(vocabulary, width, inner, heads, 12, **switches))
        assert sum(parameter.numel() for parameter in model.parameters()) == count


def test_layer_mixing_is_its_formula():
    """x_j = sum of M[j, i] h_i, with gradients, and gradients of these, of all that goes in.

    Eleven rows are two blocks of the sums, each read by all later ones.
    """
    mixing = tiny(num_hidden_layers=5).double().transformer.dwa_modules
    for alpha in mixing.alphas:
        torch.nn.init.normal_(alpha, std=0.3)
    inputs = [torch.randn(1, 1, 2, dtype=torch.float64, requires_grad=True) for _ in range(11)]

    def mix(hidden, *changes):
        x, add = mixing.start(hidden)
        xs = [x, *(x := add(x, change) for change in changes)]
        assert all(x.untyped_storage().nbytes() == x.nbytes for x in xs), "none keeps the other sums in memory"
        return torch.stack(xs)

    rows, xs = [inputs[0]], [inputs[0]]
    for alpha, change in zip(mixing.alphas, inputs[1:], strict=True):
        rows.append(xs[-1] + change)
        xs.append(sum(a * row for a, row in zip(alpha, rows, strict=True)))
    torch.testing.assert_close(mix(*inputs), torch.stack(xs))
    assert torch.autograd.gradcheck(mix, inputs) and torch.autograd.gradgradcheck(mix, inputs)
    weights = list(mixing.alphas)
    found, wanted = (torch.autograd.grad(x.pow(2).sum(), weights) for x in (mix(*inputs), torch.stack(xs)))
    torch.testing.assert_close(found, wanted)
