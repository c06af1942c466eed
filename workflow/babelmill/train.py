"""Train a model on the shards of its languages, in one process or in several (stage `train`).

    python -m babelmill.train results/settings/train/eng-3f9a1c20de.json --gpus 4 --threads 8

With `--gpus` above 1 this command is a launcher (`runtime/launch.py`) that runs itself once per GPU.
`torchrun ... -m -- babelmill.train ...` does the same, also on several machines. On SIGTERM or SIGINT, or shortly
before a SLURM allocation ends, training finishes the current step, saves a checkpoint and exits with code 75. The same
command resumes from there, with any number of processes.

A run's identity is the key in its name: its folder is `results/checkpoints/{label}-{key}`. The last checkpoint of a
finished run stays there, so training that is asked for again takes seconds.
"""

import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from torch.distributed import is_torchelastic_launched

from babelmill.config import schema
from babelmill.config.models import OBJECTIVES
from babelmill.core import bars, escape, manifest, stage_entry
from babelmill.core.files import UserError, copy_file, link_or_copy, read_json, sha256, write_json
from babelmill.core.stage_entry import Job
from babelmill.core.words import plural, short
from babelmill.labels.codes import CODES_OF_SOURCE
from babelmill.labels.data import LabelledData
from babelmill.model.norbert4 import NorBERT4Shape
from babelmill.release.card import training_history
from babelmill.runtime import checkpoint, gpu_claims, slurm
from babelmill.runtime.cost import precision_of
from babelmill.runtime.launch import launch
from babelmill.runtime.processes import Processes, in_words
from babelmill.runtime.run_folder import SPLITS, RunFolder, identity, modules_of
from babelmill.runtime.slurm import EXIT_CODE, Stop
from babelmill.runtime.watching import device_name
from babelmill.stages import CHECKPOINTS, RunSettings, TrainStage, run_settings_of
from babelmill.tokens.shard_file import ShardFile
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training.batches import Data
from babelmill.training.kernels.compilation import Graphs, fast_in_bf16, graphs_of, set_gpu_options
from babelmill.training.loop import Loop, snapshots_of
from babelmill.training.networks.gpt_bert import GPTBertNetwork, NorBERT4Network
from babelmill.training.networks.network import Network
from babelmill.training.networks.source_weights import lineage, load_weights, shape_of
from babelmill.training.plan.plan import Plan
from babelmill.training.plan.schedule import micro_batch_tokens, validation_bound
from babelmill.training.trainer import Trainer

log = logging.getLogger(__name__)

COMPILED = Path("results/compiled")  # keeps compiled kernels for later runs


def verify(settings: TrainStage, tokenizer: Path, shards: list[Path], source: Path | None) -> None:
    """Check all input files, once for all processes.

    A UserError says that a file is damaged or does not belong to the others.
    """
    if source and settings.begin_with:
        heads = [CODES_OF_SOURCE] if (source / CODES_OF_SOURCE).is_file() else []
        manifest.verify(source, "config.json", settings.begin_with, *heads, remember=True)
    manifest.verify(tokenizer, "tokenizer.json")
    digest = sha256(tokenizer / "tokenizer.json")
    for folder in shards:
        manifest.verify(folder, *(f"{split}.safetensors" for split in SPLITS), remember=True)
        for split in SPLITS:
            shard = ShardFile.open(folder / f"{split}.safetensors")
            if shard.metadata["tokenizer_sha256"] != digest:
                raise UserError(f"{shard.path} was made with another tokenizer, not {tokenizer}; make the shards again")
            if len(shard.offsets) < 2:
                raise UserError(f"{shard.path} has no documents: the corpus is too small; add text")


def training_words(shards: Path, bytes_per_word: float | None) -> float:
    """Return the number of words of a language's training text, which the stage `shards` counted.

    Words are separated by whitespace, unless `bytes_per_word` says how many bytes count as a word.
    """
    figures = manifest.read(shards)["figures"]
    return figures["words"]["train"] if bytes_per_word is None else figures["bytes"]["train"] / bytes_per_word


@in_words()
def train(job: Job[TrainStage]) -> int:
    """Train or resume, and write the results. Return the exit code."""
    began = time.monotonic()
    path = run_settings_of(job.path)
    settings, looked_after = job.settings, RunSettings.from_content(read_json(path), path)
    run, tokenizer, shards = looked_after.run, settings.folder("tokenizer"), settings.folders("shards")
    processes = Processes.start(job.threads)
    set_gpu_options()
    stop = Stop(ask_slurm=processes.main)
    source = next(iter(settings.folders("source")), None)
    processes.on_main(lambda: verify(settings, tokenizer, shards, source))

    labels = settings.train.objective == "labels"
    if labels and run.snapshots:
        run = run.model_copy(update={"snapshots": []})
        if processes.main:
            log.warning("run.snapshots: no snapshot is kept, since a label model does not read running text")
    data = LabelledData(settings, tokenizer, shards, source) if labels else Data(settings, tokenizer, shards)
    sizes = (settings if settings.train.max_words else looked_after).bytes_per_word
    words = [training_words(of, sizes.get(code)) for code, of in zip(settings.languages, shards, strict=True)]
    plan = Plan(settings.train, float(settings.mixture.weights), data.layouts["train"], data.blocks_weight, words)
    tokens = plan.tokens_until(plan.steps)
    here = precision_of(settings.train.precision, fast_in_bf16(processes.device))  # of a run that begins here
    compiles = settings.model.architecture in schema.OURS and not labels
    graphs = graphs_of(run, processes, compiles, job.threads, COMPILED)
    with RunFolder(CHECKPOINTS / job.name, identity(settings.raw, tokenizer, shards, source), run) as folder:
        done = processes.on_main(lambda: folder.open(looked_after.name, job.args.attempt, plan.steps, tokens, here))
        # `settings.raw`, which the run's identity and the manifest have, stays as asked.
        train = settings.train.model_copy(update={"precision": done.precision})
        settings = settings.model_copy(update={"train": train})
        if isinstance(data, LabelledData):
            network = make_labels_network(settings, data, source, processes)
        else:
            network = make_network(settings, data.vocabulary, source, processes, graphs)
        how = processes.device, plan.objective, network.in_place, network.compiled
        streams = {split: data.stream(split, *how) for split in SPLITS}
        validation = data.layouts["validation"], streams["validation"]
        trainer = Trainer(
            *(settings, network, plan, streams["train"], validation, processes),
            micro_batch_tokens=micro_batch_tokens(run, processes.device.type == "cuda"),
            validation_tokens=validation_bound(run, train, plan.steps),
        )
        if source and settings.begin_with and (not done.steps or network.frozen):
            load_weights(source / settings.begin_with, network)
            trainer.average.begin()
            log.info("training begins with the weights of %s", settings.model.source)
            if isinstance(data, LabelledData) and data.begun.message:
                log.info("%s", data.begun.message)
        state: dict[str, Any] = {}
        if done.steps:
            tensors, state = folder.checkpoints.load(done.steps, trainer.state.rows)
            trainer.state.restore(tensors)
        if processes.main:
            announce(trainer, folder.path, done.steps, job.gpus, here)
        trainer.state.copy_from_main()
        if finished := Loop(trainer, folder, done, stop, state.get("loop")).run():
            seconds = round(time.monotonic() - began, 1)
            write_weights(job.out, trainer)
            processes.on_main(lambda: write_results(job.out, trainer, data, folder, seconds))
    processes.stop()
    return 0 if finished else EXIT_CODE


def make_labels_network(settings: TrainStage, data: LabelledData, source: Path | None, processes: Processes) -> Network:
    """Make the network of a run that learns labels. For `source`, see `make_network`."""
    from babelmill.labels.network import LabelsNetwork, encoder_config  # imports transformers, for seconds

    if processes.main and (cut := data.cut()):
        text = "%s cut at the end: text and context together are longer than train.sequence_lengths = %s"
        log.warning(text, plural(cut, "training text"), settings.train.sequence_lengths)
    config = processes.on_main(lambda: encoder_config(settings, source, data.vocabulary))
    made = settings.train, settings.labels, data.codes, data.blocks, processes
    return LabelsNetwork(config, *made, heads=data.begun.heads)


def make_network(
    settings: TrainStage,
    vocabulary: Vocabulary,
    source: Path | None,
    processes: Processes,
    graphs: Graphs | None = None,
) -> Network:
    """Make the network of a run that has not begun. It continues from `source` if there is one."""
    train = settings.train
    if settings.model.architecture == "transformers":
        from babelmill.training.networks.transformers import TransformersNetwork
        from babelmill.training.networks.transformers_models import config_to_train  # imports transformers, for seconds

        config = processes.on_main(lambda: config_to_train(settings, source, vocabulary))
        return TransformersNetwork(config, train, vocabulary, processes, loaded=source is not None)
    shape = processes.on_main(lambda: shape_of(settings, source, vocabulary.entries))
    if isinstance(shape, NorBERT4Shape):
        return NorBERT4Network(shape, train, processes, graphs=graphs)
    return GPTBertNetwork(shape, train, processes, graphs=graphs)


def announce(trainer: Trainer, folder: Path, done: int, gpus: int, here: str) -> None:
    """Log what will run in a folder after `done` steps, and warn about wasted resources.

    `gpus`: how many GPUs the job has; `here`: the precision of a run that begins here.
    """
    plan, train, processes = trainer.plan, trainer.train, trainer.processes
    size, on_gpu = processes.size, processes.device.type == "cuda"

    def step(number: int) -> str:
        rows, length = plan.rows_of(number)
        return f"{rows:,} rows of up to {length} tokens; per process {rows / size:,.4g} rows"

    lines = [
        f"{folder}: {trainer.network.parameters / 1e6:.1f} M parameters, {plan.steps:,} steps,"
        f" {plan.epochs(plan.steps):.1f} epochs of {plan.tokens:,} tokens,"
        f" {plural(round(plan.words_until(plan.steps)), 'word')} in all; {size} x {processes.device.type}"
        + ("" if not done else "; already trained" if done == plan.steps else f"; going on after step {done:,}"),
        f"  source      {trainer.settings.model.source or f'random weights, seed {train.seed}'}",
        f"  first step  {step(0)}",
        f"  last step   {step(plan.steps - 1)}",
        f"  rate        {train.learning_rate:g} at its peak, {train.optimizer}",
        f"  precision   {train.precision}",
        f"  device      {device_name(trainer.device)}",
    ]
    log.info("%s", "\n".join(lines))
    if gpus and not on_gpu:
        level = logging.WARNING if slurm.job_id() else logging.INFO  # the user's own machine may have no GPU
        log.log(level, "%s, but PyTorch sees none here: training on the CPU", gpu_claims.asked_for(gpus))
    if train.precision != here:
        log.info("this run stays in %s, in which it began; a new one would be in %s here", train.precision, here)
    if train.micro_batch_tokens and not trainer.network.sharded:
        log.warning("train.micro_batch_tokens has no effect here; set run.micro_batch_tokens")


def write_weights(out: Path, trainer: Trainer) -> None:
    """Write the trained weights and their average. All processes call this, only the main one writes."""
    for path, prefix in ((out / "model.safetensors", "model."), (out / "ema.safetensors", "average.")):

        def write(tensors: checkpoint.Tensors, load: checkpoint.Load, path: Path = path) -> None:
            if tensors:
                checkpoint.write_tensors(path, tensors, {"format": "pt"}, load)
            else:  # there is no average
                link_or_copy(out / "model.safetensors", path)

        trainer.state.with_whole(write, prefix)


def write_results(out: Path, trainer: Trainer, data: Data, folder: RunFolder, seconds: float) -> None:
    """Write the model's configuration, the record and, last, the manifest with the figures of the run."""
    plan, settings = trainer.plan, trainer.settings
    unmasks = {"objective": settings.train.objective} if OBJECTIVES[settings.train.objective].unmasks else {}
    write_json(out / "config.json", trainer.network.config | data.vocabulary.ids | unmasks)
    copy_file(folder.record.path, out / "metrics.jsonl")
    figures = {
        "steps": plan.steps,
        "tokens": plan.tokens_until(plan.steps),
        "epochs": plan.epochs(plan.steps),
        "parameters": trainer.network.parameters,
        "precision": settings.train.precision,
        "seconds": seconds,
        "words": round(plan.words_until(plan.steps)),
        **snapshots_of(plan, folder),
    }
    if len(settings.languages) > 1:
        shares = plan.mixture.shares / plan.mixture.shares.sum()
        figures["shares"] = dict(zip(settings.languages, shares.tolist(), strict=True))
    record = training_history.read_record(folder.record.path)
    losses = [line["loss"] for line in record if line["kind"] == "validation"]
    parts = [f"{plan.steps:,} steps", f"{short(figures['tokens'])} tokens", f"{short(figures['words'])} words"]
    parts += [f"validation loss {losses[-1]:.3f}"] if losses and losses[-1] is not None else []
    parts += [f"no snapshot {escape.some(missing, 2)}"] if (missing := figures.get("missing_snapshots")) else []
    figures["summary"] = ", ".join(parts)
    joules: list[Any] = [line.get("energy") for line in record if line["kind"] == "train"]
    if joules and None not in joules:  # what was done again after a kill counts once, as its hours do
        figures["energy_kwh"] = sum(joules) / 3.6e6
    sources = settings.folders("source")
    for source in sources:
        figures["source"] = lineage(settings, source)
    files = ["model.safetensors", "ema.safetensors", "config.json", "metrics.jsonl"]
    upstream = [settings.folder("tokenizer"), *settings.folders("shards"), *sources]
    manifest.write(out, settings, files, upstream, figures, also=modules_of(folder.path))


def main() -> int:
    """Run the command: train in this process, or launch the processes that do, one for each GPU."""
    parser = stage_entry.parser(TrainStage, __doc__)
    parser.add_argument("--processes", type=int, help="processes on all machines together (default: one per GPU)")
    parser.add_argument("--nodes", type=int, default=1, help="machines of the SLURM job to use")
    parser.add_argument("--requeue", type=int, default=0, help="1: requeue the SLURM job if it must end early")
    parser.add_argument("--attempt", type=int, default=1, help="number of this attempt, above 1 for a retry")
    args = parser.parse_args()
    job = Job(TrainStage, args.settings, args.threads, args.gpus, args)

    def work() -> int:
        is_main = not is_torchelastic_launched() or os.environ["RANK"] == "0"
        if not is_main:
            logging.disable(logging.INFO)
        return stage_entry.run(train, job, writes_log=is_main)

    if is_torchelastic_launched():
        return work()
    processes, nodes, threads = args.processes or max(1, args.gpus), args.nodes, args.threads
    command = ["-m", "babelmill.train", *sys.argv[1:]]
    slurm.move_to_own_step(nodes, threads, [sys.executable, *command])
    if processes % nodes or (nodes > 1 and slurm.job_id() is None):
        parser.error(f"--nodes {nodes}: this is not a SLURM job, or its nodes cannot share --gpus {args.gpus}")
    try:
        TrainStage.read(args.settings)  # so that an error is reported once, not by each process
        gpu_claims.claim(args.gpus)
        program = [sys.executable, "-u", *command]
        code = launch(program, processes // nodes, nodes, threads) if processes > 1 else work()
    except UserError as error:
        bars.say(f"error: {escape.lines(error)}")
        return 1
    if code == EXIT_CODE and slurm.node_number():
        return 0  # an error code would end the first node's task before it requeues the job (srun --kill-on-bad-exit)
    if code == EXIT_CODE and args.requeue:
        slurm.requeue()
    return code


if __name__ == "__main__":
    sys.exit(main())
