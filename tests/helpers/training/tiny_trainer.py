"""Make trainers of tiny models for tests: one process's part of training, without files."""

import functools
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from babelmill.runtime.processes import Processes
from babelmill.tokens.shard_file import ShardFile
from babelmill.training.kernels import dropout as keyed
from babelmill.training.kernels.compilation import Graphs
from babelmill.training.networks.gpt_bert import GPTBertNetwork, NorBERT4Network
from babelmill.training.networks.source_weights import new_shape
from babelmill.training.plan.plan import Plan
from babelmill.training.trainer import Trainer
from conftest import port_for_this
from helpers.programs.prepared import CONTEXT
from helpers.training.training_data import VOCABULARY, documents, section, stream, train_settings, write_documents

ALONE = Processes(rank=0, size=1, local_size=1, device=torch.device("cpu"))


def make_trainer(
    shards: list[ShardFile],
    processes: Processes = ALONE,
    dropout: float = 0.0,
    layers: int = 2,
    by_hand: bool = True,
    graphs: Graphs | None = None,
    micro_batch_tokens: int = 64,
    network: Callable[..., GPTBertNetwork] = GPTBertNetwork,
    width: int | None = None,
    mixes: bool = True,
    validation: list[ShardFile] | None = None,
    architecture: str = "gpt_bert",
    **values,
) -> Trainer:
    """Return a trainer with these `train` settings, for a shard of each language. `validation`: shards to validate."""
    train = section("train", **({"max_steps": 40, "clip_norm": 1e9, "global_batch_tokens": 320} | values))
    drops = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    drops |= {"architecture": architecture, "local_global_ratio": 2, "local_window_length": 6}
    model = section("model", **drops, num_hidden_layers=layers, layer_mixing=mixes)
    model = model.model_copy(update={"hidden_size": width} if width else {})
    kind = NorBERT4Network if architecture == "norbert4" else network
    made = kind(new_shape(model, VOCABULARY.size), train, processes, graphs)
    if not by_hand and architecture == "gpt_bert":  # a NorBERT4 has no faster functions
        keyed.install(made.model, made.keys, keyed.KeyedAttention)
    (tokens, layouts), (others, other_layouts) = (
        stream(each, graphs=graphs, objective=train.objective) for each in (shards, validation or shards)
    )
    settings, plan = train_settings(["eng", "deu"][: len(shards)], model, train), Plan(train, 1.0, layouts)
    return Trainer(settings, made, plan, tokens, (other_layouts, others), processes, micro_batch_tokens)


def trainer_maker(folder: Path, prompts: bool = False) -> Callable[..., Trainer]:
    """Return `make_trainer` for two languages. `prompts`: the first third of each document is a prompt."""
    texts = [documents(60 >> i, seed=i) for i in range(2)]
    ends = [[len(text) // 3 for text in some] if prompts else None for some in texts]
    shards = [write_documents(folder / f"{i}.safetensors", texts[i], prompts=ends[i]) for i in range(2)]
    return functools.partial(make_trainer, shards)


def train_together(size: int, function: Callable[..., Any], *arguments) -> list[Any]:
    """Return what `function(processes, *arguments)` returns in each of several processes, by rank.

    They are forks of a server that has imported PyTorch, so `function` must be one of a module.
    """
    results = CONTEXT.Queue()
    with port_for_this() as port:
        several = [
            CONTEXT.Process(target=_one, args=(rank, size, port, results, function, arguments)) for rank in range(size)
        ]
        for process in several:
            process.start()
        found = {rank: (result, error) for rank, result, error in (results.get(timeout=300) for _ in several)}
        for process in several:
            process.join()
    assert not any(error for _, error in found.values()), found
    return [found[rank][0] for rank in range(size)]


def _one(rank: int, size: int, port: int, results, function: Callable[..., Any], arguments: tuple) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "test"}
    try:
        results.put((rank, function(Processes.start(1), *arguments), None))
    except BaseException:
        results.put((rank, None, traceback.format_exc()))
