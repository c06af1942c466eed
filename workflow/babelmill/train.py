"""Stage `train`: train a model on the shards of its languages, on one process or on several.

    python -m babelmill.train --processes 4 --settings results/settings/eng/train.json ...

With `--processes` above 1 this command is `torchrun --standalone` (its library, called here), but ends with an exit
code that says what happened, which torchrun's own command does not pass on. SIGTERM, SIGINT and the end of a SLURM
allocation coming near end the current step, save a checkpoint and leave with exit code 75: the same command goes on
from there, on any number of processes.

A run's identity is its settings, its code and its data; its folder in `--checkpoints` is named by their fingerprint.
The last checkpoint of a finished run stays there, so going back to earlier settings takes seconds.
"""

import argparse
import contextlib
import dataclasses
import logging
import os
import sys
import time
from pathlib import Path

from babelmill.core import manifest, stage_entry
from babelmill.core.files import UserError, atomic_write, sha256, write_json
from babelmill.model.gpt_bert import GPTBertShape
from babelmill.runtime import checkpoint, gpu_claims, slurm
from babelmill.runtime.attempts import begin_attempt
from babelmill.runtime.checkpoint import Checkpoints
from babelmill.runtime.identity import SPLITS, fingerprint, identity
from babelmill.runtime.launch import Processes, launch, report_exit_code
from babelmill.runtime.record import Record
from babelmill.runtime.run_lock import Lock
from babelmill.runtime.stopping import EXIT_CODE, Stop
from babelmill.runtime.wandb_mirror import Mirror
from babelmill.settings import read_settings
from babelmill.stages import RunSettings, TrainSettings
from babelmill.tokens.shard_file import ShardFile
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training.batches import TokenCounts, TokenStream
from babelmill.training.loop import Folder, Loop
from babelmill.training.plan import Plan
from babelmill.training.trainer import Trainer

log = logging.getLogger(__name__)


def verify(settings, tokenizer: Path, shards: list[Path]) -> None:
    """Check everything that is read, once for all processes; a UserError names what is damaged or does not belong."""
    if len(shards) != len(settings.languages):
        raise UserError(f"--shards: {len(shards)} folders for the languages {', '.join(settings.languages)}")
    manifest.verify(tokenizer, "tokenizer.json")
    digest = sha256(tokenizer / "tokenizer.json")
    for folder in shards:
        manifest.verify(folder, *(f"{split}.safetensors" for split in SPLITS))
        for split in SPLITS:
            shard = ShardFile.open(folder / f"{split}.safetensors")
            if shard.metadata["tokenizer_sha256"] != digest:
                raise UserError(f"{shard.path}: was made with another tokenizer than {tokenizer}; rebuild the shards")
            if len(shard.offsets) < 2:
                raise UserError(f"{shard.path}: has no documents; the corpus is too small, add text")


def write_results(out: Path, trainer: Trainer, vocabulary: Vocabulary, record: Path) -> list[str]:
    """Write the trained weights, the shape of the model and the record; their names."""
    for name, model in (("model", trainer.model), ("ema", trainer.average)):
        checkpoint.write_tensors(out / f"{name}.safetensors", model.state_dict(), {"format": "pt"})
    ids = {f"{name}_token_id": getattr(vocabulary, name) for name in ("bos", "eos", "pad", "mask")}
    write_json(out / "config.json", dataclasses.asdict(trainer.config) | ids)
    with atomic_write(out / "metrics.jsonl") as file:
        file.write(record.read_bytes())
    return ["model.safetensors", "ema.safetensors", "config.json", "metrics.jsonl"]


def train(args: argparse.Namespace) -> int:
    """Train, or take up what was trained before, and write the results; the exit code."""
    began = time.monotonic()
    settings = read_settings(args.settings, TrainSettings)
    run = read_settings(args.run, RunSettings).run
    processes = Processes.start(args.threads)
    stop = Stop(ask_slurm=processes.main)
    report_exit_code(1)  # what is said of a process that is killed; from now on a signal ends in EXIT_CODE
    processes.on_main(lambda: verify(settings, args.tokenizer, args.shards))

    shards = {split: [ShardFile.open(folder / f"{split}.safetensors") for folder in args.shards] for split in SPLITS}
    counts = {split: [TokenCounts(shard.offsets) for shard in shards[split]] for split in SPLITS}
    vocabulary = Vocabulary.read(args.tokenizer / "tokenizer.json", shards["train"][0].vocab_size)
    plan = Plan(settings.train, settings.mixture.weights, counts["train"])
    run_identity = identity(settings.raw, args.tokenizer, args.shards)
    name = fingerprint(run_identity)
    path = args.checkpoints / name
    checkpoints = Checkpoints(path, run.keep)

    with contextlib.ExitStack() as stack:
        folder = None

        def take_folder() -> tuple[int, bool]:
            nonlocal folder
            lock = stack.enter_context(Lock(path))
            write_json(path / "identity.json", run_identity)
            done = checkpoints.newest()
            if done < plan.steps:
                begin_attempt(path, args.attempt, done, plan.steps, plan.tokens_until(plan.steps))
            record = Record(path / "metrics.jsonl", done)
            if run.tracking == "wandb":
                stack.callback(Mirror(settings.name, path).close)
            folder = Folder(lock, checkpoints, record)
            return done, record.validated

        done, validated = processes.on_main(take_folder)
        seed, device = settings.train.seed, processes.device
        streams = {split: TokenStream(shards[split], vocabulary, seed, device) for split in SPLITS}
        shape = GPTBertShape(vocab_size=vocabulary.size, **settings.model.model_dump())
        validation = counts["validation"], streams["validation"]
        trainer = Trainer(settings, shape, plan, streams["train"], validation, processes)
        state = None
        if done:
            tensors, state = checkpoints.load(done)
            trainer.restore(tensors, state)
            state = state["loop"]
            del tensors
        if processes.main:
            log.info("%s: %s", path, describe(trainer, done))
            if args.gpus and device.type == "cpu":
                log.warning("%d GPUs are asked for, but PyTorch sees none here: training on the CPU", args.gpus)
            if (parts := len(plan.micro_batches(plan.step(plan.steps - 1)))) < processes.size:
                log.warning(
                    "a global batch has %d micro-batches at most, fewer than the %d processes: some have nothing to do;"
                    " lower train.micro_batch_tokens",
                    parts,
                    processes.size,
                )
        finished = Loop(trainer, run, folder, done, validated, stop, state).run()
        if finished:

            def finish() -> None:
                files = write_results(args.out, trainer, vocabulary, path / "metrics.jsonl")
                figures = {
                    "steps": plan.steps,
                    "tokens": plan.step(plan.steps - 1).tokens,
                    "epochs": plan.epochs(plan.steps),
                    "parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
                    "seconds": round(time.monotonic() - began, 1),
                    "fingerprint": name,
                }
                manifest.write(args.out, settings, files, [args.tokenizer, *args.shards], figures)

            processes.on_main(finish)
    processes.stop()
    return 0 if finished else EXIT_CODE


def describe(trainer: Trainer, done: int) -> str:
    """What is about to happen, in a line."""
    plan, processes = trainer.plan, trainer.processes
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    text = (
        f"{parameters / 1e6:.1f} M parameters, {plan.steps:,} steps, {plan.epochs(plan.steps):.1f} epochs of"
        f" {plan.tokens:,} tokens; {processes.size} x {processes.device.type}"
    )
    if done == plan.steps:
        return f"{text}; already trained"
    return f"{text}; going on after step {done:,}" if done else text


def main() -> int:
    """The command; with `--processes` above 1, its launcher."""
    parser = stage_entry.arguments(__doc__)
    parser.add_argument("--run", required=True, type=Path, help="run settings, results/settings/{model}/run.json")
    parser.add_argument("--tokenizer", required=True, type=stage_entry.folder, help="the tokenizer's folder")
    parser.add_argument(
        "--shards", required=True, type=stage_entry.folder, nargs="+", help="a folder for each language, in order"
    )
    parser.add_argument("--checkpoints", required=True, type=Path, help="the model's folder of runs")
    parser.add_argument("--out", required=True, type=stage_entry.folder, help="folder for the trained model")
    parser.add_argument("--threads", type=int, default=1, help="of all processes on this machine together")
    parser.add_argument("--processes", type=int, default=1, help="one for each GPU, on all machines together")
    parser.add_argument("--gpus", type=int, default=0, help="to take of this machine; 0: the CPU")
    parser.add_argument("--nodes", type=int, default=1, help="machines of the SLURM job to use")
    parser.add_argument("--requeue", type=int, default=0, help="1: if the SLURM job must end early, requeue it")
    parser.add_argument("--attempt", type=int, default=1, help="2, 3, ...: what a retry repeats")
    args = parser.parse_args()
    if "RANK" in os.environ:  # one of the processes that `launch` started
        return work(args)
    if slurm.needs_step():
        slurm.run_in_step(args.nodes, args.threads, [sys.executable, "-m", "babelmill.train", *sys.argv[1:]])
    if args.processes % args.nodes or (args.nodes > 1 and slurm.job_id() is None):
        parser.error(f"--nodes {args.nodes}: this is not a SLURM job, or it cannot share --processes {args.processes}")
    try:
        gpu_claims.claim(args.gpus)
        here = args.processes // args.nodes
        code = launch(here, args.nodes, args.threads, sys.argv[1:]) if args.processes > 1 else work(args)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if code == EXIT_CODE and not slurm.on_first_node():
        return 0  # an error would end the first node's task, which has yet to requeue the job (srun --kill-on-bad-exit)
    if code == EXIT_CODE and args.requeue:
        slurm.requeue()
    return code


def work(args: argparse.Namespace) -> int:
    """Train in this process."""
    if int(os.environ.get("RANK", 0)) > 0:
        args.log = None  # the main process writes it
        logging.disable(logging.INFO)
    code = stage_entry.run(train, args)
    report_exit_code(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
