"""Put the exported folder and its model card together as the final result, `converted/{model}` (stage `convert`).

    python -m babelmill.convert results/settings/convert/eng.json --threads 2

The card says only what a stage has measured or the user has declared. The folder is built under a temporary name next
to its final place and then renamed. Its manifest lists every file.
"""

import sys
from pathlib import Path
from typing import Any

from babelmill.config.models import SHAPE
from babelmill.config.snapshots import FOLDER, names
from babelmill.core import manifest, stage_entry
from babelmill.core.files import atomic_folder, copy_file, link_or_copy, read_json, sha256, write_json, write_text
from babelmill.core.stage_entry import Job
from babelmill.core.words import short
from babelmill.evaluation.metrics import in_words
from babelmill.evaluation.overlaps import overlap_of
from babelmill.evaluation.tuned_scores import summarize
from babelmill.labels.card import LabelsCard, completed
from babelmill.release.card.card import ModelCard, SuiteScores, shown_settings, snapshot_card, without_path
from babelmill.stages import ConvertStage, CorpusStage, ExportStage, TokenizerStage
from babelmill.tokens import prefix_space


def convert(job: Job[ConvertStage]) -> None:
    """Verify the inputs, draw the figures, write the card, and move the folder to its place."""
    settings = job.settings
    export_folder, evaluated, train = (settings.folder(role) for role in ("export", "evaluation", "train"))
    tokenizer_folder, corpus_folders = settings.folder("tokenizer"), settings.folders("corpora")
    scored, tuned_folders = settings.folders("scores"), settings.folders("tuned")
    export = manifest.verify(export_folder)
    manifest.verify(evaluated, "evaluation.json")
    model = manifest.verify(train, "metrics.jsonl")
    manifest.verify_upstream(evaluated, export_folder, *corpus_folders)
    manifest.verify_upstream(export_folder, train, tokenizer_folder)
    evaluation = read_json(evaluated / "evaluation.json")
    suites, tuned = dict[str, SuiteScores](), {}
    for folder in (*scored, *tuned_folders):
        about, found = manifest.verify(folder, "scores.json")["settings"], read_json(folder / "scores.json")
        manifest.verify_upstream(folder, export_folder)
        if "suite" in about:
            overlap = overlap_of(folder)
            suites[about["suite"]] = SuiteScores(settings.suites[about["suite"]], found, overlap and read_json(overlap))
        else:
            tuned[f"{about['task']}/{about['seed']}"] = found
    exported = ExportStage.from_content(export["settings"], export_folder).export
    asked = TokenizerStage.from_content(manifest.read(tokenizer_folder)["settings"], tokenizer_folder)
    source = (settings.source or asked.of_model) if asked.of_model else asked.tokenizer.source
    precision = model["figures"].get("precision")
    shown, config = shown_settings(model["settings"], precision), read_json(export_folder / "config.json")
    corpora = dict(zip(settings.languages, map(manifest.read, corpus_folders), strict=True))
    if "labels" in config:
        sections = [CorpusStage.from_content(each["settings"], name).corpus for name, each in corpora.items()]
        config = completed(config, evaluation, sections)
    if begun_with := model["figures"].get("source"):
        begun_with |= {"name": settings.source} if settings.source else {}
        shown["model"] |= {"source": begun_with["name"]}
        shown["model"] = {key: config[key] for key in SHAPE if key in config} | shown["model"]
    without_code = transformers_own(config)
    facts: dict[str, Any] = dict(
        name=settings.name,
        export=exported,
        parameters=model["figures"]["parameters"],
        code={name: entry["sha256"] for name, entry in export["files"].items() if name.endswith(".py")},
        languages={code: settings.language_table[code] for code in settings.languages},
        settings=shown,
        model_type=config["model_type"] if without_code else None,
        mask=token_of(export_folder, "mask_token"),
        padless=without_code and None in (config.get("pad_token_id"), token_of(export_folder, "pad_token")),
        published_tokenizer="roles" in export["figures"],
        prefix_space=prefix_space.is_put_in(export_folder / "tokenizer.json"),
        begun_with=begun_with,
        **settings.card.model_dump(),
        evaluation=evaluation,
        snapshots=names(export_folder),
        suites=[suites[name] for name in settings.suites],
        tuned=summarize(tuned.values()),
        about_tasks=settings.tasks,
        corpora=corpora,
        tokenizer_source=source and without_path(source),
        figures=model["figures"],
        metrics_file=train / "metrics.jsonl",
    )
    card = LabelsCard(labels=config["labels"], **facts) if "labels" in config else ModelCard(**facts)
    with atomic_folder(job.out) as folder:
        files = [name for name in export["files"] if not name.startswith(f"{FOLDER}/")]
        for name in files:
            copy_file(export_folder / name, folder / name)
        if "labels" in config:
            write_json(folder / "config.json", config)
        files += card.write(folder)
        upstream = [export_folder, evaluated, *scored, *tuned_folders, train, tokenizer_folder, *corpus_folders]
        scored_as = in_words(evaluation, exported.default_variant)
        known = {
            "summary": f"{short(model['figures']['parameters'])} parameters, {scored_as}: {job.out.as_posix()}",
            "evaluation": evaluation,
            "scores": {name: suite.found for name, suite in suites.items()},
            "tuned": tuned,
            "precision": precision,
            "snapshots": convert_snapshots(export_folder, folder, settings),
        }
        manifest.write(folder, settings, files, upstream, {key: value for key, value in known.items() if value})


def convert_snapshots(export: Path, folder: Path, settings: ConvertStage) -> dict[str, str]:
    """Put the exported snapshots into the converted folder, each with a card; return {name: sha256 of its manifest}.

    Files are hard links if possible.
    """
    found = {}
    for name in names(export):
        source, target = export / FOLDER / name, folder / FOLDER / name
        made = manifest.verify(source, within=export)
        files, figures = list(made["files"]), made["figures"]
        for file in files:
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(source / file, target / file)
        write_text(target / "README.md", snapshot_card(settings.name, name, settings.card.license, figures))
        manifest.write(target, settings, [*files, "README.md"], [source], figures)
        found[name] = sha256(target / manifest.NAME)
    return found


def transformers_own(config: dict[str, Any]) -> bool:
    """Return whether a class of transformers itself holds the weights.

    A label model counts if its encoder is such a class; the code around the encoder is ours.
    """
    return "auto_map" not in config or ("labels" in config and "AutoConfig" not in config["auto_map"])


def token_of(folder: Path, role: str) -> str | None:
    """Return the token of the tokenizer in a folder that has a role, `mask_token`, or None if it names none."""
    paths = [folder / name for name in ("special_tokens_map.json", "tokenizer_config.json")]
    tokens = [read_json(path).get(role) for path in paths if path.is_file()]
    found = next((token for token in tokens if token), None)
    return found["content"] if isinstance(found, dict) else found


if __name__ == "__main__":
    sys.exit(stage_entry.main(ConvertStage, convert, __doc__))
