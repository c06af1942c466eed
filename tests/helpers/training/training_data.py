"""Make small shards, a tokenizer and settings for tests of the training stage, without the earlier stages."""

import contextlib
import copy
import functools
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import yaml

from babelmill.config import schema
from babelmill.core import manifest
from babelmill.core.files import read_json, sha256, write_json
from babelmill.stages import TrainStage, key_of
from babelmill.tokens.shard_file import Labels, ShardFile, write_shard
from babelmill.tokens.vocabulary import Vocabulary
from babelmill.training.batches import TokenStream
from babelmill.training.plan import plan
from babelmill.training.plan.objectives import objective_of
from babelmill.training.plan.rows import Packed, Rows
from helpers import ROOT
from helpers.programs import held
from helpers.programs.prepared import Program, run_module
from helpers.stages import any_settings, show_as, write_job

SPECIAL = ["<unk>", "<s>", "</s>", "<pad>", "<mask>", *(f"<special_{i}>" for i in range(11))]
VOCABULARY = Vocabulary(size=96, bos=1, eos=2, pad=3, mask=4, special=tuple(range(16)))

TINY = {
    "model": {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_hidden_layers": 2},
    "train": {
        "seed": 7,
        "max_steps": 12,
        "global_batch_tokens": 160,
        "batch_reduction": 1.0,
        "sequence_lengths": [16, 32],
        "phase_starts": [0.0, 0.7],
        "precision": "fp32",
    },
}


@functools.cache
def defaults() -> dict[str, dict]:
    """Return the default settings, which take a tenth of a second to read."""
    return yaml.safe_load((ROOT / "config/defaults.yaml").read_text(encoding="utf-8"))


def section(name: str, **values):
    """Return a section of the settings: the defaults, the tiny values above, and then these."""
    return schema.SECTIONS[name].model_validate(copy.deepcopy(defaults()[name]) | TINY.get(name, {}) | values)


def train_settings(languages: list[str], model: schema.Model, train: schema.Train) -> TrainStage:
    """Return the settings of the training stage as it reads them."""
    sections = {"model": model, "train": train, "labels": section("labels"), "mixture": schema.Mixture(weights="size")}
    return TrainStage(languages=languages, **sections)


def documents(count: int, seed: int = 0, longest: int = 60) -> list[np.ndarray]:
    """Return token sequences that can be learnt: each token follows from the one before, except for some noise."""
    random = np.random.default_rng(seed)
    result = []
    for length in random.integers(1, longest, count):
        tokens = [int(random.integers(16, 96))]
        for noise in random.random(length - 1):
            tokens.append(int(random.integers(16, 96)) if noise < 0.2 else 16 + (5 * (tokens[-1] - 16) + 1) % 80)
        result.append(np.array([1, *tokens, 2]))
    return result


def write_documents(
    path: Path, texts: list[np.ndarray], tokenizer_sha256: str = "none", prompts: list[int] | None = None
) -> ShardFile:
    """Write a shard of these documents, of whose tokens so many belong to `prompts`."""
    lengths = (None if prompts is None else np.array([length]) for length in prompts or texts)
    batches = ((text, np.array([len(text)]), length) for text, length in zip(texts, lengths, strict=True))
    write_shard(path, VOCABULARY.size, tokenizer_sha256, batches)
    return ShardFile.open(path)


def stream(
    shards: list[ShardFile], seed: int = 7, graphs=None, objective: str = "hybrid"
) -> tuple[TokenStream, list[Packed]]:
    """Return the tokens of some shards on the CPU, and their rows."""
    import torch

    about = objective_of(section("train", objective=objective))
    tokens = TokenStream(shards, VOCABULARY, seed, torch.device("cpu"), about, graphs=graphs)
    return tokens, [Packed(shard.offsets, shard.responses) for shard in shards]


def every_row(layouts: list[Packed], length: int, mask_rate: float | None) -> Rows:
    """Return all rows of all languages once, masked at this rate, or causal."""
    train = section("train", **({} if mask_rate is None else {"mask_rate_end": mask_rate}))
    return plan.every_row(layouts, length, objective_of(train), 1 if mask_rate is None else 0)


class Data:
    """Holds a tokenizer and shards in a folder, and runs `babelmill.train` on them."""

    MODEL: ClassVar[dict[str, Any]] = {}
    TRAIN: ClassVar[dict[str, Any]] = {}

    def __init__(self, folder: Path, languages=("eng",)):
        self.folder, self.languages = folder, list(languages)
        tokenizer, files = folder / "tokenizer", ["train.safetensors", "validation.safetensors"]
        write_tokenizer(tokenizer)
        for i, language in enumerate(self.languages):
            shards = folder / "shards" / language
            for name in files:
                self.write_shard(shards / name, i, sha256(tokenizer / "tokenizer.json"))
            made = {Path(name).stem: ShardFile.open(shards / name) for name in files}
            figures = {
                "bytes": {split: 5 * len(shard.tokens) for split, shard in made.items()},
                "words": {split: len(shard.tokens) for split, shard in made.items()},
            }
            with contextlib.chdir(folder):  # paths in manifests are relative, so that the whole can be copied
                manifest.write(f"shards/{language}", any_settings(), files, ["tokenizer"], figures)
        self.settings()
        self.run_settings()

    def write_shard(self, path: Path, number: int, tokenizer_sha256: str) -> None:
        """Write a shard of the language of this number."""
        texts = documents(120 // (number + 1) if path.stem == "train" else 12, seed=10 * number + len(path.stem))
        write_documents(path, texts, tokenizer_sha256)

    @classmethod
    def at(cls, folder: Path, like: "Data | None" = None) -> "Data":
        """Return the data in a folder. `like`: first copy it from there, without results of training."""
        data = cls.__new__(cls)
        data.folder, data.languages = folder, like.languages if like else ["eng"]
        if like:
            results = {str(like.folder): ["model", "logs"], str(like.folder / "results"): ["train", "checkpoints"]}
            shutil.copytree(like.folder, folder, ignore=lambda at, _: results.get(at, []), symlinks=True)
        return data

    @property
    def base(self) -> bool:
        """Return whether the model continues from the folder `base`."""
        return (self.folder / "base").is_dir()

    def settings(self, model=None, mixture: str | float = "size", labels=None, **train) -> None:
        """Write the train settings: tiny ones, with these values changed."""
        sections = {"model": section("model", **(model or self.MODEL)), "train": section("train", **self.TRAIN | train)}
        if sections["train"].objective == "labels":
            few = {"code": "general", "block_size": 7, "decoder_layers": 1}
            sections["labels"] = section("labels", **few | (labels or {}))
        made_from = {"tokenizer": ["tokenizer"], "shards": [f"shards/{language}" for language in self.languages]}
        made_from |= {"source": ["base"]} if self.base else {}
        about = {"languages": self.languages} | ({"begin_with": "model.safetensors"} if self.base else {})
        about |= {name: each.written() for name, each in sections.items()} | {"mixture": {"weights": mixture}}
        write_job(self.folder, "train", "now", made_from, **about)

    def run_settings(self, **run) -> None:
        """Write the run settings."""
        values = {"checkpoint_every": 4, "log_every": 1, "validate_every": 6}
        values |= {"micro_batch_tokens": 96} | run
        about = {"name": "test", "run": section("run", **values).model_dump()}
        write_json(self.folder / "results/settings/run/now.json", about)

    @property
    def name(self) -> str:
        """Return the name of the result that the present settings ask for."""
        return f"test-{key_of(read_json(self.folder / 'results/settings/train/now.json'))}"

    def command(self, out: str = "model", processes: int = 1, *more: str) -> list[str]:
        """Return the stage's module and arguments, to be run in the folder. Its result is shown as `out` there."""
        for kind in ("train", "run"):
            shutil.copy(
                self.folder / f"results/settings/{kind}/now.json",
                self.folder / f"results/settings/{kind}/{self.name}.json",
            )
        show_as(self.folder / out, self.result)
        settings = f"results/settings/train/{self.name}.json"
        return ["babelmill.train", settings, "--threads", str(processes), "--processes", str(processes), *more]

    def start(self, *arguments, hold: str) -> Program:
        """Start the stage in its own session; `hold`: where it waits for a signal or for `go_on` (`held.py`)."""
        (self.folder / "go").unlink(missing_ok=True)
        self.half_written = {*self.checkpoints.glob(HALF.format("*"))}
        return Program(
            "-m",
            *self.command(*arguments),
            environment=os.environ | {held.VARIABLE: hold},
            session=True,
            cwd=self.folder,
        )

    def at_step(self, step: int, processes: int = 1) -> Program:
        """Start the stage, and return it once it has recorded a step; it waits at the end of the next one."""
        process = self.start("model", processes, hold=f"vote {step + 1}")
        wait_for_step(self, step, process)
        return process

    def interrupt(self, step: int, number: int = signal.SIGTERM, processes: int = 1, group: bool = False) -> str:
        """Send the stage a signal after a step, or to its whole `group`. Return its output."""
        process = self.at_step(step, processes)
        (os.killpg if group else os.kill)(process.pid, number)
        output = process.communicate()[1]
        assert process.returncode == (-number if number == signal.SIGKILL else 75), output
        assert "Traceback" not in output, output
        return output

    def go_on(self) -> None:
        """Let a training go on that waits."""
        (self.folder / "go").touch()

    def train(self, *arguments, environment: dict | None = None, code: int = 0) -> str:
        """Run the stage to its end. Return its output."""
        done = run_module(*self.command(*arguments), environment={**os.environ, **(environment or {})}, cwd=self.folder)
        assert done.returncode == code, done.stderr
        return done.stderr

    def metrics(self, out: str = "model") -> list[dict]:
        """Return the lines of a finished run's record."""
        return read_metrics(self.folder / out / "metrics.jsonl")

    def weights(self, out: str = "model") -> tuple[str, str]:
        """Return digests of both sets of weights, which are equal if two runs are."""
        return tuple(sha256(self.folder / out / name) for name in ("model.safetensors", "ema.safetensors"))

    @property
    def result(self) -> Path:
        """Return the result that the present settings ask for."""
        return self.folder / "results/train" / self.name

    @property
    def log(self) -> Path:
        """Return the log of the stage with the present settings."""
        return self.folder / f"logs/train/{self.name}.log"

    @property
    def runs(self) -> list[Path]:
        """Return the folders of runs."""
        return sorted(self.checkpoints.glob("*"))

    @property
    def checkpoints(self) -> Path:
        """Return the folder of the folders of runs."""
        return self.folder / "results/checkpoints"


HALF = "*/.step-{}.safetensors.*"  # a checkpoint that is not whole


def read_metrics(path: Path) -> list[dict]:
    """Parse a metrics.jsonl."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def first_of(process: Program, find: Callable[[], Iterable[Path]]) -> Path:
    """Wait until there is such a file, and return it. Fail if the process ends before."""
    while process.poll() is None:
        for path in find():
            return path
        time.sleep(0.002)
    raise AssertionError(f"ended before: {process.communicate()[1]}")


def wait_for_step(data: Data, step: int, process: Program) -> None:
    """Wait until a run has recorded a step."""

    def has_it(record: Path) -> bool:
        lines = record.read_text(encoding="utf-8").split("\n")[:-1]  # the last one may be half written
        return any(f'"step": {done}, "kind": "train"' in line for line in lines for done in (step, step + 1))

    first_of(process, lambda: filter(has_it, data.checkpoints.glob("*/metrics.jsonl")))


def wait_for_writing(data: Data, process: Program, step: int | None = None) -> Path:
    """Wait until a checkpoint is being written, that of a step or any. Return its file."""
    name = HALF.format("*" if step is None else f"{step:08}")
    return first_of(process, lambda: {*data.checkpoints.glob(name)} - data.half_written)


# A run that nothing disturbed, for tests of those that something did (`finished` in conftest.py).

STEPS = 60
# In the first step, gradients of 0 are rounding alone. With the default eps of 1e-8, LAMB makes whole updates of them.
UNDISTURBED = {"max_steps": STEPS, "eps": 1e-6}
# What decays and averages weights in other ways; kills come before and after the first step of the mean.
NORBERT4 = {"model": {"architecture": "norbert4", "attention_probs_dropout_prob": 0.1, "hidden_dropout_prob": 0.1}}
MUON = {"optimizer": "muon", "learning_rate": 0.005, "weight_decay": 2.0, "average_last": 0.5}
EXPECTED = sorted([(step, "train") for step in range(1, STEPS + 1)] + [(step, "validation") for step in (20, 40, 60)])


def train_undisturbed(folder: Path) -> None:
    """Train to the end."""
    data = Data(folder)
    data.settings(**UNDISTURBED)
    data.run_settings(checkpoint_every=5, validate_every=20)
    data.train()


def logged(lines: list[dict]) -> list[tuple[int, str]]:
    """Return step and kind of the lines of a record, in the order of the steps."""
    return sorted((line["step"], line["kind"]) for line in lines)


def results(data: Data) -> list[tuple]:
    """Return the part of a record that does not depend on the clock."""
    keys = ("step", "kind", "loss", "ema_loss", "grad_norm", "accuracy", "tokens", "skipped")
    return sorted(tuple(line.get(key) for key in keys) for line in data.metrics())


def assert_same(data: Data, finished: Data) -> None:
    """Check that the weights are bit for bit those of the undisturbed run, and every step is logged once."""
    assert data.weights() == finished.weights()
    assert logged(data.metrics()) == EXPECTED
    assert results(data) == results(finished)


def assert_near(data: Data, finished: Data) -> None:
    """Check the same except for rounding, as on other numbers of processes."""
    from safetensors.torch import load_file

    for name in ("model.safetensors", "ema.safetensors"):
        assert largest_difference(*(load_file(each.folder / "model" / name) for each in (data, finished))) < 1e-5
    assert logged(data.metrics()) == EXPECTED


def largest_difference(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """Return the largest difference of two models' weights.

    The last mixing weights of a GPT-BERT are compared without their length, which no output depends on: a layer norm follows.
    """
    from torch.nn import functional as F

    assert ours.keys() == theirs.keys()
    for last in sorted(key for key in theirs if key.startswith("transformer.dwa_modules.alphas."))[-1:]:
        ours, theirs = ({**weights, last: F.normalize(weights[last], dim=0)} for weights in (ours, theirs))
    return max((ours[key] - value).abs().max().item() for key, value in theirs.items())


# Labelled text.

TRADES = ("farmer", "fisher", "smith", "baker", "weaver", "miller")


def labelled(count: int, seed: int) -> tuple[list[np.ndarray], list[int], list[list[int]]]:
    """Return descriptions of one or two trades: tokens, those of the context, and the trades. A trade is a token or two."""
    random = np.random.default_rng(seed)
    texts, contexts, codes = [], [], []
    for _ in range(count):
        mine = random.permutation(len(TRADES))[: 1 + int(random.random() < 0.3)]
        words = [16 + 3 * int(trade) + int(random.integers(2)) for trade in mine]
        noise = random.integers(60, 90, random.integers(0, 6))
        context = random.integers(90, 93, int(random.random() < 0.5))
        texts.append(np.array([1, *context, *random.permutation([*words, *noise]), 2]))
        contexts.append(len(context))
        codes.append([int(trade) for trade in mine])
    return texts, contexts, codes


def write_labelled(path: Path, count: int, seed: int, tokenizer_sha256: str = "none", names=TRADES) -> ShardFile:
    """Write a shard of them."""
    texts, contexts, codes = labelled(count, seed)
    pairs = list(zip(texts, contexts, strict=True))
    batches = ((text, np.array([len(text)]), np.array([context])) for text, context in pairs)
    ends = np.concatenate([[0], np.cumsum([len(each) for each in codes])])
    labels = Labels(np.concatenate(codes).astype(np.int32), ends, tuple(names))
    own = [" ".join(f"word{token}" for token in text[1 + context : -1]) for text, context in pairs]
    write_shard(path, VOCABULARY.size, tokenizer_sha256, batches, labels, [own])
    return ShardFile.open(path)


class LabelledData(Data):
    """Holds a tokenizer and labelled shards in a folder, and runs `babelmill.train` on them."""

    BERT: ClassVar = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    MODEL: ClassVar = {"architecture": "transformers", "config": {"model_type": "bert", **BERT}}
    TRAIN: ClassVar = {"objective": "labels", "sequence_lengths": [16], "phase_starts": [0.0], "ema_decay": 0.9}

    def __init__(self, folder: Path, languages=("eng", "deu")):
        super().__init__(folder, languages)

    def write_shard(self, path: Path, number: int, tokenizer_sha256: str) -> None:
        """Write a shard of the language of this number."""
        write_labelled(path, 90 if path.stem == "train" else 20, 10 * number + len(path.stem), tokenizer_sha256)


def export(data: LabelledData) -> Path:
    """Run the stage `export`. Return the folder."""
    made_from = {"train": [f"results/train/{data.name}"], "tokenizer": ["tokenizer"]}
    made_from |= {
        "shards": [f"shards/{language}" for language in data.languages],
        "source": ["base"] if data.base else [],
    }
    settings = write_job(
        data.folder, "export", "test", made_from, languages=data.languages, export=section("export").written()
    )
    run_module("babelmill.export", settings, cwd=data.folder, check=True)
    show_as(data.folder / "export", data.folder / "results/export/test")
    return data.folder / "export"


def make_labeller(folder: Path) -> None:
    """Train a model of labels for four steps, and export it."""
    data = LabelledData(folder)
    data.settings(max_steps=4)
    data.train()
    export(data)


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer of `VOCABULARY`, whose other entries are words such as `word16`."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

    from babelmill.tokens.tokenizer_file import begin_with_bos

    names = SPECIAL + [f"word{i}" for i in range(len(SPECIAL), VOCABULARY.size)]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    begin_with_bos(tokenizer)
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    manifest.write(folder, any_settings("tokenizer"), ["tokenizer.json"])
