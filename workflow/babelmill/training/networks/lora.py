"""Add low-rank adapters (LoRA, Hu et al. 2021, arXiv:2106.09685) to a frozen transformers model, with peft.

Every linear layer except the output matrix gets an adapter. Only the adapters are trained, so checkpoints, averages and
results hold only the adapters. The frozen weights are read from the source model (`model.source`) at each start.
"""

import torch
from torch import nn

FACTORS = (".lora_A.default.weight", ".lora_B.default.weight")


def add_adapters(model: nn.Module, rank: int, alpha: int, dtype: torch.dtype | None = None) -> None:
    """Freeze a model and put adapters beside its linear layers. Their second factor is 0, so they change nothing yet.

    The frozen weights are converted to `dtype`, if one is given.

    The adapters get values even if the model has none yet (on the meta device). peft itself would leave them without.
    """
    from peft import LoraConfig, inject_adapter_in_model  # takes seconds
    from peft.tuners.lora import LoraLayer

    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear"), model)
    for module in model.modules():
        if isinstance(module, LoraLayer):
            if next(module.lora_A.parameters()).is_meta:
                module.lora_A.to_empty(device="cpu")
                module.lora_B.to_empty(device="cpu")
            module.reset_lora_parameters("default", True)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith(FACTORS))
        if dtype is not None and not parameter.requires_grad:
            parameter.data = parameter.data.to(dtype)
