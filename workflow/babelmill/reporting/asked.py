"""What a report is about: models, their languages and suites. It stands in the report's own settings file.

A batch is no model, so this file is not one of `results/settings`: it is `results/reports/{name}/settings.json`. It
changes with the models of the batch, with baselines and with the code of reports, and then Snakemake writes the report
again. The folder is of this file alone: Snakemake takes one inventory of a folder, and does not see what appears later.
"""

from pathlib import Path
from typing import Any

from babelmill.config.resolve import Configuration
from babelmill.config.suites import suites_of_model
from babelmill.core import code_digest
from babelmill.core.files import atomic_write, canonical_json, sha256

TEMPLATE = Path(__file__).with_name("report.html")


def asked_of(configuration: Configuration, name: str) -> dict[str, Any]:
    """Return what a report is about.

    Args:
        configuration: of the models.
        name: of the report: a batch, a model, `all`, or several of them with `+` between.

    Raises:
        UserError: there is no such batch or model.
    """
    models = configuration.models_of(name.split("+"))
    of_models = {
        model: {"languages": configuration.languages_of(model), "suites": suites_of_model(configuration, model)}
        for model in models
    }
    codes = dict.fromkeys(code for model in of_models.values() for code in model["languages"])
    suites = dict.fromkeys(suite for model in of_models.values() for suite in model["suites"])
    asked = dict.fromkeys(suite for model in models for suite in configuration.model(model).evaluation.suites)
    about = {suite: configuration.suite(suite) for suite in [*suites, *(each for each in asked if each not in suites)]}
    return {
        "name": name,
        "models": of_models,
        "languages": {code: configuration.table[code].name for code in codes},
        "suites": {
            suite: {
                "title": entry.title or suite,
                "headline": entry.headline,
                "covers": sorted(entry.covered.keys() & codes.keys()),
                "note": entry.note,
                "license": entry.license,
                "baselines": [each.model_dump() for each in entry.baselines if each.language in codes],
            }
            for suite, entry in about.items()
        },
        "code": code_digest.combined(code_digest.modules("report") | {TEMPLATE.name: sha256(TEMPLATE)}),
    }


def settings_path(name: str) -> Path:
    """Return where the settings of a report stand."""
    return Path("results/reports", name, "settings.json")


def write_settings(configuration: Configuration, name: str) -> Path:
    """Write the settings of a report, if they differ from what is there. Returns their path."""
    path, text = settings_path(name), canonical_json(asked_of(configuration, name))
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        with atomic_write(path, "w") as file:
            file.write(text)
    return path
