"""`python -m babelmill.why eng`: what would run, stage by stage, and why, in a person's words.

It compares the manifests that stand in the results with the settings and files of now, so it needs nothing that
Snakemake remembers. `snakemake -n` decides by the same files; this says which value in them is the reason.
"""

import argparse
import hashlib
import os
import sys
from pathlib import Path

from babelmill import config, manifest
from babelmill.configuration import LANGUAGE_STAGES, SETTINGS, Configuration
from babelmill.files import UserError, canonical_json, sha256
from babelmill.globs import expand_glob
from babelmill.layers import flatten

# Each stage: its folder, and the stages that it reads.
STAGES = {
    "download": ("results/downloads/{language}", []),
    "corpus": ("results/corpora/{language}", ["download"]),
    "tokenizer": ("results/tokenizers/{model}", ["corpus"]),
    "shards": ("results/shards/{model}/{language}", ["tokenizer", "corpus"]),
    "train": ("results/models/{model}", ["tokenizer", "shards"]),
    "export": ("results/exports/{model}", ["train", "tokenizer", "shards"]),
    "evaluate": ("results/evaluations/{model}", ["export", "corpus", "shards"]),
    "convert": ("converted/{model}", ["export", "evaluate", "corpus", "tokenizer", "train"]),
}


def changed_values(before: dict, now: dict) -> list[str]:
    """Which settings differ, as `tokenizer.vocab_size 8192 -> 4096`. Code and sources have words of their own."""
    before, now = (flatten({k: v for k, v in part.items() if k not in ("code", "sources")}) for part in (before, now))
    return [
        f"{key} {before.get(key)} -> {now.get(key)}" for key in sorted(before | now) if before.get(key) != now.get(key)
    ]


def changed_sources(recorded: dict, before: dict, now: dict) -> list[str]:
    """Which local files differ from those that the manifest lists."""
    if before.get("sources") == now.get("sources"):
        return []
    if now["stage"] == "tokenizer":
        return [f"{path} replaced" for path in now["sources"]]
    reasons = []
    listed = {entry["path"]: entry for entry in recorded["figures"].get("sources", [])}
    present = {path for pattern in now.get("sources", {}) for path in expand_glob(pattern)}
    for path in sorted(listed.keys() | present):
        if path not in present:
            reasons.append(f"corpus file {path} removed")
        elif path not in listed:
            reasons.append(f"corpus file {path} added")
        else:
            status = os.stat(path)
            if (status.st_size, status.st_mtime_ns) != (listed[path]["bytes"], listed[path]["mtime_ns"]):
                reasons.append(f"corpus file {path} replaced")
    return reasons or ["source files changed"]


def missing(folder: Path) -> str | None:
    """What is not there of a stage's results; None if all is. It matters only to what reads it, or at the end."""
    if not (folder / manifest.NAME).is_file():
        return "has not run yet"
    absent = (folder / name for name in manifest.read(folder)["files"] if not (folder / name).is_file())
    path = next(absent, None)
    return f"{path} is missing" if path else None


def reasons(configuration: Configuration, stage: str, name: str, folder: Path) -> list[str]:
    """What about a stage that has run differs from now: its settings, its code, its files, what it was made from."""
    if not (folder / manifest.NAME).is_file():
        return []
    recorded = manifest.read(folder)
    before, now = recorded["settings"], configuration.settings(name, stage)
    found = changed_values(before, now)
    if before.get("code") != now["code"]:
        found.append(f"source code of babelmill.{stage} changed")
    found += changed_sources(recorded, before, now)
    for file, entry in recorded["files"].items():
        path = folder / file
        if path.is_file() and path.stat().st_size != entry["bytes"]:
            found.append(f"{path} was changed by something else")
    for source, digest in recorded["upstream"].items():
        path = Path(source, manifest.NAME)
        if path.is_file() and sha256(path) != digest:
            found.append(f"{source} is not the one it was made from")
    return found


def made_with_others(configuration: Configuration, stage: str, name: str, model: str) -> bool:
    """Whether the converted model was made with other settings of a stage than those of now."""
    converted = Path("converted", model)
    if not (converted / manifest.NAME).is_file():
        return False
    path = (SETTINGS / name / f"{stage}.json").as_posix()
    digest = manifest.read(converted)["figures"].get("made_with", {}).get(path)
    now = canonical_json(configuration.settings(name, stage))
    return digest is not None and digest != hashlib.sha256(now.encode()).hexdigest()


def explain(configuration: Configuration, model: str) -> list[tuple[str, list[str]]]:
    """(stage, reasons) of every stage of a model in order; per-language stages once for each language."""
    languages = configuration.languages_of(model)
    jobs = {}  # (stage, language or "") -> (folder, own reasons)
    for stage, (pattern, _) in STAGES.items():
        for language in languages if "{language}" in pattern else [""]:
            if stage == "download" and not configuration.hub_source(language):
                continue
            name = language if stage in LANGUAGE_STAGES else model
            folder = Path(pattern.format(model=model, language=language))
            jobs[stage, language] = folder, reasons(configuration, stage, name, folder)

    for (stage, language), (folder, own) in jobs.items():
        name = language if stage in LANGUAGE_STAGES else model
        if missing(folder) and not own and made_with_others(configuration, stage, name, model):
            own.append("has no result since its settings changed")

    def reads(job) -> list[tuple[str, str]]:
        """The jobs whose results a job reads; one of a language reads what is of this language alone."""
        stage, language = job
        return [
            other for other in jobs if other[0] in STAGES[stage][1] and (not language or other[1] in ("", language))
        ]

    running = {job for job, (_, own) in jobs.items() if own}
    last = list(jobs)[-1]
    if missing(jobs[last][0]):
        running.add(last)
    while True:  # what reads a result that is made anew runs; what is missing runs if something that runs reads it
        more = {job for job in jobs if running.intersection(reads(job))}
        more |= {other for job in running for other in reads(job) if missing(jobs[other][0])}
        if more <= running:
            break
        running |= more

    lines = []
    for job, (folder, own) in jobs.items():
        stage, language = job
        because = list(dict.fromkeys(other[0] for other in reads(job) if other in running))
        found = []
        if job in running:
            found = own or list(filter(None, [missing(folder)]))
            found = found or [f"runs because {' and '.join(because)} {'does' if len(because) == 1 else 'do'}"]
        lines.append((f"{stage} {language}" if language and len(languages) > 1 else stage, found))
    return lines


def main() -> int:
    """Print, stage by stage, what would run for a model and why."""
    parser = argparse.ArgumentParser(prog="python -m babelmill.why", description=main.__doc__)
    parser.add_argument("models", nargs="*", help="model names (default: the configuration's targets)")
    config.add_arguments(parser)
    args = parser.parse_args()
    try:
        configuration = config.from_arguments(args)
        for model in args.models or configuration.targets():
            print(model)
            for stage, found in explain(configuration, model):
                print(f"  {stage:<16} {'; '.join(found) or 'up to date'}")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
