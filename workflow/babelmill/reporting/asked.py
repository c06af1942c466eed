"""Say what a report is about: its models, their languages and suites, and where their results are."""

from pathlib import Path
from typing import Any

from babelmill import __version__
from babelmill.config.layers import DEFAULTS, PRESETS
from babelmill.config.resolve import Configuration
from babelmill.config.submissions import backend_of, rules_of_model
from babelmill.config.suites import baselines_of, code_in_suite, suites_of_model
from babelmill.graph import Graph
from babelmill.reporting.published import beside, published
from babelmill.stages import STAGES, about_task

TEMPLATE = Path(__file__).with_name("report.html")
STYLE = Path(__file__).with_name("style.html")  # of all pages


def asked_of(graph: Graph, name: str) -> dict[str, Any]:
    """Return what a report is about; raise a UserError if there is no such batch or model.

    `name`: a batch, a model, `all`, or several of them joined by `+`.
    """
    configuration = graph.configuration
    models = configuration.models_of(name.split("+"))
    of_models = {
        model: {
            "languages": configuration.languages_of(model),
            "suites": suites_of_model(configuration, model),
            "tasks": STAGES["tune"].parts(configuration, model),
            "preset": preset_as_it_stands(configuration, model),
            "results": graph.places(model),
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
