"""`babelmill presets`: what each preset is for, and what it costs; `babelmill presets NAME`: how to run one.

    babelmill presets                       # hours on GPUs like those of this machine, as many as each preset asks for
    babelmill presets --gpu A100            # on GPUs of another kind
    babelmill presets 1gpu_standard

A preset is a file in `config/presets/`; put your own beside them, and it is listed. Text is the preset's own budget, or
100 million words of English.
"""

import argparse
import glob
import re
import textwrap

from babelmill.commands.machine import gpu_here
from babelmill.commands.plan import ASSUMED_GPU, aligned, cost_of, hours_text, known_peak, short
from babelmill.commands.plan_download import budget_bytes
from babelmill.config.layers import nearest
from babelmill.config.resolve import ROOT, Configuration
from babelmill.core.files import UserError
from babelmill.core.yaml_file import read_yaml
from babelmill.hub import client

FOLDER = "config/presets"
LANGUAGE = "eng"
WORDS = "100000000 words"  # of text, where a preset has no budget
HEADING = ("preset", "parameters", "GPUs", "GiB", "batch", "text", "hours", "for")
NOTE = """\
Hours of training on as many {gpu}s as the preset asks for ({peak:,.0f} TFLOP/s each), calculated; `babelmill plan`
counts with your text. A preset for more GPUs than there are runs on fewer, with the same result. `babelmill presets
NAME` says how to run one."""
WIDTH = 100  # characters of what a preset is for


def names() -> list[str]:
    """Return the names of all presets, sorted."""
    return sorted(path.removesuffix(".yaml") for path in glob.glob("*.yaml", root_dir=ROOT / FOLDER))


def about(name: str) -> str:
    """Return the first comment of a preset: what it is for, and how long it takes."""
    lines = (ROOT / FOLDER / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    comment = []
    for line in lines:
        if not line.startswith("#"):
            break
        comment.append(line.removeprefix("#").strip())
    return " ".join(comment)


def row(name: str, gpu: str) -> list[str]:
    """Return the line of a preset under `HEADING`. UserError: its file is wrong."""
    configuration = Configuration([("presets", {"preset": name, "targets": [LANGUAGE]})])
    resolved, budget = configuration.model(LANGUAGE), configuration.corpus(LANGUAGE).corpus.budget
    gpus = max(1, resolved.resources.gpus)
    size = memory = hours = "?"
    try:
        found = cost_of(configuration, LANGUAGE, gpus, gpu, None, budget_bytes(budget or WORDS, 1.0))
        size, memory, hours = short(found.parameters), f"{found.memory_gib:.0f}", hours_text(found.hours)
    except UserError:
        if not resolved.source:
            raise
        # It goes on from a model of the Hub, which cannot be asked for its size now.
    purpose = textwrap.shorten(re.split(r"\.\s+(?=[A-Z])", about(name))[0].rstrip("."), WIDTH, placeholder=" ...")
    batch = f"{resolved.train.global_batch_tokens:,}"
    return [name, size, f"{gpus}", memory, batch, text(budget or WORDS), hours, purpose]


def text(budget: float | str) -> str:
    """Return the text that a preset trains on: "500 k documents"."""
    if not isinstance(budget, str):
        return f"{budget:g} MB"
    number, unit = budget.split()
    return f"{short(int(number)).replace('.0 ', ' ')} {unit}"


def commands(name: str) -> list[str]:
    """Return lines that run a preset: with text of the configuration, with a dataset, and on fewer GPUs."""
    configuration = Configuration([("presets", {"preset": name})])
    gpus, budget = configuration.model(LANGUAGE).resources.gpus, configuration.corpus(LANGUAGE).corpus.budget
    amount = "" if budget else ", budget: 100M words"
    run = "snakemake --profile profiles/local --resources gpu={gpus} --config preset={name}{more} -- converted/eng"
    hub = f" 'corpus={{hub: [{{repository: allenai/c4, config: en}}]{amount}}}'"
    lines = [run.format(gpus=gpus, name=name, more=""), "", "With text of a dataset on the Hub:", ""]
    lines += [run.format(gpus=gpus, name=name, more=hub)]
    fewer = ["", "On fewer GPUs the result is the same: say how many there are by --resources gpu=N."]
    return lines + (fewer if gpus > 1 else [])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("name", nargs="?", help="a preset, to see its values and the command that runs it")
    parser.add_argument("--gpu", help=f"the GPUs, such as A100 (default: those of this machine, or {ASSUMED_GPU})")


def run(args: argparse.Namespace) -> None:
    """List the presets, or show one."""
    if args.name is None:
        client.WAITS = ()  # a preset that goes on from a model of the Hub is not worth a minute of waiting
        gpu = args.gpu or gpu_here() or ASSUMED_GPU
        peak, problems = known_peak(gpu), []
        rows: list[list[str]] = [list(HEADING)]
        for name in names():
            try:
                rows.append(row(name, gpu))
            except UserError as error:
                problems.append(str(error))
        print("\n".join(aligned(rows, to_the_left=("preset", "for"))))
        print(NOTE.format(gpu=gpu, peak=peak / 1e12), *problems, sep="\n")
        return
    if args.name not in names():
        raise UserError(f"there is no preset {args.name!r}{nearest(args.name, names())}")
    print(textwrap.fill(about(args.name), 120), end="\n\n")
    for section, values in read_yaml(ROOT / FOLDER / f"{args.name}.yaml").items():
        print(f"{section}: " + ", ".join(f"{key} {value}" for key, value in values.items()))
    print("", *commands(args.name), sep="\n")
