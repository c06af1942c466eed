"""What `train.precision: auto` is on a device."""

import pytest
import torch

from babelmill.runtime import cost
from babelmill.runtime.cost import precision_of
from babelmill.training.kernels.compilation import fast_in_bf16

AVX512 = "fma avx2 avx512f avx512dq avx512bw avx512vl"


@pytest.mark.parametrize(
    ("device", "processor", "precision"),
    [
        ("cpu", f"model name : A\nflags\t\t: {AVX512} avx512_bf16\n", "bf16"),
        ("cpu", f"flags : {AVX512} amx_bf16 amx_tile\n", "bf16"),
        ("cpu", f"flags : {AVX512}\n", "fp32"),
        ("cpu", "flags : fma avx2\n", "fp32"),
        ("cpu", "Features : fp asimd bf16\n", "fp32"),
        ("cpu", None, "fp32"),  # no Linux
        ("cuda", "flags : fma avx2\n", "bf16"),
        ("cuda", f"flags : {AVX512} avx512_bf16\n", "fp32"),
    ],
)
def test_a_device_trains_in_bf16_if_it_has_instructions_for_it(tmp_path, monkeypatch, device, processor, precision):
    """A GPU does if it does not emulate bf16, whatever the processor beside it is."""
    monkeypatch.setattr(cost, "CPU_INFO", tmp_path / "cpuinfo")
    if processor:
        cost.CPU_INFO.write_text(processor)
    supported = (precision == "bf16") == (device == "cuda")
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: supported or including_emulation
    )
    fast = fast_in_bf16(torch.device(device))
    assert precision_of("auto", fast) == precision
    assert [precision_of(asked, fast) for asked in ("bf16", "fp32")] == ["bf16", "fp32"], "what is asked for runs"
