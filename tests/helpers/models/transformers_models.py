"""Make small models of transformers, as settings and as networks of the training."""

import dataclasses
from pathlib import Path

import torch
from torch.nn import functional as F

from babelmill.config import schema
from babelmill.runtime.processes import Processes
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training.batches import MicroBatch, TokenStream
from babelmill.training.plan.objectives import hides_alone
from babelmill.training.plan.plan import Plan
from babelmill.training.plan.rows import Packed
from conftest import SMALL
from helpers.training.tiny_trainer import ALONE
from helpers.training.training_data import VOCABULARY, documents, section, train_settings, write_documents

# By kind: the objective, and `model.config` without `model_type`. Windows are shorter than the rows of the tests.
LLAMA = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
BERT = LLAMA
KINDS = {
    "gpt2": ("causal", {"n_embd": 16, "n_layer": 2, "n_head": 2}),
    "bert": ("masked", BERT),
    "modernbert": ("masked", BERT | {"num_hidden_layers": 4, "local_attention": 8}),
    "llama": ("causal", LLAMA | {"num_key_value_heads": 1, "rope_theta": 5000.0}),
    "eurobert": ("masked", BERT | {"num_key_value_heads": 2}),
}


# What a workflow of such models says beside them, for a processor.
ON_A_CPU = {"precision": "fp32", "batch_reduction": 1, "micro_batch_tokens": 128}
SMALL_WORKFLOW = {
    "tokenizer": SMALL["tokenizer"],
    "train": SMALL["train"] | ON_A_CPU | {"optimizer": "adamw", "learning_rate": 0.01},
    "evaluation": SMALL["evaluation"] | {"sequence_length": 64},
    "run": SMALL["run"],
    "languages": {"eng": SMALL["languages"]["eng"]},
}


def model_section(kind: str, positions: int = 32, **more) -> schema.Model:
    """Return the section `model` of a small model."""
    config = {"model_type": kind, **KINDS.get(kind, ("", BERT))[1], **more}
    return section("model", architecture="transformers", config=config, max_position_embeddings=positions)


def train_section(kind: str, **values) -> schema.Train:
    """Return the section `train` that fits it."""
    objective = KINDS.get(kind, ("masked",))[0]
    return section("train", **{"objective": objective, "optimizer": "adamw", "learning_rate": 0.01, **values})


# Its padding token is the token that ends a text, as in many published models.
ENDS_AND_PADS = dataclasses.replace(VOCABULARY, pad=VOCABULARY.eos)


def network(
    kind: str,
    processes: Processes = ALONE,
    train: schema.Train | None = None,
    loaded: bool = False,
    vocabulary: Vocabulary = VOCABULARY,
    **more,
):
    """Return a network of a small model. `loaded`: its weights are read later; `more`: keys of its `model.config`."""
    from babelmill.training.networks.transformers import TransformersNetwork
    from babelmill.training.networks.transformers_models import config_to_train

    train = train or train_section(kind)
    config = config_to_train(train_settings(["eng"], model_section(kind, **more), train), None, vocabulary)
    return TransformersNetwork(config, train, vocabulary, processes, loaded)


def batch_of(kind: str, folder: Path, **train) -> tuple[Plan, TokenStream, MicroBatch]:
    """Return the first global batch of a run as one micro-batch, its plan and its tokens."""
    settings = train_section(kind, **train)
    shard = write_documents(folder / "shard.safetensors", documents(60))
    plan = Plan(settings, 1.0, [Packed(shard.offsets)])
    tokens = TokenStream([shard], VOCABULARY, 7, ALONE.device, plan.objective, hides_alone(plan.objective))
    step = plan.step(0)
    return plan, tokens, tokens.micro_batch(step.rows, step.length, step.weights)


def loss_by_document(reference, batch: MicroBatch) -> tuple[torch.Tensor, float]:
    """Return the loss of a batch, and the sum of its cross-entropies times their importance.

    Each document of each row is alone in a batch, through transformers' own forward pass, without any mask of ours.
    """
    total, nats, length = torch.zeros(()), 0.0, batch.input_ids.size(1)
    counted = torch.ones(len(batch.targets)) if batch.importance is None else batch.importance
    targets = zip(batch.targets, batch.weights, counted.tolist(), strict=True)
    target_at = dict(zip(batch.positions.tolist(), targets, strict=True))
    for row, segments in enumerate(batch.segments):
        for segment in segments[segments >= 0].unique().tolist():
            part = (segments == segment).nonzero()[:, 0]
            logits = reference(input_ids=batch.input_ids[row, part][None]).logits[0]
            for place, position in enumerate(part.tolist()):
                if row * length + position in target_at:
                    target, weight, importance = target_at[row * length + position]
                    entropy = F.cross_entropy(logits[place], target)
                    total = total + weight * (entropy + 1e-4 * logits[place].logsumexp(0).square())
                    nats += importance * entropy.item()
    return total, nats
