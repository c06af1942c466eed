"""Log the first lines of a run: what it starts from, how large a step is, and where it runs."""

import logging
from pathlib import Path

from babelmill.runtime import gpu_claims, slurm
from babelmill.runtime.progress import device_name
from babelmill.training.batches.words_read import WordRate
from babelmill.training.plan.schedule import rows_by_step
from babelmill.training.trainer import Trainer

log = logging.getLogger(__name__)


def block(trainer: Trainer, done: int, rate: WordRate) -> str:
    """Describe a run after `done` of its steps. `rate`: its words per token."""
    plan, train, processes = trainer.plan, trainer.train, trainer.processes
    length, rows = rows_by_step(train, plan.steps)
    first = (
        f"{trainer.network.parameters / 1e6:.1f} M parameters, {plan.steps:,} steps,"
        f" {plan.epochs(plan.steps):.1f} epochs of {plan.tokens:,} tokens,"
        f" {rate.say(plan.tokens_until(plan.steps))} in all; {processes.size} x {processes.device.type}"
    )
    if done:
        first += "; already trained" if done == plan.steps else f"; going on after step {done:,}"

    def step(number: int) -> str:
        share = rows[number] / processes.size
        return (
            f"{rows[number]:,} rows of up to {length[number]} tokens, {rows[number] * length[number]:,} tokens;"
            f" per process {share:,.4g} rows, {share * length[number]:,.0f} tokens"
        )

    lines = {
        "source": trainer.settings.model.source or f"random weights, seed {train.seed}",
        "first step": step(0),
        "last step": step(-1),
        "rate": f"{train.learning_rate:g} at its peak, {train.optimizer}",
        "precision": train.precision,
        "device": device_name(trainer.device),
    }
    return "\n".join([first, *(f"  {name:<10}  {text}" for name, text in lines.items())])


def announce(trainer: Trainer, folder: Path, done: int, gpus: int, rate: WordRate) -> None:
    """Log what will run in a folder, and warn about wasted resources.

    Args:
        trainer: the run.
        folder: its folder.
        done: the number of steps that are done.
        gpus: the number of GPUs of the job.
        rate: its words per token.
    """
    log.info("%s: %s", folder, block(trainer, done, rate))
    if gpus and trainer.device.type == "cpu":
        level = logging.WARNING if slurm.job_id() else logging.INFO  # the user's own machine may have no GPU
        log.log(level, "%s, but PyTorch sees none here: training on the CPU", gpu_claims.asked_for(gpus))
    if trainer.device.type == "cuda" and trainer.train.precision == "fp32":
        log.info("train.precision: fp32 computes without the GPU's fast matrix units; bf16 is several times as fast")
    if trainer.train.micro_batch_tokens and not trainer.network.whole_micro_batches:
        log.warning("train.micro_batch_tokens has no effect here; set run.micro_batch_tokens")
    if trainer.network.drops_by_micro_batch:
        log.info("dropout depends on the micro-batch here, so its size, train.micro_batch_tokens, changes the result")
