"""Adapters as peft loads them: a folder inside the exported one, to be put on the model that they were trained on.

It must not be the exported folder itself: an `adapter_config.json` there would make `from_pretrained` load the base.
"""

from pathlib import Path
from typing import Any

from babelmill.core.files import UserError
from babelmill.runtime.checkpoint import SavedTensors, write_tensors

FOLDER = "adapter"
PREFIX = "base_model.model."  # of the names of weights in peft's files


def write_adapter(folder: Path, adapters: Path, adapter: dict[str, int], base: dict[str, Any]) -> list[str]:
    """Write the folder of adapters.

    Args:
        folder: that it is made in.
        adapters: the file of their weights, as the stage `train` left it.
        adapter: their rank and alpha.
        base: what is known of the model that they were trained on: `repository` and `commit`, or a name.

    Returns:
        the names of its files, below `folder`.

    Raises:
        UserError: nobody has a base of these names.
    """
    from peft import LoraConfig  # with PyTorch and transformers

    if base.get("renamed"):
        raise UserError(
            f"export.adapter: the weights of {base['name']} are named here as those of {base['renamed']}, so that no"
            " adapter fits its repository; set export.adapter: none"
        )
    saved = SavedTensors(adapters)
    names = {name: PREFIX + name.replace(".default.weight", ".weight") for name in sorted(saved)}
    layers = sorted({name.partition(".lora_")[0] for name in names})
    config = LoraConfig(
        r=adapter["rank"],
        lora_alpha=adapter["alpha"],
        target_modules=layers,
        base_model_name_or_path=base.get("repository"),
        revision=base.get("commit"),
        inference_mode=True,
    )
    target = folder / FOLDER
    target.mkdir()
    config.save_pretrained(str(target))
    tensors = {peft: saved[ours] for ours, peft in names.items()}
    write_tensors(target / "adapter_model.safetensors", tensors, {"format": "pt"})
    return [f"{FOLDER}/{name}" for name in ("adapter_config.json", "adapter_model.safetensors")]
