"""Train models of BabyLM's strict-small size on a GPU, on a machine without network and without Snakemake.

    git clone https://github.com/moritzlad/BabyLM-Tiny; git clone https://github.com/alexwarstadt/blimp
    python benchmarks/gpu_entry.py prepare build/entry --texts BabyLM-Tiny --blimp blimp  (where Babelmill is installed)
    python benchmarks/gpu_entry.py run build/entry --out OUT --minutes 9                  (on the GPU; again: goes on)

`prepare` writes a configuration: the preset `small`, trained by several recipes for ten epochs of up to ten million
words. It makes corpus, tokenizer, shards and suites, and writes the remaining commands into `jobs.txt`, the most
important model first. It deletes the raw text; the rest of the folder has about 50 MB. `run` does the commands, each on
one GPU. After each, OUT has a line of `entry.jsonl`, and all result files of less than 1 MiB in `entry.tar.gz`: if the
machine is lost in the middle, these are there. A rehearsal on a CPU: `--words 20000 --preset tiny`. (Not run on a GPU
yet.)
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import yaml
from recipes import DOCUMENT, documents, sequences

ROOT = Path(__file__).resolve().parents[1]
HELD_OUT = 300  # one document of so many is for validation
# Files of BabyLM-Tiny. Of a whole clone, the first ones are enough; some mirrors lack large files. `_dev` files of
# train_600k are parts of the files beside them.
TEXTS = (r"train_10M/\w+", r"train_600k/\w+(?<!_dev)", r"1M_\w+", r"wiki_\w+")
# Presets beside the size, and settings. `tuned` was measured where rate times decay times steps was 6 to 11. Here it is
# about 32, and 10 with less decay.
TUNED, PUBLISHED = ["tuned"], []
MODELS = {
    "tuned_1": (TUNED, {"seed": 1}),
    "published_1": (PUBLISHED, {"seed": 1}),
    "less_decay_1": (TUNED, {"seed": 1, "weight_decay": 0.15}),
    "tuned_2": (TUNED, {"seed": 2}),
    "published_2": (PUBLISHED, {"seed": 2}),
    "quarter_1": (TUNED, {"seed": 1, "hybrid_ratio": "1/4"}),
    "tuned_3": (TUNED, {"seed": 3}),
}
# Of the challenge's nine numbers, those whose data are in the clone.
OF_CHALLENGE = {
    "blimp_supplement": "supplement_filtered",
    "entity_tracking_filtered": "entity_tracking",
    "reading": "reading",
}
SMALL_FILE = 2**20  # bytes
NOT_KEPT = re.compile(r"(\.snakemake|results/(compiled|corpus|suite|tokenizer|shards|settings))/")


def git(clone: Path, *arguments: str) -> str:
    """Return what git prints of a clone."""
    return subprocess.run(["git", "-C", clone, *arguments], stdout=subprocess.PIPE, check=True).stdout.decode()


def files_of(clone: Path, folder: str) -> list[str]:
    """Return the files in a folder of a clone, but for those that a mirror lacks: git prints BAD as their size."""
    lines = git(clone, "ls-tree", "-rl", "HEAD", folder).splitlines()  # mode, kind, hash, size and name
    return [name for *_, size, name in map(str.split, lines) if size.isdigit()]


def texts_of(clone: Path, most_words: int) -> list[str]:
    """Return different documents of the same length, of at most so many words together."""
    names, found = files_of(clone, "datasets"), dict[str, None]()  # a set that keeps the order
    for name in (name for pattern in TEXTS for name in names if re.search(rf"/{pattern}\.train$", name)):
        words = re.findall(r"\S+\s*", git(clone, "show", f"HEAD:{name}"))[: most_words - len(found) * DOCUMENT]
        found |= dict.fromkeys("".join(document).strip() for document in documents(words))
        if len(found) * DOCUMENT >= most_words:
            break
    return list(found)


def prepare(folder: Path, texts: Path, blimp: Path, preset: str, most_words: int) -> None:
    """Make what needs no GPU, and write the commands that are left."""
    folder.mkdir(parents=True, exist_ok=True)
    found = texts_of(texts, most_words)
    print(f"{len(found):,} documents of up to {DOCUMENT} words")
    held_out = found[::HELD_OUT]
    unread = set().union(*(sequences(text.split()) for text in held_out))
    train = [text for text in found if unread.isdisjoint(sequences(text.split()))]
    for name, part in (("train", train), ("validation", held_out)):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in part)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    pairs = {"files": [f"{blimp.resolve()}/data/*.jsonl"], "language": "eng", "good": "sentence_good"}
    pairs |= {"bad": "sentence_bad", "phenomenon": "linguistics_term", "paradigm": "UID", "headline": "paradigms"}
    text = {"files": [f"{folder}/train.jsonl"], "validation_files": [f"{folder}/validation.jsonl"]}
    for of_suite in OF_CHALLENGE.values():
        for name in files_of(texts, f"evaluation_data/full_eval/{of_suite}"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(git(texts, "show", f"HEAD:{name}"), encoding="utf-8")
    configuration = {
        "evaluation_data": str(folder / "evaluation_data"),
        "languages": {"eng": {"corpus": text}},
        "models": {
            model: {"languages": ["eng"], "preset": [preset, *presets], "train": train}
            for model, (presets, train) in MODELS.items()
        },
        "suites": {"pairs": pairs},
        "tokenizer": {"prefix_space": True},  # the challenge's reading task needs it
        "train": {"epochs": 10, "precision": "bf16"},
        "evaluation": {"suites": ["pairs", *OF_CHALLENGE], "max_masked_items": 20, "max_documents": None},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(configuration, sort_keys=False), encoding="utf-8")
    snakemake(folder, "--until", "shards", "suite", "--", *(f"converted/{model}" for model in MODELS))
    commands: dict[str, None] = {}
    for model in MODELS:
        listed = snakemake(folder, "-n", "-p", "--", f"converted/{model}")
        commands |= dict.fromkeys(re.findall(r"^python -m babelmill\..*", listed, re.MULTILINE))
    (folder / "jobs.txt").write_text("\n".join(commands) + "\n", encoding="utf-8")
    (folder / "train.jsonl").unlink()


def snakemake(folder: Path, *arguments: str) -> str:
    """Run Snakemake in a folder with its configuration; return what it prints."""
    command = [Path(sys.executable).parent / "snakemake", "--snakefile", ROOT / "workflow/Snakefile"]
    command += ["--profile", ROOT / "profiles/local", "--directory", folder, "--configfile", folder / "config.yaml"]
    done = subprocess.run([*command, *arguments], env=environment(), text=True, capture_output=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout + done.stderr


def environment() -> dict[str, str]:
    """Return the environment of a command of this checkout."""
    paths = [str(ROOT / "workflow"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def run(folder: Path, out: Path, minutes: float) -> int:
    """Do the commands that `prepare` wrote until the time ends, but for what is done; return how many failed.

    After a failure, what needs this result fails, too, in a few seconds.
    """
    out.mkdir(parents=True, exist_ok=True)
    end, failed = time.monotonic() + 60 * minutes, 0
    for line in (folder / "jobs.txt").read_text(encoding="utf-8").splitlines():
        threads = len(os.sched_getaffinity(0))
        arguments = shlex.split(re.sub(r"--threads \d+", f"--threads {threads}", line))[1:]
        settings, began = Path(arguments[2]), time.monotonic()
        stage = settings.parent.name
        name = f"{'converted' if stage == 'convert' else f'results/{stage}'}/{settings.stem}"
        if (folder / name / "manifest.json").exists():
            continue
        with (out / "jobs.log").open("ab") as log:
            job = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=folder,
                env=environment() | {"HF_HUB_OFFLINE": "1"},
                stdout=log,
                stderr=log,
            )
            wait(job, end - began)
        found = {"job": name, "seconds": round(time.monotonic() - began, 1), "exit": job.returncode}
        found |= figures_of(folder / name)
        with (out / "entry.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")
        print(json.dumps(found), flush=True)
        keep(folder, out / "entry.tar.gz")
        if time.monotonic() > end:
            break
        if job.returncode:
            failed += 1
            print("".join((out / "jobs.log").read_text(errors="replace").splitlines(keepends=True)[-8:]), flush=True)
    return failed


def wait(job: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for a job at most so long. Then it is asked to end, and a training saves a checkpoint."""
    for ask in (job.terminate, job.kill):
        try:
            job.wait(max(1.0, seconds))
            return
        except subprocess.TimeoutExpired:
            ask()
            seconds = 60
    job.wait()


def figures_of(result: Path) -> dict[str, Any]:
    """Return the figures of a result, {} if there is none."""
    path = result / "manifest.json"
    return json.loads(path.read_text(encoding="utf-8")).get("figures", {}) if path.exists() else {}


def keep(folder: Path, archive: Path) -> None:
    """Pack all small files of results that were made here."""
    new = archive.with_suffix(".new")
    with tarfile.open(new, "w:gz") as packed:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and path.stat().st_size < SMALL_FILE and not NOT_KEPT.match(name):
                packed.add(path, name)
    new.replace(archive)


def main() -> int:
    """Prepare, or run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    prepared, done = modes.add_parser("prepare"), modes.add_parser("run")
    for mode in (prepared, done):
        mode.add_argument("folder", type=Path)
    prepared.add_argument("--texts", type=Path, required=True, help="a clone of moritzlad/BabyLM-Tiny")
    prepared.add_argument("--blimp", type=Path, required=True, help="a clone of alexwarstadt/blimp")
    prepared.add_argument("--preset", default="small", help="the size of the models")
    prepared.add_argument("--words", type=int, default=10_000_000, help="at most so many words")
    done.add_argument("--out", type=Path, required=True)
    done.add_argument("--minutes", type=float, default=9)
    args = parser.parse_args()
    if args.mode == "prepare":
        prepare(args.folder.resolve(), args.texts, args.blimp, args.preset, args.words)
        return 0
    return run(args.folder.resolve(), args.out, args.minutes)


if __name__ == "__main__":
    sys.exit(main())
