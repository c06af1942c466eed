"""What `train.precision: auto` is on a device."""

import pytest
import torch

from babelmill.runtime import cost
from babelmill.runtime.cost import precision_of
from babelmill.training.kernels.compilation import fast_in_bf16

AVX512 = "fma avx2 avx512f avx512dq avx512bw avx512vl"


@pytest.mark.parametrize(
    ("processor", "precision"),
    [
        (f"model name : A\nflags\t\t: {AVX512} avx512_bf16\n", "bf16"),
        (f"flags : {AVX512} amx_bf16 amx_tile\n", "bf16"),
        (f"flags : {AVX512}\n", "fp32"),
        ("flags : fma avx2\n", "fp32"),
        ("Features : fp asimd bf16\n", "fp32"),
        (None, "fp32"),
    ],
    ids=["AVX-512 BF16", "AMX", "AVX-512", "AVX2", "ARM", "no Linux"],
)
def test_a_processor_trains_in_bf16_if_it_has_instructions_for_it(tmp_path, monkeypatch, processor, precision):
    monkeypatch.setattr(cost, "CPU_INFO", tmp_path / "cpuinfo")
    if processor:
        cost.CPU_INFO.write_text(processor)
    fast = fast_in_bf16(torch.device("cpu"))
    assert precision_of("auto", fast) == precision
    assert [precision_of(asked, fast) for asked in ("bf16", "fp32")] == ["bf16", "fp32"], "what is asked for runs"


@pytest.mark.parametrize("supported", [True, False])
def test_a_gpu_trains_in_bf16_if_it_does_not_emulate_it(tmp_path, monkeypatch, supported):
    """Whatever the processor beside it is."""
    monkeypatch.setattr(cost, "CPU_INFO", tmp_path / "cpuinfo")
    cost.CPU_INFO.write_text("flags : fma avx2\n" if supported else f"flags : {AVX512} avx512_bf16\n")
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: supported or including_emulation
    )
    assert fast_in_bf16(torch.device("cuda")) is supported
