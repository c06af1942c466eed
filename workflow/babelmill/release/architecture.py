"""How a trained network becomes a Hugging Face folder, and how that folder is proven equal to it: one interface.

`ARCHITECTURES` in `hub_folder.py` has an entry for each; config.json beside the trained weights names it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from babelmill.config.schema import Export


@dataclass(frozen=True)
class ExportInputs:
    """The folders that an export is made from.

    Attributes:
        model: weights and config.json, as the stage `train` leaves them.
        tokenizer: holds tokenizer.json.
        frozen: the weights that adapters were trained on, if the model has any.
        shards: folders with validation text for the proof; random tokens are used where there is none.
    """

    model: Path
    tokenizer: Path
    shards: list[Path]
    frozen: Path | None = None


class Case(NamedTuple):
    """A comparison of a proof.

    Attributes:
        auto_class: of transformers, which loads the folder.
        mode: "causal" or "bidirectional", the attention of the trained network.
        settings: what is laid over config.json.
        trained, exported: positions that score the same token in the trained and in the exported model.
    """

    auto_class: str
    mode: str
    settings: Mapping[str, Any] = {}
    trained: slice = slice(None)
    exported: slice = slice(None)

    def __str__(self) -> str:
        return ", ".join([self.mode, *(f"{name} {value}" for name, value in self.settings.items())])


class Architecture(ABC):
    """An architecture's side of the export."""

    @abstractmethod
    def write(self, folder: Path, inputs: ExportInputs, export: Export) -> list[str]:
        """Write code, weights of all variants and config.json; return the names of the files."""

    @abstractmethod
    def trained(self, model: Path, variant: str, frozen: Path | None = None) -> nn.Module:
        """Return the network as it was trained, in evaluation mode, from the folder of the stage `train`.

        `frozen`: see `ExportInputs`.
        """

    @abstractmethod
    def logits(self, trained: nn.Module, row: torch.Tensor, mode: str) -> torch.Tensor:
        """Return the scores [1, T, V] of a trained network for a document [1, T]."""

    def exported_logits(self, exported: nn.Module, row: torch.Tensor, mode: str) -> torch.Tensor:
        """Return the scores [1, T, V] of an exported model for a document [1, T]."""
        return exported(row, attention_mask=torch.ones_like(row)).logits

    @abstractmethod
    def cases(self, model: Path) -> list[Case]:
        """Return what a proof has to compare."""
