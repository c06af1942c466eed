"""Put the exported folder and its model card together as the final result, `converted/{model}` (stage `convert`).

    python -m babelmill.convert --settings results/settings/eng/convert.json --export results/exports/eng \\
        --evaluation results/evaluations/eng --corpora results/corpora/eng --tokenizer results/tokenizers/eng \\
        --model results/models/eng --out converted/eng

The card says only what a stage has measured or the user has declared. The folder is built under a temporary name next
to its final place and then renamed. Its manifest lists every file.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from babelmill.config.model_source import SHAPE
from babelmill.config.snapshots import FOLDER
from babelmill.config.stage_settings import ConvertSettings, CorpusSettings, ExportSettings, TokenizerSettings
from babelmill.core import manifest, stage_entry
from babelmill.core.files import atomic_folder, copy_file, read_json, sha256, write_json
from babelmill.labels.folder_config import completed
from babelmill.release.card import card
from babelmill.release.card.card_beginning import without_path
from babelmill.release.card.snapshot_card import convert_snapshots
from babelmill.release.card.suite_card import Scored
from babelmill.runtime.checkpoint import names
from babelmill.settings import read_settings, recorded

# The files of weights. With `export.adapter: only`, the folder has none of them.
MERGED = re.compile(r"model(\.\w+)?\.safetensors(\.index\.\w+\.json)?")


def convert(args: argparse.Namespace) -> None:
    """Verify the inputs, draw the figures, write the card, and move the folder to its place."""
    settings = read_settings(args.settings, ConvertSettings)
    export = manifest.verify(args.export)
    manifest.verify(args.evaluation, "evaluation.json")
    model = manifest.verify(args.model, "metrics.jsonl")
    manifest.verify_upstream(args.evaluation, args.export, *args.corpora)
    manifest.verify_upstream(args.export, args.model, args.tokenizer)
    evaluation = read_json(args.evaluation / "evaluation.json")
    for folder in args.scores:
        manifest.verify(folder, "scores.json")
        manifest.verify_upstream(folder, args.export)
    scores = {folder.name: read_json(folder / "scores.json") for folder in args.scores}
    exported = recorded(export["settings"], ExportSettings, args.export).export
    asked = recorded(manifest.read(args.tokenizer)["settings"], TokenizerSettings, args.tokenizer)
    source = asked.of_model or asked.tokenizer.source
    shown, config = card.shown_settings(model["settings"]), read_json(args.export / "config.json")
    corpora = {folder.name: manifest.read(folder) for folder in args.corpora}
    if "labels" in config:
        sections = [recorded(each["settings"], CorpusSettings, name).corpus for name, each in corpora.items()]
        config = completed(config, evaluation, exported.default_variant, sections)
    if begun_with := model["figures"].get("source"):
        shown["model"] = {key: config[key] for key in SHAPE if key in config} | shown["model"]
    facts = card.Facts(
        name=settings.name,
        variants=list(exported.variants),
        default_variant=exported.default_variant,
        logits_alignment=exported.logits_alignment,
        parameters=model["figures"]["parameters"],
        code={name: entry["sha256"] for name, entry in export["files"].items() if name.endswith(".py")},
        languages={code: settings.language_table[code] for code in settings.languages},
        settings=shown,
        model_type=config["model_type"] if transformers_own(config) else None,
        labels=config.get("labels"),
        mask=token_of(args.export, "mask_token"),
        padless=transformers_own(config)
        and (config.get("pad_token_id") is None or token_of(args.export, "pad_token") is None),
        adapter=exported.adapter,
        published_tokenizer="roles" in export["figures"],
        begun_with=begun_with,
        **settings.card.model_dump(),
        evaluation=evaluation,
        snapshots=names(args.export),
        suites=[Scored(found=scores[name], **about) for name, about in settings.suites.items()],
        corpora=corpora,
        tokenizer_source=source and without_path(source),
        figures=model["figures"],
    )

    def is_kept(name: str) -> bool:
        return exported.adapter != "only" or not MERGED.fullmatch(name)

    with atomic_folder(args.out) as folder:
        kept = [name for name in export["files"] if is_kept(name) and not name.startswith(f"{FOLDER}/")]
        for name in kept:
            copy_file(args.export / name, folder / name)
        if "labels" in config:
            write_json(folder / "config.json", config)
        files = [*kept, *card.write(folder, facts, args.model / "metrics.jsonl")]
        upstream = [args.export, args.evaluation, *args.scores, args.model, args.tokenizer, *args.corpora]
        known: dict[str, Any] = {"evaluation": evaluation} | ({"scores": scores} if scores else {})
        if snapshots := convert_snapshots(args.export, folder, is_kept, settings, settings.card.license):
            known["snapshots"] = snapshots
        made_with = {path.as_posix(): sha256(path) for path in args.made_with}
        manifest.write(folder, settings, files, upstream, known | {"made_with": made_with})


def transformers_own(config: dict[str, Any]) -> bool:
    """Return whether a class of transformers itself holds the weights.

    A model of labels counts if its encoder is such a class; the code around the encoder is ours.
    """
    return "auto_map" not in config or ("labels" in config and "AutoConfig" not in config["auto_map"])


def token_of(folder: Path, role: str) -> str | None:
    """Return the token of the tokenizer in a folder that has a role, `mask_token`, or None if it names none."""
    paths = [folder / name for name in ("special_tokens_map.json", "tokenizer_config.json")]
    tokens = [read_json(path).get(role) for path in paths if path.is_file()]
    found = next((token for token in tokens if token), None)
    return found["content"] if isinstance(found, dict) else found


def main() -> int:
    """Run the stage from the command line."""
    parser = stage_entry.arguments(__doc__)
    parser.add_argument("--export", required=True, type=stage_entry.folder, help="results/exports/{model}")
    parser.add_argument("--evaluation", required=True, type=stage_entry.folder, help="results/evaluations/{model}")
    parser.add_argument(
        "--scores", default=[], type=stage_entry.folder, nargs="*", help="results/scores/{model}/{suite}"
    )
    parser.add_argument("--corpora", required=True, type=stage_entry.folder, nargs="+", help="one for each language")
    parser.add_argument("--tokenizer", required=True, type=stage_entry.folder, help="results/tokenizers/{model}")
    parser.add_argument("--model", required=True, type=stage_entry.folder, help="results/models/{model}")
    parser.add_argument("--made-with", default=[], type=Path, nargs="+", help="settings files of the stages before")
    parser.add_argument("--out", required=True, type=Path, help="converted/{model}")
    return stage_entry.run(convert, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
