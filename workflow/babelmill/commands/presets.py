"""Show what each preset is for and what it costs, or how to run one preset.

    babelmill presets                       # hours on GPUs like those of this machine, as many as each preset asks for
    babelmill presets --gpu A100            # on GPUs of another kind
    babelmill presets 1gpu_standard

A preset is a file in `config/presets/`; your own files in this folder are listed, too. The cost is for a text of the
preset's budget. Without a budget, it is for 100 million words of English, or one million words if the preset asks for
no GPU.
"""

import argparse
import contextlib
import glob
import re
import textwrap
from dataclasses import dataclass

from babelmill.commands.estimates.cost import ASSUMED_GPU, cost_of, hours_text, known_peak, tenths
from babelmill.commands.estimates.machine import gpu_here
from babelmill.commands.estimates.text_size import budget_bytes
from babelmill.commands.terminal.columns import aligned
from babelmill.config.layers import nearest
from babelmill.config.resolve import ROOT, Configuration
from babelmill.core.files import UserError
from babelmill.core.words import short
from babelmill.core.yaml_file import read_yaml

FOLDER = "config/presets"
LANGUAGE = "eng"
WORDS = {False: "100000000 words", True: "1000000 words"}  # for presets without a budget; True: no GPU
HEADING = ("preset", "parameters", "GPUs", "GiB", "text", "hours", "for")
NOTE = (
    "Hours of training are calculated for as many {gpu}s as the preset asks for ({peak:,.0f} TFLOP/s each); without"
    " GPUs, for this machine's processor. `babelmill plan` calculates them for your text. A preset also runs on fewer"
    " GPUs than it asks for, with the same result. `babelmill presets NAME` says more about a preset and how to run it."
)
WIDTH = 100  # characters per line


@dataclass(frozen=True)
class Preset:
    """What a preset asks for, and what it costs.

    Attributes:
        gpus: number of GPUs in its file; 0 if the file names none, as for laptops.
        text: the amount of text that it trains on.
        parameters, memory, hours: parameters of the model, GiB (per GPU), hours of training; "?" if not known.
        batch: tokens per batch.
        unknown: why the size is not known; "" if it is.
    """

    name: str
    gpus: int
    text: str
    parameters: str
    memory: str
    hours: str
    batch: str
    unknown: str = ""


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
        if "yaml-language-server" not in line:
            comment.append(line.removeprefix("#").strip())
    return " ".join(comment)


def gpus_of(name: str) -> int:
    """Return how many GPUs the file of a preset asks for; 0 if it names none."""
    return read_yaml(ROOT / FOLDER / f"{name}.yaml").get("resources", {}).get("gpus", 0)


def preset(name: str, gpu: str, out_of_reach: str = "") -> Preset:
    """Return what a preset costs on GPUs of one kind. Raise a UserError if its file is wrong.

    `out_of_reach`: why the Hub cannot be asked for the size of a model, if this is already known.
    """
    configuration = Configuration([("presets", {"preset": name, "targets": [LANGUAGE]})])
    resolved, gpus = configuration.model(LANGUAGE), gpus_of(name)
    budget = configuration.corpus(LANGUAGE).corpus.budget or WORDS[not gpus]
    size = memory = hours = "?"
    unknown = out_of_reach if resolved.source else ""
    if not unknown:
        try:
            with asking_once() if resolved.source else contextlib.nullcontext():
                found = cost_of(configuration, LANGUAGE, gpus, gpu, None, budget_bytes(budget, 1.0))
            size, memory, hours = short(found.parameters), tenths(found.memory_gib), hours_text(found.hours)
        except UserError as error:
            if not resolved.source:
                raise
            unknown = str(error)  # it starts from a model of the Hub, whose size cannot be read now
    batch = f"{resolved.train.global_batch_tokens:,}"
    return Preset(name, gpus, text(budget), size, memory, hours, batch, unknown)


def asking_once() -> contextlib.AbstractContextManager[None]:
    """Return a context in which a request to the Hub that fails is not repeated."""
    from babelmill.hub.client import impatiently  # which most presets do not need

    return impatiently()


def every_preset(gpu: str) -> tuple[list[Preset], list[str]]:
    """Return what all presets cost, and lines about those that cannot be read or whose size is not known.

    The Hub is asked until it does not answer: it may take long to notice this, and the other requests would fail, too.
    """
    found: list[Preset] = []
    problems: list[str] = []
    out_of_reach = ""
    for name in names():
        try:
            found.append(preset(name, gpu, out_of_reach))
            out_of_reach = out_of_reach or (found[-1].unknown if "cannot be reached" in found[-1].unknown else "")
        except UserError as error:
            problems.append(str(error))
    for why in dict.fromkeys(each.unknown for each in found if each.unknown):
        problems.append(f"{', '.join(each.name for each in found if each.unknown == why)}: size not known: {why}")
    return found, problems


def listed(presets: list[Preset]) -> list[str]:
    """Return a heading and one line per preset, which ends with its purpose, shortened to fit."""
    rows: list[list[str]] = [list(HEADING[:-1])]
    rows += [[each.name, each.parameters, f"{each.gpus}", each.memory, each.text, each.hours] for each in presets]
    purposes = [HEADING[-1], *(re.split(r"\.\s+(?=[A-Z])|: ", about(each.name))[0] for each in presets)]
    lines = aligned(rows, [False] + [True] * 5)
    room = WIDTH - len(lines[0]) - 2
    return [
        f"{line}  {textwrap.shorten(purpose, room, placeholder=' ...')}"
        for line, purpose in zip(lines, purposes, strict=True)
    ]


def facts(found: Preset, gpu: str) -> str:
    """Return a preset's size and cost in a sentence."""
    where = f"on {found.gpus} {gpu}{'s' * (found.gpus > 1)}" if found.gpus else "on this machine's processor"
    return (
        f"{found.parameters} parameters, {found.batch} tokens per batch, {found.memory} GiB of memory"
        f"{' of a GPU' * bool(found.gpus)}; {found.hours} hours of training on {found.text} {where}, calculated."
    )


def text(budget: float | str) -> str:
    """Return the text that a preset trains on: "500 k documents"."""
    if not isinstance(budget, str):
        return f"{budget:g} MB"
    number, unit = budget.split()
    return f"{short(int(number)).replace('.0 ', ' ')} {unit}"


def commands(name: str) -> list[str]:
    """Return lines that run a preset: with text of the configuration, with a dataset, and on fewer GPUs."""
    configuration = Configuration([("presets", {"preset": name})])
    gpus, budget = gpus_of(name), configuration.corpus(LANGUAGE).corpus.budget
    amount = "" if budget else f", budget: {100 if gpus else 1}M words"
    resources = f" --resources gpu={gpus}" if gpus else ""
    if configuration.model(LANGUAGE).train.objective == "labels":
        return labels_lines(name, resources)
    run = "snakemake --profile profiles/local{resources} --config preset={name}{more} -- converted/eng"
    hub = f" 'corpus={{hub: [{{repository: allenai/c4, config: en}}]{amount}}}'"
    lines = [run.format(resources=resources, name=name, more=""), "", "With text of a dataset on the Hub:", ""]
    lines += [run.format(resources=resources, name=name, more=hub)]
    fewer = ["", "On fewer GPUs the result is the same: give their number with --resources gpu=N."]
    return lines + (fewer if gpus > 1 else [])


def labels_lines(name: str, resources: str) -> list[str]:
    """Return lines that show how to run a preset of a model of labels, which needs more than text."""
    return [
        "In config/config.yaml, with the columns of your table (docs/labels.md):",
        "",
        "targets: [occ]",
        "languages:",
        "  occ_en: {name: Occupations, corpus: {files: [table.csv], text_column: text, label_columns: [code]}}",
        f"models: {{occ: {{preset: {name}, languages: [occ_en]}}}}",
        "",
        f"snakemake --profile profiles/local{resources} -- converted/occ",
    ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("name", nargs="?", help="a preset, to see its values and the command that runs it")
    parser.add_argument("--gpu", help=f"the GPUs, such as A100 (default: those of this machine, or {ASSUMED_GPU})")


def run(args: argparse.Namespace) -> None:
    """List the presets, or show one."""
    gpu = args.gpu or gpu_here() or ASSUMED_GPU
    peak = known_peak(gpu)
    if args.name is None:
        found, problems = every_preset(gpu)
        note = textwrap.fill(NOTE.format(gpu=gpu, peak=peak / 1e12), WIDTH)
        print(*listed(found), note, *(textwrap.fill(problem, WIDTH) for problem in problems), sep="\n")
        return
    if args.name not in names():
        raise UserError(f"there is no preset {args.name!r}{nearest(args.name, names())}")
    found = preset(args.name, gpu)
    print(textwrap.fill(about(args.name), WIDTH), textwrap.fill(facts(found, gpu), WIDTH), sep="\n\n")
    if found.unknown:
        print(textwrap.fill(f"The size is not known: {found.unknown}", WIDTH))
    print()
    for section, values in read_yaml(ROOT / FOLDER / f"{args.name}.yaml").items():
        print(f"{section}: " + ", ".join(f"{key} {value}" for key, value in values.items()))
    print("", *commands(args.name), sep="\n")
