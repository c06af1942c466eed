"""Define the interface of an architecture: how to export its trained network, and how to prove the export equal to it.

`ARCHITECTURES` in `hub_folder.py` has an entry for each architecture; config.json beside the trained weights names it.
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
    """Holds the folders from which an export is made.

    Attributes:
        model: the folder with weights and config.json from the stage `train`.
        tokenizer: the folder with tokenizer.json.
        frozen: the weights on which adapters were trained, if the model has adapters.
        shards: folders with validation text for the proof. If there are none, the proof uses random tokens.
    """

    model: Path
    tokenizer: Path
    shards: list[Path]
    frozen: Path | None = None


class Case(NamedTuple):
    """Describes one comparison of a proof.

    Attributes:
        auto_class: the class of transformers that loads the folder.
        mode: the mode in which the networks compute, such as the attention "causal" or "bidirectional".
        settings: settings that override config.json.
        trained, exported: the positions that score the same tokens in the trained and in the exported model.
    """

    auto_class: str
    mode: str
    settings: Mapping[str, Any] = {}
    trained: slice = slice(None)
    exported: slice = slice(None)

    def __str__(self) -> str:
        return ", ".join([self.mode, *(f"{name} {value}" for name, value in self.settings.items())])


class Architecture(ABC):
    """Defines what the export needs from an architecture."""

    @abstractmethod
    def write(self, folder: Path, inputs: ExportInputs, export: Export) -> list[str]:
        """Write the code, the weights of all variants and config.json. Return the names of the files."""

    @abstractmethod
    def trained(self, model: Path, variant: str, frozen: Path | None = None) -> nn.Module:
        """Return the network as it was trained, in evaluation mode, from the folder of the stage `train`.

        For `frozen`, see `ExportInputs`.
        """

    @abstractmethod
    def logits(self, trained: nn.Module, row: torch.Tensor, mode: str) -> torch.Tensor:
        """Return the logits [1, T, V] of a trained network for a document [1, T]."""

    def exported_logits(self, exported: nn.Module, row: torch.Tensor, mode: str) -> torch.Tensor:
        """Return the logits [1, T, V] of an exported model for a document [1, T]."""
        return exported(row, attention_mask=torch.ones_like(row)).logits

    @abstractmethod
    def cases(self, model: Path) -> list[Case]:
        """Return the comparisons that a proof has to make."""
