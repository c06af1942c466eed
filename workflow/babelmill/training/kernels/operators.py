"""Make functions operators of PyTorch, whose insides `torch.compile` does not look at.

`torch.library.custom_op` does this, too. But each call of such an operator takes the host some 40 us, since several
Python functions around ours handle autograd and mutations. A step calls more than a hundred of our operators. They
never need a gradient of their own (a `torch.autograd.Function` calls them), so ours take a direct way.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.library import infer_schema

NAMESPACE = "babelmill"


def operator(name: str, mutates: Sequence[str] = ()) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that makes a function on tensors the operator `torch.ops.babelmill.<name>`.

    Args:
        name: its name.
        mutates: names of arguments that the function writes to. Its results are always new tensors.
    """

    def define(function: Callable[..., Any]) -> Any:
        torch.library.define(f"{NAMESPACE}::{name}", infer_schema(function, mutates_args=mutates))
        torch.library.impl(f"{NAMESPACE}::{name}", ("cpu", "cuda"), function)
        return getattr(getattr(torch.ops, NAMESPACE), name).default

    return define


def results_of(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator for a function that returns empty tensors shaped as an operator's results, for tracing."""
    return torch.library.register_fake(f"{NAMESPACE}::{name}")
