"""Write the settings file of a report: its models, their languages and suites.

A batch is not a model, so this file is not in `results/settings` but in `results/reports/{name}/settings.json`. If the
models of the batch, the baselines or the release change, this file changes, and Snakemake writes the report again. A
second file there, `made_with.json`, says which results and settings the report was made from, as a manifest
does for a model.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from babelmill import __version__
from babelmill.config.layers import DEFAULTS, PRESETS
from babelmill.config.resolve import Configuration
from babelmill.config.submissions import backend_of, rules_of_model
from babelmill.config.suites import baselines_of, code_in_suite, suites_of_model
from babelmill.core import manifest
from babelmill.core.files import canonical_json, sha256, write_json
from babelmill.file_times import FileTimes
from babelmill.reporting.published import beside, published
from babelmill.stages import STAGES, about_task

TEMPLATE = Path(__file__).with_name("report.html")
STYLE = Path(__file__).with_name("style.html")  # of all pages
MADE_WITH = "made_with.json"


def asked_of(configuration: Configuration, name: str) -> dict[str, Any]:
    """Return what a report is about; raise a UserError if there is no such batch or model.

    `name`: a batch, a model, `all`, or several of them joined by `+`.
    """
    models = configuration.models_of(name.split("+"))
    of_models = {
        model: {
            "languages": configuration.languages_of(model),
            "suites": suites_of_model(configuration, model),
            "tasks": STAGES["tune"].parts(configuration, model),
            "preset": preset_as_it_stands(configuration, model),
        }
        | challenge_of(configuration, model)
        for model in models
    }
    codes = dict.fromkeys(code for model in of_models.values() for code in model["languages"])
    covering = [suite for model in of_models.values() for suite in model["suites"]]
    evaluations = [configuration.model(model).evaluation for model in models]
    suites = [suite for each in evaluations for suite in [*each.suites, *each.snapshot_suites]]
    about = {suite: configuration.suite(suite) for suite in dict.fromkeys([*covering, *suites])}
    tasks = dict.fromkeys(part.rpartition(".")[0] for model in of_models.values() for part in model["tasks"])
    presets = {model["preset"] for model in of_models.values()}
    return {
        "name": name,
        # A file has its keys in alphabetical order.
        **({"order": models} if models != sorted(models) else {}),
        "models": of_models,
        "languages": {code: configuration.table[code].name for code in codes},
        "suites": {
            suite: {
                "title": entry.title or suite,
                "headline": entry.headline,
                "covers": sorted(code for code in codes if code_in_suite(configuration, entry, code)),
                "note": entry.note,
                "license": entry.license,
                "baselines": [each for each in baselines_of(configuration, entry, codes) if each["language"] in codes],
                "originals": [
                    score._asdict() | {"language": code}
                    for code in codes
                    for score in published(suite, configuration.language(code).language_code)
                    if score.preset in presets
                ],
            }
            for suite, entry in about.items()
        },
        "tasks": {task: about_task(configuration, task) for task in tasks},
        "version": __version__,
    }


def challenge_of(configuration: Configuration, model: str) -> dict[str, Any]:
    """Return the entry `challenge` of a model: its title, and the published scores beside which its numbers stand.

    It is empty for a model that has nothing to submit to a challenge.
    """
    rules = rules_of_model(configuration, model)
    if rules is None or not backend_of(configuration, model):
        return {}
    return {"challenge": {"title": rules.title, "published": beside(rules)}}


def preset_as_it_stands(configuration: Configuration, model: str) -> str:
    """Return the preset of a model; "" if the model has another shape, tokenizer or training than the preset says."""
    resolved = configuration.model(model)
    of_preset = (DEFAULTS, f"{PRESETS}{resolved.preset}.yaml")
    changed = any(
        origin not in of_preset and key != "train.seed"
        for key, origin in resolved.origins.items()
        if key.partition(".")[0] in ("tokenizer", "model", "train")
    )
    return "" if changed else resolved.preset


def settings_path(name: str) -> Path:
    """Return the path of a report's settings file."""
    return Path("results/reports", name, "settings.json")


def write_settings(configuration: Configuration, name: str, times: FileTimes | None = None) -> Path:
    """Write the settings of a report if they have changed; return the path of the file.

    `times` also sets the times of the files, so that Snakemake writes the report again if and only if it is outdated.
    For `name`, see `asked_of`.
    """
    files = [Path("reports", f"{name}{ending}") for ending in (".html", ".csv")]
    outputs = [*files, Path("results/benchmarks/report", f"{name}.tsv")]
    return write_changed(settings_path(name), asked_of(configuration, name), files, outputs, times)


def write_changed(
    path: Path, asked: dict[str, Any], files: list[Path], outputs: list[Path], times: FileTimes | None
) -> Path:
    """Write the settings of any result of several models, as `write_settings` does for a report.

    `path`: the settings file. `asked`: its content. `files`: the files of the result. `outputs`: those of its rule.
    """
    if not path.is_file() or path.read_text(encoding="utf-8") != canonical_json(asked):
        write_json(path, asked)
    if times:
        outdated = None
        if (record := path.with_name(MADE_WITH)).is_file():
            before = manifest.read_sealed(record)
            outdated = any(before.get(file) != digest for file, digest in made_with(path, asked, files).items())
        times.obey_report(path, asked["models"], [output for output in outputs if output.exists()], outdated)
    return path


def made_with(settings: Path, asked: dict[str, Any], outputs: Iterable[Path]) -> dict[str, Any]:
    """Return {file: sha256} of what a report is made from, and of the report. Files that do not exist are not in it."""
    files = [settings, *outputs]
    for model, about in asked["models"].items():
        files += [STAGES[stage].record(model, "") for stage in ("train", "export", "evaluate", "convert")]
        files += [STAGES["score"].record(model, suite) for suite in about["suites"]]
        files += [STAGES["tune"].record(model, part) for part in about["tasks"]]
        files.append(STAGES["submission"].record(model, ""))
    return {path.as_posix(): sha256(path) for path in files if path.is_file()}
