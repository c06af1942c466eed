"""Write adapters in the form that peft loads, into a folder inside the exported one. Users add them to the base model.

The adapters must not be in the exported folder itself: an `adapter_config.json` there would make `from_pretrained`
load the base model.
"""

from pathlib import Path
from typing import Any

from babelmill.core.files import UserError
from babelmill.runtime.checkpoint import SavedTensors, write_tensors

FOLDER = "adapter"
PREFIX = "base_model.model."  # peft puts it before the names of weights in its files


def write_adapter(folder: Path, adapters: Path, adapter: dict[str, int], base: dict[str, Any]) -> list[str]:
    """Write the folder of adapters.

    Args:
        folder: the folder in which to create it.
        adapters: the file with the adapters' weights from the stage `train`.
        adapter: the adapters' rank and alpha.
        base: what is known about the model that they were trained on: `repository` and `commit`, or a name.

    Returns:
        the names of the written files, relative to `folder`.

    Raises:
        UserError: this project renamed the weights of the base, so the adapters do not fit its repository.
    """
    from peft import LoraConfig  # this also imports PyTorch and transformers

    if base.get("renamed"):
        raise UserError(
            f"export.adapter: the weights of {base['name']} have new names here, those of {base['renamed']}, so no"
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
