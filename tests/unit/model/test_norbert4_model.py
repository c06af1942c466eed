"""NorBERT4: equal to the numbers of the published definition, and of the size that the plan says."""

import pytest
import torch
from torch.nn import functional as F

from babelmill.model.gpt_bert import training_mask
from babelmill.model.norbert4 import NorBERT4, NorBERT4Shape
from babelmill.training.kernels import dropout
from babelmill.training.kernels.dropout import KeyedNorBERT4Attention, Keys
from babelmill.training.networks.gpt_bert import size_of
from helpers.models.published import norbert4

NO_DROPOUT = dict.fromkeys(("embedding_dropout", "hidden_dropout", "attention_dropout"), 0.0)


@pytest.fixture(scope="module")
def golden():
    sizes, numbers = norbert4()
    return NorBERT4Shape(**sizes, **NO_DROPOUT), numbers


def tiny(**changes) -> NorBERT4:
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "hidden_size": 24, "intermediate_size": 40, "num_layers": 4, "num_attention_heads": 3}
    sizes |= {"query_key_head_size": 6, "value_head_size": 10, "max_sequence_length": 64}
    sizes |= {"local_global_ratio": 2, "local_window_length": 5, "global_window_length": 64}
    return NorBERT4(NorBERT4Shape(**sizes | NO_DROPOUT | changes))


def close(found, wanted, name=""):
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-9, msg=lambda text: f"{name}: {text}")


@pytest.mark.parametrize("mode", ["masked", "causal"])
@pytest.mark.parametrize("implementation", ["sdpa", "plain", "trained"])
def test_equals_the_published_definition(golden, mode, implementation):
    """All hidden states, scores, loss and gradients of a batch with padding, with local and global windows."""
    shape, numbers = golden
    model = NorBERT4(shape).double()
    model.load_state_dict({n.removeprefix("weight."): t for n, t in numbers.items() if n.startswith("weight.")})
    if implementation == "trained":
        dropout.install(model, Keys(0, torch.device("cpu")), KeyedNorBERT4Attention)
        implementation = "sdpa"
    length = numbers["input_ids"].size(1)
    allowed = numbers["attention_mask"][:, None, None, :].expand(-1, 1, length, length)
    states: list[torch.Tensor] = []
    model.encoder.register_forward_hook(lambda _module, _given, found: states.extend(found[0]))
    model.encode(numbers["input_ids"], allowed.tril() if mode == "causal" else allowed, implementation)
    for i, state in enumerate(states):
        close(state, numbers[f"{mode}.hidden.{i}"], f"hidden {i}")
    logits = model.logits(states[-1])
    close(logits, numbers[f"{mode}.logits"])
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), numbers[f"{mode}.labels"][:, 1:].flatten())
    close(loss[None], numbers[f"{mode}.loss"])
    loss.backward()
    for name, parameter in model.named_parameters():
        gradient = parameter.grad
        assert gradient is not None
        if gradient.ndim == 2:
            cosines = torch.arange(1, gradient.size(1) + 1, dtype=torch.float64).cos()
            close(gradient @ cosines, numbers[f"{mode}.gradient_sums.{name}"], name)
        else:
            close(gradient, numbers[f"{mode}.grad.{name}"], name)


def test_windows_and_documents():
    """A layer sees as far as its window. No layer sees another document; in causal rows, none sees what follows."""
    ids = torch.arange(40)[None].repeat(2, 1)
    segments = (torch.arange(40) >= 30).long().expand(2, -1)
    allowed = training_mask(segments, torch.tensor([True, False]))
    changed = ids.clone()
    changed[:, 20] = 45
    for layers, reach in ((1, 5), (3, 40)):  # the second layer is global
        model = tiny(num_layers=layers).eval()
        differs = (model(ids, allowed) != model(changed, allowed)).any(-1)
        assert differs[0].tolist() == [20 <= t < 30 and t <= 20 + reach for t in range(40)]
        assert differs[1].tolist() == [t < 30 and abs(t - 20) <= reach for t in range(40)]
    changed[:, 20] = ids[0, 20]
    changed[:, 35] = 45
    differs = (model(ids, allowed) != model(changed, allowed)).any(-1)
    assert differs[1].tolist() == [t >= 30 for t in range(40)]


def test_sizes():
    """The number of parameters, and of elements of matrices, as the plan calculates them without making the model."""
    model = tiny()
    counted = size_of(model.config)
    assert counted.parameters == sum(parameter.numel() for parameter in model.parameters())
    matrices = {n: p for n, p in model.named_parameters() if n.endswith(".weight") or ".weights." in n}
    of_layers = [p for n, p in matrices.items() if n.startswith("encoder.")]
    assert counted.matrices == sum(p.numel() for p in of_layers)
    assert counted.output == sum(p.numel() for n, p in matrices.items() if not n.startswith("encoder."))
