"""`babelmill presets`: what each preset is for, and what it costs; `babelmill presets NAME`: how to run one.

    babelmill presets                       # hours on H100s, as many as each preset asks for
    babelmill presets --gpu A100            # on GPUs of another kind
    babelmill presets 1gpu_standard

A preset is a file in `config/presets/`; put your own beside them, and it is listed. Text is the preset's own budget, or
100 million words, as English has in tier 1.
"""

import argparse
import glob
import re
import textwrap

from babelmill.commands.plan import ASSUMED_GPU, Cost, aligned, cost_of, hours_text, known_peak, short
from babelmill.config.layers import nearest
from babelmill.config.resolve import ROOT, Configuration
from babelmill.core.files import UserError
from babelmill.core.yaml_file import read_yaml
from babelmill.hub import client

FOLDER = "config/presets"
LANGUAGE = "eng"
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


def cost(name: str, gpu: str) -> tuple[Configuration, Cost]:
    """Return a configuration with a preset, and what it costs on GPUs of a kind, as many as it asks for."""
    configuration = Configuration([("presets", {"preset": name, "targets": [LANGUAGE]})])
    gpus = max(1, configuration.model(LANGUAGE).resources.gpus)
    return configuration, cost_of(configuration, LANGUAGE, gpus, gpu, None)


def row(name: str, gpu: str) -> list[str]:
    """Return the line of a preset under `HEADING`."""
    first = re.split(r"\.\s+(?=[A-Z])", about(name))[0].rstrip(".")
    purpose = textwrap.shorten(first, WIDTH, placeholder=" ...")
    try:
        configuration, found = cost(name, gpu)
    except UserError:  # it goes on from a model that cannot be asked for its size now
        return [name, "?", "", "", "", "", "", purpose]
    train = configuration.model(LANGUAGE).train
    budget = configuration.corpus(LANGUAGE).corpus.budget
    return [
        name,
        short(found.parameters),
        f"{found.gpus}",
        f"{found.memory_gib:.0f}",
        f"{train.global_batch_tokens:,}",
        text(budget),
        hours_text(found.hours),
        purpose,
    ]


def text(budget: float | str | None) -> str:
    """Return the text that a preset trains on: "500k documents"."""
    if not isinstance(budget, str):
        return "100M words" if budget is None else f"{budget:g} MB"
    number, unit = budget.split()
    return f"{short(int(number)).removesuffix('.0').replace('.0 ', ' ')} {unit}"


def command(name: str) -> list[str]:
    """Return the lines that run a preset: its text said on the command line, and in a file."""
    gpus = Configuration([("presets", {"preset": name})]).model(LANGUAGE).resources.gpus
    hub = "corpus={hub: [{repository: allenai/c4, config: en}]}"
    return [
        f"snakemake --profile profiles/local --resources gpu={gpus} --config preset={name} -- converted/{LANGUAGE}",
        "",
        "With text of the Hub that is not the default, and fewer GPUs (the result is the same):",
        "",
        f"snakemake --profile profiles/local --resources gpu=1 --config preset={name} '{hub}' -- converted/{LANGUAGE}",
    ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("name", nargs="?", help="a preset, to see its values and the command that runs it")
    parser.add_argument("--gpu", default=ASSUMED_GPU, help=f"the GPUs, such as A100 (default: {ASSUMED_GPU})")


def run(args: argparse.Namespace) -> None:
    """List the presets, or show one."""
    if args.name is None:
        client.WAITS = ()  # a preset that goes on from a model of the Hub is not worth a minute of waiting
        rows = [list(HEADING), *(row(name, args.gpu) for name in names())]
        print("\n".join(aligned(rows, to_the_left=("preset", "for"))))
        print(NOTE.format(gpu=args.gpu, peak=known_peak(args.gpu) / 1e12))
        return
    if args.name not in names():
        raise UserError(f"there is no preset {args.name!r}{nearest(args.name, names())}")
    print(textwrap.fill(about(args.name), 120), end="\n\n")
    for section, values in read_yaml(ROOT / FOLDER / f"{args.name}.yaml").items():
        print(f"{section}: " + ", ".join(f"{key} {value}" for key, value in values.items()))
    print("", *command(args.name), sep="\n")
