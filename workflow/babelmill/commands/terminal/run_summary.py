"""Write the summary of a run: which models are converted, which jobs failed, and what continues.

The Snakefile logs it when a run ends, and, when it begins, which GPUs stay idle. Failed jobs are found in Snakemake's
log, since a job that was cancelled or never started has written no log of its stage.
"""

import glob
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from babelmill.commands.progress.logs import last_words, tail
from babelmill.commands.terminal.key_figures import of_converted, units_of
from babelmill.core import manifest
from babelmill.core.escape import some
from babelmill.core.files import UNREADABLE
from babelmill.core.words import aligned, duration, plural
from babelmill.graph import MODELS_OF, Graph
from babelmill.stages import STAGES

GPU_FILES = "/dev/nvidia[0-9]*"  # one for each GPU, of NVIDIA's driver
TENTH = 0.1  # a corpus that lost a larger share of its input is named
NAMES = 3  # models that are named with a job
LINES = 5  # lines of a failed job's log that are shown
# What Snakemake says when it was interrupted, by Ctrl-C or by SIGTERM.
INTERRUPTED = re.compile(r"^(Terminating processes on user request|Will exit after finishing currently)", re.MULTILINE)
LEFT_EARLY = "the same command continues from there"  # training logs this when a signal ends it
SHOWN_LOG = re.compile(r"^Logfile [^\n]*:\n(=+)\n.*?^\1$", re.MULTILINE | re.DOTALL)  # from show-failed-logs


@dataclass
class Failure:
    """A job that failed in its last attempt."""

    rule: str  # the rule of the job
    output: Path  # its first output
    logs: list[Path] = field(default_factory=list)  # its own log and SLURM's
    status: str = ""  # for a SLURM job, how it ended or why SLURM refused it, in SLURM's words
    attempts: int = 0  # number of attempts

    @property
    def name(self) -> str:
        """Return the name of its result, as in the path of the stage's log, with the models that ask for it."""
        log = next((path for path in self.logs if path.parts[:2] == ("logs", self.rule)), None)
        name = Path(*log.parts[2:]).with_suffix("").as_posix() if log else self.output.as_posix()
        stage = STAGES.get(self.rule)
        models = MODELS_OF.get(stage.path_of(name), []) if stage and not stage.named else []
        return f"{name} ({some(models, NAMES)})" if models else name

    @classmethod
    def reported(cls, rule: str, output: Path, logs: Iterable[str], message: str) -> "Failure":
        """Make a failure from Snakemake's report; `message`: the message of the job's executor."""
        status = re.search(r"(SLURM-job '\d+') failed, SLURM status is: '([^']*)'", message)
        ended = f"{status[1]} {status[2]}".replace("'", "") if status else ""
        if refused := re.findall(r"sbatch: error: (.*?)'?\.?$", message, re.MULTILINE):
            ended = f"sbatch: {'; '.join(refused)}"
        return cls(rule, output, [Path(log) for log in logs if log], ended)

    @property
    def has_error(self) -> bool:
        """Return whether its log contains an error; the log of an interrupted job has none."""
        return any(last_words(log)[0] for log in self.logs) or self.status.startswith("sbatch: ")

    @property
    def left_early(self) -> bool:
        """Return whether it is a training that a signal ended and that has saved a checkpoint."""
        return LEFT_EARLY in self.last_words

    @property
    def last_words(self) -> str:
        """Return the last line of its log, without the time."""
        return re.sub(r"^[\d:]+ ", "", next((words for log in self.logs if (words := last_words(log)[1])), ""))

    def text(self, lines: int) -> str:
        """Return what failed, and the last `lines` lines of its log."""
        attempts = f"{self.attempts} attempts" if self.attempts > 1 else ""
        title = f"{self.rule} {self.name}: {', '.join(filter(None, [attempts, self.status]))}".rstrip()
        if self.status.startswith("sbatch: "):
            return title  # the job has not begun
        for log in self.logs:
            words = [line for line in tail(log) if line.strip()]
            if log.parts[0] != "logs":  # SLURM's log mostly holds messages of Snakemake
                words = [line for line in words if "error: " in line] or words
            if words:
                return "\n    ".join([title, f"{log}:", *(f"  {line}" for line in words[-lines:])])
        return "\n    ".join(
            [title, "left no log, perhaps because memory ran out at its start; see the messages above"]
        )


def own_words(logs: list[str]) -> str:
    """Return Snakemake's logs without the jobs' logs in them: a SLURM job's log has messages of another Snakemake."""
    return SHOWN_LOG.sub("", "".join(Path(log).read_text(encoding="utf-8", errors="replace") for log in logs))


def failures(logs: list[str]) -> list[Failure]:
    """Return the jobs that failed in all attempts and so have no output, from Snakemake's logs of this run."""
    found: dict[str, Failure] = {}
    text = own_words(logs)
    # A message may have several lines, only the first of which is indented; the next event begins with [its time].
    for rule, message in re.findall(r"^Error in rule (\w+):\n(.*?)(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL):
        values = dict(reversed(re.findall(r"^    (\w+): (.*)$", message, re.MULTILINE)))
        output = values.get("output", "").split(", ")[0]
        job = Failure.reported(rule, Path(output), values.get("log", "").partition(" (check")[0].split(", "), message)
        job.attempts = found[f"{rule} {output}"].attempts + 1 if f"{rule} {output}" in found else 1
        found[f"{rule} {output}"] = job
    return [job for job in found.values() if not job.output.exists()]


def summary(logs: list[str], graph: Graph, models: list[str], seconds: float) -> str:
    """Return the summary of a run: where the models asked for are, their scores, what failed, and what will continue.

    `logs`: Snakemake's logs of this run, which began `seconds` ago.
    """
    ended = failures(logs)
    stopped = INTERRUPTED.search(own_words(logs)) is not None
    failed = [job for job in ended if not job.left_early and not (stopped and not job.has_error)]
    interrupted = stopped or any(job.left_early for job in ended)
    done = [model for model in models if graph.result("convert", model).is_there]
    ends = [f"{len(done)} of {plural(len(models), 'model')} converted"] if models else []
    if interrupted:
        left = len(models) - len(done)
        going = f"{plural(left, 'model')} {'continues' if left == 1 else 'continue'}" if left else "it continues"
        ends.append(f"interrupted: {going} from here with the same command")
    if failed:
        ends.append(f"{plural(len(failed), 'job')} failed:")
    end = ", ".join(ends) if interrupted or failed else f"{ends[0] if ends else 'done'} in {duration(seconds)}"
    return "\n".join([*table(done), *losses(graph, models), end, *(f"  {job.text(LINES)}" for job in failed)])


def losses(graph: Graph, models: list[str]) -> list[str]:
    """Return a line for each corpus of the models that lost more than a tenth of its input, or an unknown share."""
    lines = []
    for code in dict.fromkeys(code for model in models for code in graph.configuration.languages_of(model)):
        corpus = graph.result("corpus", code)
        try:
            figures = manifest.read(corpus.path)["figures"]
        except UNREADABLE:
            continue
        share, cut = figures.get("lost", 0), figures.get("cut_short", 0)
        found = [f"{100 * share:.0f} % of the input could not be read"] if share > TENTH else []
        found += [f"the rest of {plural(cut, 'damaged file')} is missing, which may be much"] if cut else []
        if found:
            lines.append(
                f"corpus {code}: {'; '.join(found)} (corpus.on_error: skip); see logs/corpus/{corpus.name}.log"
            )
    return lines


def table(models: list[str]) -> list[str]:
    """Return a table of converted models: parameters, scores, and where they are; [] if there are no models."""
    rows = [(model, *of_converted(model)) for model in models]
    if not rows:
        return []
    rows.insert(0, ("model", "parameters", units_of(models), "where"))
    return ["", *aligned(rows, [False] * 4), ""]


def nvidia_gpus() -> int:
    """Return how many NVIDIA GPUs of this machine jobs may see, without starting the driver."""
    if (chosen := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return len(chosen.split(",")) if chosen not in ("", "-1") else 0
    return len(glob.glob(GPU_FILES))


def idle_gpus(limit: int) -> str:
    """Return a note if a run may use `limit` GPUs of this machine, at least one, and it has more; "" otherwise."""
    if limit == 0 or (count := nvidia_gpus()) <= limit:
        return ""
    return (
        f"this run uses {limit} of this machine's {plural(count, 'GPU')}: to use all, put --resources gpu={count} at"
        f" the end of the command, or write gpu: {count} in the profile"
    )
