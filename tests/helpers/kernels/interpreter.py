"""Let Triton's interpreter compute in bfloat16 as GPUs do, in less time, and find what is read or written outside of tensors.

Import this before the kernels run.

The interpreter holds a bfloat16 as the integer of its bits. It multiplies matrices of these integers, and takes an
integer for the bits when it converts it; and it rounds a float32 towards 0.

It spends much time on what is not needed here. It puts its own functions in the place of Triton's at each call of a function
in a kernel; once per launch is enough. It computes whether sums of integers are too large, and ignores the answer unless it
debugs. It makes a table of all types each time that it needs NumPy's name of one.
"""

import functools
from types import ModuleType
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

ROOM = 2**15  # numbers before and after each tensor: more than a tile of rows

_patch, _restore = interpreter._patch_lang, interpreter._LangPatchScope.restore
_patched: set[int] = set()  # the modules for which this was done since the launch began
_truncated = InterpreterBuilder.create_fp_trunc
_type_of_numbers = functools.cache(interpreter._get_np_dtype)
_converted = InterpreterBuilder.create_si_to_fp


def _type_in_numpy(kind: Any) -> np.dtype:
    return np.dtype(np.uint64) if kind.scalar.is_ptr() else _type_of_numbers(kind.scalar)


def _rounded(numbers: np.ndarray) -> np.ndarray:
    """Return the bits of the nearest bfloat16 of each float32, and of two as near the even one."""
    bits = np.ascontiguousarray(numbers, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _wide(tensor: Any) -> np.ndarray:
    """Return numbers that are not integers of bits."""
    is_bits = tensor.dtype.scalar == tl.bfloat16
    return (tensor.data.astype(np.uint32) << 16).view(np.float32) if is_bits else tensor.data


def _dot(self: Any, a: Any, b: Any, d: Any, *_: Any) -> TensorHandle:
    return TensorHandle(np.matmul(_wide(a), _wide(b), dtype=np.float32) + d.data, d.dtype.scalar)


def _convert(self: Any, source: Any, kind: Any) -> TensorHandle:
    if kind.scalar != tl.bfloat16:
        return _converted(self, source, kind)
    return TensorHandle(_rounded(source.data), tl.bfloat16)


def _truncate(self: Any, source: Any, kind: Any) -> TensorHandle:
    if (source.dtype.scalar, kind.scalar) != (tl.float32, tl.bfloat16):
        return _truncated(self, source, kind)
    return TensorHandle(_rounded(source.data), tl.bfloat16)


interpreter._get_np_dtype = _type_in_numpy
InterpreterBuilder.create_dot = _dot
InterpreterBuilder.create_ui_to_fp = InterpreterBuilder.create_si_to_fp = _convert
InterpreterBuilder.create_fp_trunc = _truncate
interpreter.interpreter_builder.options = interpreter.InterpreterOptions(sanitize_overflow=False)


def _patch_once(function: Any) -> Any:
    """Put the interpreter's functions in the place of Triton's, for all functions of a module."""
    module = id(function.__globals__)
    if module not in _patched:
        _patched.add(module)
        return _patch(function)


def _end(scope: Any) -> None:
    _patched.clear()
    _restore(scope)


interpreter._patch_lang, interpreter._LangPatchScope.restore = _patch_once, _end


class Guarded:
    """Runs a kernel on copies of its tensors, each between numbers that are not a number.

    What the kernel reads there makes its results wrong, and what it writes there is found.
    """

    def __init__(self, kernel: Any):
        self._kernel, self.arg_names = kernel, kernel.arg_names

    def __getitem__(self, grid: Any) -> Any:
        def launch(*args: Any, **more: Any) -> None:
            copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
            args, more = [_copied(arg, copies) for arg in args], {n: _copied(arg, copies) for n, arg in more.items()}
            self._kernel[grid](*args, **more)
            for whole, copy in copies.values():
                around = torch.cat([copy[:ROOM], copy[-ROOM:]])
                assert (around.isnan() if copy.is_floating_point() else around == _other(copy)).all(), "written outside"
                whole.copy_(copy[ROOM:-ROOM])

        return launch


def _other(tensor: torch.Tensor) -> float:
    return torch.nan if tensor.is_floating_point() else 2**30


def _copied(arg: Any, copies: dict[int, tuple[torch.Tensor, torch.Tensor]]) -> Any:
    """Return a tensor in a copy of its whole storage; what is no tensor remains."""
    if not isinstance(arg, torch.Tensor):
        return arg
    storage = arg.untyped_storage()
    if storage.data_ptr() not in copies:
        whole = arg.new_empty(0).set_(storage)
        copy = whole.new_full((len(whole) + 2 * ROOM,), _other(arg))
        copy[ROOM:-ROOM] = whole
        copies[storage.data_ptr()] = whole, copy
    return copies[storage.data_ptr()][1].as_strided(arg.shape, arg.stride(), ROOM + arg.storage_offset())


def guard(module: ModuleType, *kernels: str) -> None:
    """Let a module's kernels run so; new tensors are not a number, either, until something is written into them."""
    torch.use_deterministic_algorithms(True)
    for name in kernels:
        setattr(module, name, Guarded(getattr(module, name)))
