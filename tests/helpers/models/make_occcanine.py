"""Make a file like that of OccCANINE's training (`last.bin`), small and with random weights: we ship no real one.

Its names, shapes and special entries are those of the published code: CANINE under `encoder.`, a decoder of
PyTorch's own layers under `decoder.` with an entry more than symbols and a buffer of positions, a linear head under
`linear_decoder.`, and beside `model` the optimizer, the scheduler, the step, and the `key` from codes to classes.
"""

import math
from pathlib import Path

import torch
import transformers
from torch import nn

WIDTH, HEADS, LAYERS, ENTRIES = 32, 8, 3, 19
KEY = {"83110": 4, "-1": 0, "61110": 1, "2105": 2, "71105": 3}  # HISCO, an integer once: 02105


class Published(nn.Module):
    """Is the published model, written again from its description."""

    def __init__(self, config: transformers.CanineConfig, classes: int):
        super().__init__()
        self.encoder = transformers.CanineModel(config)
        self.decoder = nn.Module()
        self.decoder.token_emb = nn.Module()
        self.decoder.token_emb.embedding = nn.Embedding(ENTRIES, WIDTH)
        self.decoder.positional_encoding = nn.Module()
        angles = torch.arange(128)[:, None] * torch.exp(-torch.arange(0, WIDTH, 2) * math.log(10000) / WIDTH)
        positions = torch.zeros(128, WIDTH)
        positions[:, 0::2], positions[:, 1::2] = angles.sin(), angles.cos()
        self.decoder.positional_encoding.register_buffer("pos_embedding", positions[:, None])
        layer = nn.TransformerDecoderLayer(WIDTH, HEADS, WIDTH, 0.0)
        self.decoder.decoder = nn.TransformerDecoder(layer, LAYERS)
        self.decoder.head = nn.Linear(WIDTH, ENTRIES)
        self.linear_decoder = nn.Linear(WIDTH, classes)

    def forward(self, ids: torch.Tensor, symbols: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the scores of the classes [B, K], and of the symbols after those given [B, n, V]."""
        encoding = self.encoder(input_ids=ids, attention_mask=torch.ones_like(ids))
        given = self.decoder.token_emb.embedding(symbols.T) * math.sqrt(WIDTH)
        given = given + self.decoder.positional_encoding.pos_embedding[: len(given)]
        later = torch.ones(len(given), len(given), dtype=torch.bool).triu(1)
        found = self.decoder.decoder(given, encoding.last_hidden_state.transpose(0, 1), tgt_mask=later)
        return self.linear_decoder(encoding.pooler_output), self.decoder.head(found.transpose(0, 1))


def write(folder: Path, config: transformers.CanineConfig, key: object = KEY) -> Published:
    """Write `last.bin` and the file of an earlier step. Return the model. One of its classes has no code."""
    torch.manual_seed(3)
    model = Published(config, len(KEY) + 1).eval()
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
    for name in ("1000.bin", "last.bin"):
        torch.save(states | {"step": 1000, "key": key}, folder / name)
    return model
