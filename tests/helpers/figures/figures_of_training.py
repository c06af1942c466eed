"""Compute figures of the tiny run of `stored_figures.py`: optimizers, gradients, training, scores."""

from pathlib import Path
from typing import Any

import numpy as np

from helpers.figures.figure_settings import LANGUAGES, SETTINGS, digest, section
from helpers.figures.figures_of_data import rows_of_kind, shard_files, stream_and_counts, vocabulary


def small_model():
    """Return an embedding, a matrix and a bias."""
    import torch

    torch.manual_seed(0)
    return torch.nn.ModuleDict({"embedding": torch.nn.Embedding(5, 3), "linear": torch.nn.Linear(3, 4)})


def optimizer_figures(_: Path) -> dict:
    """Return weights after three steps of each optimizer."""
    import torch

    from babelmill.training.optimization.optim import make_optimizer

    result: dict[str, Any] = {}
    for name in ("lamb", "adamw"):
        model = small_model()
        optimizer = make_optimizer(dict(model.named_parameters()), section("train", optimizer=name))
        for step in range(3):
            for parameter in model.parameters():
                parameter.grad = torch.sin(torch.arange(1.0, parameter.numel() + 1) * (step + 1)).view_as(parameter)
            optimizer.update(0.1 / (step + 1), torch.ones(()))
        result[name] = {key: value.flatten().tolist() for key, value in model.state_dict().items()}
    return result


def averaging_figures(_: Path) -> dict:
    """Return clipped gradients, and a moving average after some steps, its decay at first below its limit."""
    import torch

    from babelmill.training.optimization.optim import MovingAverage, clip

    result: dict[str, Any] = {}
    for limit in (0.1, 2.0, 100.0):
        gradient = torch.arange(1.0, 5.0)
        norm, finite = clip(gradient, limit)
        result[f"clip to {limit}"] = [norm.item(), finite.item(), *gradient.tolist()]
    model = small_model()
    moving = MovingAverage(dict(model.named_parameters()), 0.05)
    for step in (0, 1, 2, 3, 100):
        with torch.no_grad():
            model["linear"].bias.fill_(step + 1)
        moving.update(step)
        result[f"average after {step}"] = moving.tensors["linear.bias"].tolist()
    return result


def gradient_figures(folder: Path) -> dict:
    """Return the loss of one batch under both kinds of models, its sums, and the norm of each parameter's gradient."""
    import torch

    from babelmill.model.attention import position_buckets
    from babelmill.model.gpt_bert import GPTBert, GPTBertShape, training_mask
    from babelmill.runtime.processes import Processes
    from babelmill.training.kernels.dropout import Keys
    from babelmill.training.kernels.install import install
    from babelmill.training.networks.loss import loss as loss_of

    stream, counts = stream_and_counts(folder)
    rows = [rows_of_kind(counts, 64, kind)[::5] for kind in (0, 1)]
    result: dict[str, Any] = {
        "a bucket's distances": torch.bincount(position_buckets(1, 512, 32, 512)[0]).tolist(),
        "small buckets": position_buckets(5, 80, 8, 64)[2].tolist(),
    }
    for name, switches in (("GPT-BERT", {}), ("LTG-BERT", {"gate": False, "layer_mixing": False})):
        torch.manual_seed(1)
        model = GPTBert(GPTBertShape(vocab_size=vocabulary().size, **section("model", **switches).shape()))
        keys = Keys(7, torch.device("cpu"))
        install(model, keys, Processes(0, 1, 1, torch.device("cpu")), "fp32")
        found: dict[str, Any] = {"losses": []}
        for part in rows:
            batch = stream.micro_batch(part, 64, (0.01, 0.002))
            keys.begin_pass(batch.dropout, batch.positions, 64)
            hidden = model.encode(batch.input_ids, training_mask(batch.segments, batch.causal))
            features = model.classifier.features(hidden.flatten(0, 1)[batch.positions])
            output = model.embedding.word_embedding.weight, model.classifier.bias
            loss, sums = loss_of(features, *output, batch, 1e-4, 4)
            loss.backward()
            found["losses"] += [loss.item(), *sums.flatten().tolist()]
        result[name] = found | {key: p.grad.norm().item() for key, p in model.named_parameters()}
    return result


def make_trainer(folder: Path, model: dict, train: dict):
    """Return a trainer of two languages, alone on the CPU."""
    import torch

    from babelmill.config.stage_settings import TrainSettings
    from babelmill.model.gpt_bert import GPTBertShape
    from babelmill.runtime.processes import Processes
    from babelmill.training.networks.gpt_bert import GPTBertNetwork
    from babelmill.training.plan.plan import Plan
    from babelmill.training.trainer import Trainer

    sections = {"model": section("model", **model), "train": section("train", **train)}
    settings = TrainSettings(
        stage="train",
        name="test",
        languages=LANGUAGES,
        mixture=section("mixture"),
        labels=section("labels"),
        **sections,
    )
    stream, counts = stream_and_counts(folder)
    validation_stream, validation_counts = stream_and_counts(folder, "validation")
    shape = GPTBertShape(vocab_size=vocabulary().size, **settings.model.shape())
    alone = Processes(rank=0, size=1, local_size=1, device=torch.device("cpu"))
    plan = Plan(settings.train, settings.mixture.weights, counts)
    network = GPTBertNetwork(shape, settings.train, alone)
    return Trainer(settings, network, plan, stream, (validation_counts, validation_stream), alone, 128)


def projection(parameters) -> tuple[float, float]:
    """Return the norm of weights, and a sum of them in which each counts differently."""
    import torch

    weights = torch.cat([parameter.detach().double().flatten() for parameter in parameters])
    return weights.norm().item(), (weights * torch.arange(len(weights)).double().cos()).sum().item()


def train_steps(trainer, steps) -> dict[str, list[float]]:
    """Do steps of a run. Return losses, gradient norms, weights, validation."""
    found: dict[str, list[float]] = {"cross-entropy": [], "logsumexp^2": [], "gradient norm": []}
    for number in steps:
        outcome = trainer.run_step(number).read()
        targets = int(trainer.plan.step(number).rows.targets.sum())
        found["cross-entropy"].append(float(outcome.sums[:, 0].sum()) / targets)
        found["logsumexp^2"].append(float(outcome.sums[:, 1].sum()) / targets)
        found["gradient norm"].append(outcome.norm)
    ends = [projection(weights) for weights in (trainer.model.parameters(), trainer.average.tensors.values())]
    found["norms of weights and average"] = [norm for norm, _ in ends]
    found["projections of weights and average"] = [projected for _, projected in ends]
    measured = trainer.validation.measure()
    found["validation"] = [measured[key] for key in ("loss", "ema_loss")]
    return found


RUNS: dict[str, tuple[dict, dict, list[int]]] = {
    "hybrid with lamb": ({}, {}, [2, 9, 25, 38]),
    "masked with adamw, LTG-BERT": (
        {"gate": False, "layer_mixing": False},
        {"objective": "masked", "optimizer": "adamw", "activation_checkpointing": True},
        [2, 35],
    ),
    "causal with adamw": ({}, {"objective": "causal", "optimizer": "adamw"}, [2, 35]),
}


def training_figures(folder: Path) -> dict:
    """Return losses, gradient norms and weights of a few steps of some runs, in float64.

    "types" are what the numbers are made in: a buffer that stayed float32 would hide small differences.
    """
    import torch

    from babelmill.training.kernels.dropout import keep

    result: dict[str, Any] = {}
    for name, (model, train, steps) in RUNS.items():
        trainer = make_trainer(folder, model, train)
        result[name] = train_steps(trainer, steps)
        if name == next(iter(RUNS)):
            kinds = {str(p.dtype) for p in (*trainer.model.parameters(), *trainer.average.tensors.values())}
            kinds |= {str(parameter.grad.dtype) for parameter in trainer.model.parameters()}
            kinds |= {str(keep(torch.zeros(1, dtype=torch.int32), 4, 0.1).dtype)}
            kinds |= {str(tensor.dtype) for n, tensor in trainer.state.tensors().items() if not n.endswith(".step")}
            result["types"] = sorted(kinds)
    return result


def twenty_steps_figures(folder: Path) -> dict:
    """Return twenty steps in float32, as runs are made on a CPU.

    The weights of layer mixing do not begin as usual: there, the gradient of the last one is 0 but for rounding, of
    which LAMB would make a whole update.
    """
    import torch

    trainer = make_trainer(folder, {}, {"max_steps": 20, "clip_norm": 2.0})
    with torch.no_grad():
        for alphas in trainer.model.transformer.dwa_modules.alphas:
            alphas.add_(0.1)
    return train_steps(trainer, range(20))


def scored_rows(folder: Path) -> dict:
    """Return the rows of both scores of a validation text."""
    from babelmill.evaluation.scoring import ScoringStream, causal_rows, masked_rows

    stream, words = ScoringStream(shard_files(folder, "validation")[0].tokens), vocabulary()
    return {"causal": causal_rows(stream, 32, words), "masked": masked_rows(stream, 32, 7, words)}


def scoring_figures(folder: Path) -> dict:
    """Return digests of the batches that evaluation scores."""
    from babelmill.evaluation.scoring import arrays, batches, parts

    names, words, result = ("inputs", "targets", "scored", "documents"), vocabulary(), {}
    for kind, rows in scored_rows(folder).items():
        made = [arrays(rows, batch, words) for batch in batches(parts(rows, words), 512)]
        columns = [np.concatenate([array.ravel() for array in column]) for column in zip(*made, strict=True)]
        *columns, weights = columns
        assert (weights == 1).all()
        result[kind] = {name: digest(column) for name, column in zip(names, columns, strict=True)}
    return result


def evaluation_figures(folder: Path) -> dict:
    """Return the scores of an exported model with random weights, in float32."""
    import torch

    from babelmill.evaluation.metrics import entry
    from babelmill.evaluation.scoring import nats
    from babelmill.evaluation.validation_text import occurrences, unigram_nats
    from babelmill.model.transformers.configuration_gpt_bert import GPTBertConfig
    from babelmill.model.transformers.modeling_gpt_bert import GPTBertForCausalLM, GPTBertForMaskedLM

    words, rows = vocabulary(), scored_rows(folder)
    config = GPTBertConfig(vocab_size=words.size, pad_token_id=words.pad, **SETTINGS["model"])
    result: dict[str, Any] = {}
    for kind, model_class in (("causal", GPTBertForCausalLM), ("masked", GPTBertForMaskedLM)):
        torch.manual_seed(5)
        model = model_class(config).eval().requires_grad_(False)
        for parameter in model.parameters():
            parameter.mul_(3)  # so that it is sure of something
        found = nats(model, rows[kind], words, lambda _: None)
        score = entry(found, np.full(len(found), 300 / len(found)), 100)
        result[f"{kind} bits per byte"] = [score["value"]]
        result[f"{kind} standard error"] = [score["standard_error"]]
    training, text = (occurrences(shard_files(folder, split)[0].tokens, words) for split in ("train", "validation"))
    ordinary = ~words.is_special
    result["unigram nats"] = float((text[ordinary] * unigram_nats(training, words)[ordinary]).sum())
    return result
