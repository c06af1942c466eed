"""Attention: the implementations agree with each other and with the formula, and masks mean what they say."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from babelmill.model.attention import attention, position_buckets, visible
from babelmill.training.kernels.compilation import scoring_device
from babelmill.training.kernels.dropout import CPUAttention, KeyedAttention, Keys, OneHotAttention

MODES = ["plain", "sdpa", "cpu", "one-hot"]


def attend(implementation, *tensors, seen, **options):
    """Return what an implementation returns. "cpu" and "one-hot" are the trainer's; "cpu" is used if a gradient is wanted."""
    if kind := {"cpu": CPUAttention, "one-hot": OneHotAttention}.get(implementation):
        assert tensors[0].requires_grad
        keys = Keys(0, torch.device("cpu"))
        keys.rows = torch.arange(len(tensors[0]), dtype=torch.int32)
        return kind(1, keys)(*tensors, visible=seen, **options)
    return attention(*tensors, seen, **options, implementation=implementation)


def tensors(queries=19, keys=19, batch=2, heads=3, size=8, requires_grad=True):
    generator = torch.Generator().manual_seed(0)
    shapes = [(batch, heads, queries, size), *[(batch, heads, keys, size)] * 2, *[(heads, 63, size)] * 2]
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_(requires_grad) for shape in shapes
    ]


def formula(query, key, value, query_table, key_table, buckets, allowed):
    """The definition, one query and key at a time."""
    context = torch.zeros_like(query)
    for b, n, i in torch.cartesian_prod(*map(torch.arange, query.shape[:3])).tolist():
        keys = [j for j in range(key.size(2)) if allowed[b, 0, i, j]]
        if not keys:
            continue
        q, k = query[b, n, i], key[b, n, keys]
        bucket = buckets[i, keys]
        scores = (k @ q + key_table[n, bucket] @ q + (k * query_table[n, bucket]).sum(-1)) / math.sqrt(3 * q.numel())
        context[b, n, i] = scores.softmax(0) @ value[b, n, keys]
    return context


@pytest.mark.parametrize("implementation", MODES)
@pytest.mark.parametrize("queries", [19, 1, 4])
def test_equals_the_formula(implementation, queries):
    """All positions at once, and a few new ones after cached ones."""
    inputs = tensors(queries=queries)
    buckets = position_buckets(queries, 19, 32, 512)
    allowed = torch.rand(2, 1, queries, 19, generator=torch.Generator().manual_seed(1)) < 0.6
    context, _ = attend(implementation, *inputs, buckets, seen=visible(allowed, torch.float64))
    torch.testing.assert_close(context, formula(*inputs, buckets, allowed), rtol=0, atol=1e-12)


@pytest.mark.parametrize("implementation", MODES)
def test_gradients_are_those_of_autograd(implementation):
    """Checked by finite differences; one query may attend to nothing."""
    inputs = tensors(queries=5, keys=5, batch=1, heads=2, size=4)
    buckets = position_buckets(5, 5, 32, 512)
    allowed = torch.ones(1, 1, 5, 5, dtype=torch.bool).tril()
    allowed[:, :, 2] = False

    def run(*inputs):
        return attend(implementation, *inputs, buckets, seen=visible(allowed, torch.float64))[0]

    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)
    if implementation == "plain":
        assert torch.autograd.gradgradcheck(run, inputs, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("implementation", MODES)
def test_half_precision(implementation, dtype):
    """Near the exact result, and zeros (no NaN) for a query without keys, in types with few digits or a small range."""
    inputs = tensors()
    allowed = torch.ones(1, 1, 19, 19, dtype=torch.bool).tril()
    allowed[:, :, 4] = False
    buckets = position_buckets(19, 19, 32, 512)
    exact, _ = attention(*inputs, buckets, visible(allowed, torch.float64), implementation="plain")
    inputs = [tensor.to(dtype) for tensor in inputs]
    context, _ = attend(implementation, *inputs, buckets, seen=visible(allowed, dtype))
    assert context.dtype == dtype
    assert (context[:, :, 4] == 0).all()
    assert (context - exact).abs().max() < 0.05


class Names(TorchDispatchMode):
    """Collects the names of the operations that PyTorch runs."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.add(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(("implementation", "adds"), [("one-hot", False), ("plain", True)])
def test_one_hot_products_add_nothing_at_an_address_that_others_add_to(implementation, adds):
    """On a GPU, such additions are atomic: slow, and in another order in each run."""
    inputs, everything = tensors(), torch.ones(1, 1, 19, 19, dtype=torch.bool)
    with Names() as names:
        buckets, seen = position_buckets(19, 19, 32, 512), visible(everything, torch.float64)
        attend(implementation, *inputs, buckets, seen=seen, dropout=0.1)[0].sum().backward()
    assert "bmm" in names.seen and ("scatter_add" in names.seen) == adds
    assert adds or not [name for name in names.seen if "scatter" in name or "index_" in name]


def test_the_faster_versions_drop_what_the_formula_drops():
    keys, inputs = Keys(0, torch.device("cpu")), tensors()
    keys.rows = torch.tensor([5, -7], dtype=torch.int32)
    seen = visible(torch.ones(1, 1, 19, 19, dtype=torch.bool).tril(), torch.float64)
    gradient, found = torch.randn(2, 3, 19, 8, dtype=torch.float64), []
    for kind in (KeyedAttention, OneHotAttention, CPUAttention):
        values = kind(4, keys)(*inputs, position_buckets(19, 19, 32, 512), visible=seen, dropout=0.3)[0]
        found.append([values, *torch.autograd.grad(values, inputs, gradient)])
    for wanted, *others in zip(*found, strict=True):
        for got, most in zip(others, (1e-12, 1e-6), strict=True):  # a CPU's scale has more digits than the formula's
            torch.testing.assert_close(got, wanted, rtol=0, atol=most)


def test_scores_on_a_gpu_are_not_computed_by_cudnn(monkeypatch):
    """PyTorch would prefer it on an H100; the switch exists in builds without CUDA, too."""
    asked, products = [], torch.backends.cuda.matmul
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", asked.append)
    monkeypatch.setattr(products, "allow_bf16_reduced_precision_reduction", True)
    for available, device in ((False, "cpu"), (True, "cuda")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda available=available: available)
        assert scoring_device().type == device and asked == [False] * available
    assert not products.allow_bf16_reduced_precision_reduction
