"""Make trainers of tiny models for tests: one process's part of training, without files."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from babelmill.model.gpt_bert import GPTBertShape
from babelmill.runtime.processes import Processes
from babelmill.training.networks.gpt_bert import GPTBertNetwork
from babelmill.training.plan.plan import Plan
from babelmill.training.trainer import Trainer
from helpers.training.training_data import VOCABULARY, documents, section, stream, train_settings, write_documents

ALONE = Processes(rank=0, size=1, local_size=1, device=torch.device("cpu"))


def trainer_maker(folder: Path, prompts: bool = False) -> Callable[..., Trainer]:
    """Return a function that makes a trainer of two languages with these `train` settings, without dropout.

    `prompts`: the first third of each document is a prompt.
    """
    texts = [documents(60 >> i, seed=i) for i in range(2)]
    ends = [[len(text) // 3 for text in some] if prompts else None for some in texts]
    shards = [write_documents(folder / f"{i}.safetensors", texts[i], prompts=ends[i]) for i in range(2)]

    def make(
        dropout: float = 0.0,
        layers: int = 2,
        by_hand: bool = True,
        micro_batch_tokens: int = 64,
        network: Callable[..., GPTBertNetwork] = GPTBertNetwork,
        width: int | None = None,
        mixes: bool = True,
        **values,
    ) -> Trainer:
        train = section("train", **({"max_steps": 40, "clip_norm": 1e9, "global_batch_tokens": 320} | values))
        drops = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        model = section("model", **drops, num_hidden_layers=layers, layer_mixing=mixes)
        model = model.model_copy(update={"hidden_size": width} if width else {})
        shape = GPTBertShape(vocab_size=VOCABULARY.size, **model.shape())
        settings = train_settings(["eng", "deu"], model, train)
        tokens, counts = stream(shards, objective=train.objective)
        plan = Plan(train, 1.0, counts)
        made = network(shape, train, ALONE, by_hand)
        return Trainer(settings, made, plan, tokens, (counts, tokens), ALONE, micro_batch_tokens)

    return make


def shrink_device(patch: pytest.MonkeyPatch) -> None:
    """Let the device run out of memory in a forward pass of more than 100 tokens."""
    embedding = F.embedding

    def small(ids, *args, **more):
        if ids.numel() > 100:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore lines follow.")
        return embedding(ids, *args, **more)

    patch.setattr(F, "embedding", small)
