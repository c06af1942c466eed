"""Show what training will cost, before any job is submitted.

    babelmill plan                                 # for the configuration's targets
    babelmill plan tier1 --profile profiles/slurm  # for a batch, on the GPUs of a cluster
    babelmill plan eng --gpu A100 --gpus 1 2 4     # for one, two and four GPUs, one line each

Steps are computed as in training, from the number of tokens in the shards ("old shards" were made with earlier
settings). If there are no shards yet, the number of tokens is estimated, and the table says from what. Hours are
floating-point operations divided by the speed of the GPUs: their peak times the utilisation (MFU). Finished or running
trainings of the same shape give the utilisation; otherwise it is assumed. A step takes as long as the GPU with the most
micro-batches needs, so idle GPUs add hours. On a machine without GPUs, the hours are those of its processor.

A second table has the hours of fine-tuning for tasks (evaluation.tasks), of all seeds, on one GPU or processor.
"""

import argparse
import csv
import sys
from collections.abc import Container, Iterable
from dataclasses import astuple, fields

from babelmill.commands.estimates.machine import ASSUMED_GPU, busy, gpus_of, has_gpu, known_peak, profile_resources
from babelmill.commands.estimates.text_size import download_notes
from babelmill.commands.estimates.training_cost import Cost, cost_of, hours_text, tenths
from babelmill.commands.estimates.tuning_cost import TuningCost, by_task, tuning_costs
from babelmill.config import loading
from babelmill.config.resolve import Configuration
from babelmill.config.snapshots import (
    FOLDER,
    kept_at_the_end,
    missing_points,
    name_of,
    points,
    say_missing,
)
from babelmill.config.submissions import rules_of_model
from babelmill.config.suites import scores_asked
from babelmill.config.tasks import task_note
from babelmill.core import manifest
from babelmill.core.escape import some
from babelmill.core.files import UserError
from babelmill.core.words import aligned, plural, said_once, short
from babelmill.graph import CHECKPOINTS, explain
from babelmill.runtime.cost import BF16_IS_SLOW, slowdown
from babelmill.settings import UP_TO_TRAINING, same_asked, settings_of, trainings_there
from babelmill.stages import STAGES

MUCH_VALIDATION = 0.15  # the share of the hours from which a note says how long validations take
OF_GPUS = ("GPUs", "busy", "GPU-hours")  # columns that a table without GPUs leaves out
TO_THE_LEFT = ("model", "from")


def row_of(cost: Cost) -> dict[str, str]:
    """Return a model's row of the table: {heading: cell}. A question mark means that the speed is assumed."""
    speed = f"{cost.mfu:.0%}" if cost.mfu is not None else f"{(cost.flops_per_second or 0) / 1e9:,.0f} GFLOP/s"
    return {
        "model": cost.model,
        "parameters": short(cost.parameters),
        "tokens": short(cost.tokens),
        "from": cost.source,
        "epochs": tenths(cost.epochs),
        "steps": f"{cost.steps:,}",
        "FLOPs": f"{cost.flops:.1e}",
        "GPUs": f"{cost.gpus}",
        "busy": f"{cost.busy:.0%}" if cost.gpus else "",
        "GiB": tenths(cost.memory_gib),
        "disk": f"{short(1e9 * cost.disk_gb)}B",
        "speed": speed if cost.measured else f"{speed} ?",
        "hours": hours_text(cost.hours),
        "GPU-hours": hours_text(cost.gpu_hours),
    }


def trained_alike(configuration: Configuration, models: Iterable[str]) -> dict[str, str]:
    """Return {model: another one that is trained on the same text with the same settings}.

    It is an earlier one of the models, or one that is trained already, perhaps under a name that is in no configuration
    any more. The models take its weights (`runtime/store.py`).
    """
    there, first = trainings_there(), dict[str, str]()
    found = {}
    for model in dict.fromkeys(models):
        wanted = map(name_of, points(configuration.model(model).run.snapshots))
        key = same_asked((settings_of(configuration, model, stage) for stage in UP_TO_TRAINING), wanted)
        corpora = [job for job in explain(configuration, model) if job.stage.of == "language"]
        new_text = any(job.reasons and job.stage.record(job.name, job.part).is_file() for job in corpora)
        if (earlier := first.setdefault(key, model)) != model:
            found[model] = earlier
        elif there.get(key, model) != model and not new_text:
            found[model] = there[key]
    return found


def not_taken(tuned: dict[str, list[TuningCost]], alike: dict[str, str]) -> list[TuningCost]:
    """Return the fine-tunings of models, without those that the plan has for an equal model (see `trained_alike`)."""
    made = {(model, each.task, each.jobs) for model, mine in tuned.items() for each in mine}
    return [
        each for mine in tuned.values() for each in mine if (alike.get(each.model), each.task, each.jobs) not in made
    ]


def table(costs: list[Cost], alike: Container[str]) -> list[str]:
    """Return a heading, one line per model and number of GPUs, and the total unless a model has several lines.

    `alike`: the models that are not trained, since another one is the same.
    """
    rows, on_gpus = [row_of(cost) for cost in costs], any(cost.gpus for cost in costs)
    if len({cost.model for cost in costs}) == len(costs):
        models = plural(len(costs), "model")
        costs = [cost for cost in costs if cost.model not in alike]
        total = {
            "model": models,
            "tokens": short(sum(cost.tokens for cost in costs)),
            "FLOPs": f"{sum(cost.flops for cost in costs):.1e}",
        }
        if on_gpus:
            total["GPU-hours"] = hours_text(sum(cost.gpu_hours or 0 for cost in costs))
        else:
            total["hours"] = hours_text(sum(cost.hours for cost in costs))
        rows.append(total)
    heading = [name for name in rows[0] if on_gpus or name not in OF_GPUS]
    cells = [[row.get(name, "") for name in heading] for row in rows]
    return aligned([heading, *cells], (name not in TO_THE_LEFT for name in heading))


def notes(costs: list[Cost], gpu: str, alike: dict[str, str]) -> list[str]:
    """Return what a reader of the table has to know: the GPU, what is estimated, and what is made once.

    `alike`: see `trained_alike`.
    """
    on_gpus = any(cost.gpus for cost in costs)
    machine = "No GPU: hours of this machine's processor (--gpu names a GPU, --profile uses those of a cluster)."
    if on_gpus:
        machine = f"GPU: {gpu} (--gpu names another), {known_peak(gpu) / 1e12:,.0f} TFLOP/s in bf16."
    found = [f"{machine} Hours are those of training with its validations."]
    found += said_once(
        (model, f"the same training as that of {other}, whose weights are linked; the total counts it once.")
        for model, other in alike.items()
    )
    found += said_once(
        (
            cost.model,
            f"validations take {cost.validation:.0%} of the hours (run.validate_every, run.validation_tokens).",
        )
        for cost in costs
        if cost.validation > MUCH_VALIDATION
    )
    if any(cost.source != "shards" for cost in costs):
        found.append("Tokens are estimated until the shards exist (`from`): expect them to be off by a fifth or more.")
    if any("old shards" in cost.source for cost in costs):
        found.append("old shards: tokens of shards that earlier settings made (`babelmill why` says what has changed).")
    if not on_gpus and (note := busy()):
        found.append(note)
    if any(not cost.measured for cost in costs):
        source = (
            "is an assumed share of the GPU's peak (--mfu sets it),"
            if on_gpus
            else "is estimated from a matrix product, within a factor of two or three,"
        )
        memory = "a GPU's memory" if on_gpus else "memory"
        found.append(
            f"A speed with a ? {source} and GiB (of {memory}) come from a rough formula, until a training here measures"
            " both."
        )
    found += said_once((cost.model, cost.strategies) for cost in costs if cost.strategies)
    if any(cost.gpus > 1 and cost.busy < 0.9 for cost in costs):
        found.append(
            "busy: GPUs wait for each other when there are few micro-batches or rows: fewer GPUs are as fast, or set a"
            " lower train.micro_batch_tokens."
        )
    return found


def snapshot_note(configuration: Configuration, cost: Cost) -> str | None:
    """Return a note on the snapshots that a run will keep, or has kept; None if `run.snapshots` asks for none."""
    resolved, model, million_words = configuration.model(cost.model), cost.model, cost.words / 1e6
    asked = points(resolved.run.snapshots)
    if not asked:
        return None
    ahead = kept_at_the_end(asked, million_words)
    missing = missing_points(resolved.run.snapshots, million_words)
    known = cost.words_counted or resolved.train.words
    text = say_missing(missing, million_words, "" if known else "about ")
    beyond = f" {text}." if text else ""
    trained = STAGES["train"].path(model, "")
    if not (trained / manifest.NAME).is_file():
        count = f"{'' if known else 'about '}{plural(len(ahead), 'snapshot')}"
        return f"{count} of {len(asked)}, included in the disk space.{beyond}"
    run = manifest.read(trained)["figures"].get("fingerprint", "")
    folder = CHECKPOINTS / model / run / FOLDER
    kept = [point for point in asked if (folder / f"{name_of(point)}.json").is_file()]
    unkept = ""
    if lost := [name_of(point) for point in ahead if point not in kept]:
        unkept = (
            f"; not kept: {some(lost)} (the run ended before, or was finished when you asked for them; it is not"
            " repeated for snapshots)"
        )
    return f"{plural(len(kept), 'snapshot')} kept of {len(asked)}{unkept}.{beyond}"


def tuning_table(tuned: list[TuningCost], costs: list[Cost]) -> list[str]:
    """Return a table of the fine-tuning of all models: a line per task, the total, and what is to know about it."""
    if not tuned:
        return []
    unit = "GPU-hours" if any(cost.gpus for cost in costs) else "hours"
    rows = [["fine-tuning", "models", "jobs", "rows", "epochs", "FLOPs", unit]]
    for task, of_task in by_task(tuned).items():
        known = [each for each in of_task if each.hours is not None]
        sure = all(each.source == "measured" for each in known)
        hours = hours_text(sum(each.hours or 0 for each in known)) + ("" if sure else " ?") if known else "unknown"
        work = f"{sum(each.flops for each in known):.1e}" if known else ""
        counted = [short(each) for each in extremes(cost.rows for cost in known)] if known else []
        epochs = [str(each) for each in extremes(cost.epochs for cost in of_task)]
        jobs = sum(each.jobs for each in of_task)
        rows.append([task, f"{len(of_task)}", f"{jobs:,}", " to ".join(counted), " to ".join(epochs), work, hours])
    known = [each for each in tuned if each.hours is not None]
    more = "" if len(known) == len(tuned) else " + ?"
    guessed = "" if all(each.source == "measured" for each in known) else " ?"
    work = f"{sum(each.flops for each in known):.1e}{more}" if known else ""
    whole = hours_text(sum(each.hours or 0 for each in known)) + (more or guessed) if known else "unknown"
    rows.append([plural(len(rows) - 1, "task"), "", f"{sum(each.jobs for each in tuned):,}", "", "", work, whole])
    found = aligned(rows, (number > 0 for number in range(len(rows[0]))))
    found.append("Fine-tuning: hours of all jobs, one after the other, without the start of each (a few seconds).")
    if any(each.source in ("other tasks", "assumed") for each in tuned):
        slower = "a tenth of that of training" if unit == "GPU-hours" else "that of training"
        found[-1] += (
            f" A ? means: at the speed of the model's other tasks, or, before there are any, assumed ({slower})."
        )
    if unknown := dict.fromkeys(each.task for each in tuned if each.hours is None):
        found.append(
            f"{some(unknown)}: rows are not read yet, so hours are unknown; run snakemake with `--until task`."
        )
    return ["", *found]


def extremes(values: Iterable[int]) -> list[int]:
    """Return the smallest and the largest of some numbers; one number if they are equal."""
    return sorted({min(values := [*values]), max(values)})


def challenge_note(configuration: Configuration, cost: Cost) -> str | None:
    """Return a line on what a model's challenge asks for and how much there will be of it; None without a challenge."""
    model, rules = cost.model, rules_of_model(configuration, cost.model)
    if not rules:
        return None
    asked = points(configuration.model(model).run.snapshots)
    ahead = kept_at_the_end(asked, cost.words / 1e6)
    of_model, of_each = scores_asked(configuration, model)
    scores = of_model + of_each * len(ahead)
    wanted = rules.points()
    there = [point for point in ahead if point in wanted]
    return (
        f"{model}: {rules.title}: {plural(len(there), 'snapshot')} of {len(wanted)}, {plural(scores, 'score')}"
        f" ({plural(of_model, 'suite')}, and {of_each} of them for each snapshot); reads {short(cost.words)} words of"
        f" {short(rules.words)} at most."
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="a model or a batch (default: the configuration's targets)")
    loading.add_arguments(parser)
    add("--gpu", help=f"assume this GPU, such as A100 (default: gpu_model of the profile, or {ASSUMED_GPU})")
    add("--gpus", type=int, nargs="+", metavar="N", help="assume N GPUs per job; several numbers give a line each")
    add("--mfu", type=float, metavar="SHARE", help="assume that training reaches this share of the GPU's peak")
    add("--tsv", action="store_true", help="print tab-separated values, with all digits")


def run(args: argparse.Namespace) -> None:
    """Print what the training of models will cost: tokens, steps, parameters, FLOPs, memory, hours."""
    configuration = loading.from_arguments(args)
    resources = profile_resources(args.profile)
    named = args.gpu or resources.get("gpu_model")
    gpu = named or ASSUMED_GPU
    known_peak(gpu, "--gpu " if args.gpu else f"gpu_model in {args.profile}: ")
    if any(gpus < 0 for gpus in args.gpus or ()):
        raise UserError(f"--gpus {min(args.gpus)}: expected a number of GPUs; 0 means no GPU")
    if args.mfu is not None and not 0 < args.mfu <= 1:
        raise UserError(f"--mfu {args.mfu}: expected a share of the peak, above 0 and at most 1")
    if resources["here"] and not (named or args.mfu or args.gpus or has_gpu()):
        resources = resources | {"limit": 0}
    costs = [
        cost_of(configuration, model, gpus, gpu, args.mfu)
        for model in configuration.models_of(args.names or ["all"])
        for gpus in args.gpus or [gpus_of(configuration, model, resources)]
    ]
    tuned = {cost.model: tuning_costs(configuration, cost, gpu) for cost in reversed(costs)}
    for cost in costs:
        cost.tuning_jobs = sum(each.jobs for each in tuned[cost.model])
        hours = [each.hours for each in tuned[cost.model]]
        cost.tuning_hours = None if None in hours else sum(each or 0 for each in hours)
    if args.tsv:
        writer = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
        writer.writerow(field.name for field in fields(Cost))
        writer.writerows(astuple(cost) for cost in costs)
        return
    codes = dict.fromkeys(code for cost in costs for code in configuration.languages_of(cost.model))
    alike = trained_alike(configuration, [cost.model for cost in costs])
    snapshots = said_once((cost.model, note) for cost in costs if (note := snapshot_note(configuration, cost)))
    challenges = dict.fromkeys(filter(None, (challenge_note(configuration, cost) for cost in costs)))
    without = said_once((cost.model, note) for cost in costs if (note := task_note(configuration, cost.model)))
    on_cpu = (cost.model for cost in costs if not cost.gpus)
    slow = said_once((name, BF16_IS_SLOW) for name in on_cpu if slowdown(configuration.model(name).train.precision) > 1)
    lines = [*table(costs, alike), *notes(costs, gpu, alike), *slow, *snapshots, *challenges, *without]
    lines += tuning_table(not_taken(tuned, alike), costs)
    print(*lines, *download_notes(configuration, list(codes)), sep="\n")
