"""Show what each preset is for and what it costs, or how to run one preset; also the challenges.

    babelmill presets                       # hours on GPUs like those of this machine, as many as each preset asks for
    babelmill presets --gpu A100            # on GPUs of another kind
    babelmill presets 1gpu_standard
    babelmill presets babylm_strict_small   # a challenge (config/challenges/)

A preset is a file in `config/presets/`; your own files in this folder are listed, too. The cost is for a text of the
preset's budget. Without a budget, it is for 100 million words of English, or one million words if the preset asks for
no GPU.
"""

import argparse
import itertools
import re
import textwrap
from pathlib import Path

from babelmill.commands.estimates.machine import ASSUMED_GPU, gpu_here, known_peak
from babelmill.commands.estimates.text_size import BYTES_PER_TOKEN, TrainingText
from babelmill.commands.estimates.training_cost import cost_of, hours_text, tenths
from babelmill.config.challenges import file_of
from babelmill.config.job_sizes import budget_bytes
from babelmill.config.layers import CHALLENGES, PRESETS, nearest
from babelmill.config.own_files import config_file, config_names
from babelmill.config.resolve import Configuration
from babelmill.config.schema import Challenge
from babelmill.config.suites import scores_asked
from babelmill.core.files import UserError
from babelmill.core.words import aligned, plural, short
from babelmill.core.yaml_file import read_yaml
from babelmill.hub.client import impatiently

LANGUAGE = "eng"
HEADING = ("preset", "parameters", "GPUs", "GiB", "text", "hours", "for")
NOTE = (
    "Hours of training are calculated for as many {gpu}s as the preset asks for ({peak:,.0f} TFLOP/s each); without"
    " GPUs, for this machine's processor. `babelmill plan` calculates them for your text. A preset also runs on fewer"
    " GPUs than it asks for, with the same result. `babelmill presets NAME` says more about a preset and how to run it."
)
WIDTH = 100  # characters per line


def names() -> list[str]:
    """Return the names of all presets, sorted."""
    return sorted(config_names(PRESETS))


class Preset:
    """What a preset asks for, and what it costs: parameters, GiB per GPU and hours of training ("?": not known)."""

    def __init__(self, name: str, gpu: str, out_of_reach: str = "") -> None:
        """Read a preset, and calculate what it costs on GPUs of one kind. Raise a UserError if its file is wrong.

        `out_of_reach`: why the Hub cannot be asked for the size of a model, if this is already known.
        """
        path = config_file(f"{PRESETS}{name}.yaml")
        self.name, self.about, self.sections = name, about_of(path), read_yaml(path)
        self.gpus = self.sections.get("resources", {}).get("gpus", 0)  # none for laptops
        configuration = Configuration([("presets", {"preset": name, "targets": [LANGUAGE]})])
        resolved = configuration.model(LANGUAGE)
        self.train, self.budget = resolved.train, configuration.corpus(LANGUAGE).corpus.budget
        budget = self.budget or f"{100 if self.gpus else 1}000000 words"
        number, unit = budget.split(maxsplit=1) if isinstance(budget, str) else (budget, "MB")
        # The amount of text that the cost is for.
        self.text = f"{budget:g} MB" if unit == "MB" else f"{short(int(number)).replace('.0 ', ' ')} {unit}"
        self.parameters = self.memory = self.hours = "?"
        self.unknown = out_of_reach if resolved.source else ""  # why the size is not known
        if self.unknown:
            return
        try:
            with impatiently():
                text = TrainingText(budget_bytes(budget, 1.0) / BYTES_PER_TOKEN, "budget")
                cost = cost_of(configuration, LANGUAGE, self.gpus, gpu, None, text)
        except UserError as error:
            if not resolved.source:
                raise
            self.unknown = str(error)  # it starts from a model of the Hub, whose size cannot be read now
        else:
            self.parameters, self.memory = short(cost.parameters), tenths(cost.memory_gib)
            self.hours = hours_text(cost.hours)


def every_preset(gpu: str) -> tuple[list[Preset], list[str]]:
    """Return what all presets cost, and lines about those that cannot be read or whose size is not known.

    The Hub is asked until it does not answer: it may take long to notice this, and the other requests would fail, too.
    """
    found: list[Preset] = []
    problems: list[str] = []
    out_of_reach = ""
    for name in names():
        try:
            found.append(Preset(name, gpu, out_of_reach))
            out_of_reach = out_of_reach or (found[-1].unknown if "cannot be reached" in found[-1].unknown else "")
        except UserError as error:
            problems.append(str(error))
    for why in dict.fromkeys(each.unknown for each in found if each.unknown):
        problems.append(f"{', '.join(each.name for each in found if each.unknown == why)}: size not known: {why}")
    return found, problems


def table(presets: list[Preset]) -> list[str]:
    """Return a heading and one line per preset, which ends with its purpose, shortened to fit."""
    rows = [[each.name, each.parameters, f"{each.gpus}", each.memory, each.text, each.hours] for each in presets]
    lines = aligned([list(HEADING[:-1]), *rows], [False] + [True] * 5)
    room = WIDTH - len(lines[0]) - 2
    purposes = [HEADING[-1], *(re.split(r"\.\s+(?=[A-Z])|: ", each.about)[0] for each in presets)]
    shortened = (textwrap.shorten(purpose, room, placeholder=" ...") for purpose in purposes)
    return [f"{line}  {purpose}" for line, purpose in zip(lines, shortened, strict=True)]


def challenge_table() -> list[str]:
    """Return a heading and one line per challenge."""
    challenges = Configuration([("presets", {})]).challenges
    rows = [[name, short(each.words), f"{snapshots_of(each)}", each.title] for name, each in challenges.items()]
    return aligned([["challenge", "words", "snapshots", "for"], *rows], [False, True, True, False])


def snapshots_of(challenge: Challenge) -> int:
    """Return how many snapshots a challenge asks for."""
    return len(challenge.settings.get("run", {}).get("snapshots", []))


def challenge_description(name: str) -> list[str]:
    """Return paragraphs on a challenge: the comment of its file, and how to run a model for it."""
    challenge = Configuration([("presets", {})]).challenges[name]
    model = {"models": {"mine": {"challenge": name}}}
    of_model, of_each = scores_asked(Configuration([("presets", model)]), "mine")
    return [
        textwrap.fill(about_of(config_file(file_of(name))), WIDTH),
        f"{short(challenge.words)} words at most, {plural(snapshots_of(challenge), 'snapshot')},"
        f" {plural(of_model, 'suite')}, of which {of_each} for each snapshot",
        "In config/config.yaml:",
        f"models: {{mine: {{challenge: {name}}}}}",
        "snakemake --profile profiles/local -- converted/mine",
    ]


def about_of(path: Path) -> str:
    """Return the first paragraph of the comment at the beginning of a file. It ends at a line without words."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = itertools.takewhile(lambda line: line.startswith("#") and line.strip("# "), lines)
    return " ".join(line.lstrip("#").strip() for line in comment if "yaml-language-server" not in line)


def description(found: Preset, gpu: str) -> list[str]:
    """Return paragraphs on a preset: its purpose, size and cost, its values, and how to run it."""
    where = f"on {plural(found.gpus, gpu)}" if found.gpus else "on this machine's processor"
    cost = (
        f"{found.parameters} parameters, {found.train.global_batch_tokens:,} tokens per batch, {found.memory} GiB of"
        f" memory{' of a GPU' * bool(found.gpus)}; {found.hours} hours of training on {found.text} {where}, calculated."
    )
    paragraphs = [textwrap.fill(found.about, WIDTH), textwrap.fill(cost, WIDTH)]
    if found.unknown:
        paragraphs[-1] += "\n" + textwrap.fill(f"The size is not known: {found.unknown}", WIDTH)
    values = (
        f"{section}: " + ", ".join(f"{key} {value}" for key, value in keys.items())
        for section, keys in found.sections.items()
    )
    return [*paragraphs, "\n".join(values), *commands(found)]


def commands(found: Preset) -> list[str]:
    """Return paragraphs that show how to run a preset: with the user's text, with a dataset, and on fewer GPUs."""
    run = "snakemake --profile profiles/local" + (f" --resources gpu={found.gpus}" if found.gpus else "")
    if found.train.objective == "labels":
        return [
            "In config/config.yaml, with the columns of your table (docs/labels.md):",
            "targets: [occ]\n"
            "languages:\n"
            "  occ_en: {name: Occupations, corpus: {files: [table.csv], text_column: text, label_columns: [code]}}\n"
            f"models: {{occ: {{preset: {found.name}, languages: [occ_en]}}}}",
            f"{run} -- converted/occ",
        ]
    run += f" --config preset={found.name}"
    amount = "" if found.budget else f", budget: {100 if found.gpus else 1}M words"
    paragraphs = [
        f"{run} -- converted/eng",
        "With text of a dataset on the Hub:",
        f"{run} 'corpus={{hub: [{{repository: allenai/c4, config: en}}]{amount}}}' -- converted/eng",
    ]
    if found.gpus > 1:
        paragraphs.append("On fewer GPUs the result is the same: give their number with --resources gpu=N.")
    return paragraphs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="show this preset, and the command that runs it")
    parser.add_argument("--gpu", help=f"assume this GPU, such as A100 (default: the one here, or {ASSUMED_GPU})")


def run(args: argparse.Namespace) -> None:
    """List the presets, or show one."""
    gpu = args.gpu or gpu_here() or ASSUMED_GPU
    peak = known_peak(gpu)
    if args.name is None:
        found, problems = every_preset(gpu)
        notes = [NOTE.format(gpu=gpu, peak=peak / 1e12), *problems]
        print(*table(found), *(textwrap.fill(note, WIDTH) for note in notes), *challenge_table(), sep="\n")
        return
    challenges = config_names(CHALLENGES)
    if args.name in challenges:
        print("\n\n".join(challenge_description(args.name)))
        return
    if args.name not in names():
        raise UserError(f"there is no preset {args.name!r}{nearest(args.name, [*names(), *challenges])}")
    print("\n\n".join(description(Preset(args.name, gpu), gpu)))
