"""Stage `convert`: the exported folder and its model card become the deliverable, `converted/{model}`.

    python -m babelmill.convert --settings results/settings/eng/convert.json --export results/exports/eng \\
        --evaluation results/evaluations/eng --corpora results/corpora/eng --tokenizer results/tokenizers/eng \\
        --model results/models/eng --out converted/eng

By hand, wherever the files are, what training left becomes a folder that loads in transformers (see `by_hand.py`):

    python -m babelmill.convert --from-training results/models/eng --tokenizer results/tokenizers/eng/tokenizer.json \\
        --out FOLDER
    python -m babelmill.convert --from-gpt-bert model.bin --config base.json --tokenizer tokenizer.json --out FOLDER

The card says only what a stage has measured or its user has declared. The folder is built beside its place and renamed
into it, with a manifest over every file.
"""

import argparse
import sys
from pathlib import Path

from babelmill import card, config, manifest, stage
from babelmill.files import atomic_folder, copy_file, read_json, sha256


def convert(args: argparse.Namespace) -> None:
    """Verify what is read, draw, write the card, and put the folder into its place."""
    settings = config.read_settings(args.settings, "convert")
    export = manifest.verify(args.export)
    manifest.verify(args.evaluation, "evaluation.json")
    model = manifest.verify(args.model, "metrics.jsonl")
    manifest.verify_upstream(args.evaluation, args.export, *args.corpora)
    manifest.verify_upstream(args.export, args.model, args.tokenizer)
    evaluation = read_json(args.evaluation / "evaluation.json")
    exported = export["settings"]["export"]
    source = manifest.read(args.tokenizer)["settings"]["tokenizer"]["source"]
    facts = card.Facts(
        name=settings.name,
        variants=exported["variants"],
        default_variant=exported["default_variant"],
        parameters=model["figures"]["parameters"],
        code={name: entry["sha256"] for name, entry in export["files"].items() if name.endswith(".py")},
        languages={code: settings.language_table[code] for code in settings.languages},
        settings=card.shown_settings(model["settings"]),
        **settings.card.model_dump(),
        evaluation=evaluation,
        corpora={folder.name: manifest.read(folder) for folder in args.corpora},
        tokenizer_source=source and (Path(source).name if source.endswith(".json") else source),
        figures=model["figures"],
    )
    with atomic_folder(args.out) as folder:
        for name in export["files"]:
            copy_file(args.export / name, folder / name)
        files = [*export["files"], *card.write(folder, facts, args.model / "metrics.jsonl")]
        upstream = [args.export, args.evaluation, args.model, args.tokenizer, *args.corpora]
        made_with = {path.as_posix(): sha256(path) for path in args.made_with}
        manifest.write(folder, settings, files, upstream, {"evaluation": evaluation, "made_with": made_with})


def main() -> int:
    """The command, in its three forms; each has its own arguments, of which none may be missing."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="python -m babelmill.convert ... --out FOLDER (--help shows the three forms)",
    )
    parser.add_argument("--out", required=True, type=Path, help="the folder to make; by hand, it must not exist")
    parser.add_argument("--log", type=Path, help="also write messages to this file")
    parser.add_argument(
        "--tokenizer", required=True, type=stage.folder, help="the tokenizer's folder; by hand, its tokenizer.json"
    )
    rule = parser.add_argument_group("as the workflow does it")
    rule.add_argument("--settings", type=Path, help="results/settings/{model}/convert.json")
    rule.add_argument("--export", type=stage.folder, help="the exported folder")
    rule.add_argument("--evaluation", type=stage.folder, help="folder of its evaluation")
    rule.add_argument("--corpora", type=stage.folder, nargs="+", help="a folder for each language")
    rule.add_argument("--model", type=stage.folder, help="the trained model's folder")
    rule.add_argument("--made-with", default=[], type=Path, nargs="+", help="settings files of the stages before")
    hand = parser.add_argument_group("by hand, what training left")
    hand.add_argument(
        "--from-training", type=stage.folder, help="a folder like results/models/eng, or a step-*.safetensors of a run"
    )
    old = parser.add_argument_group("by hand, a checkpoint of the published GPT-BERT implementation")
    old.add_argument("--from-gpt-bert", type=Path, help="model.bin, or model_state_dict.bin, which has the average too")
    old.add_argument("--ema", type=Path, help="model_ema.bin, the average of the weights (optional)")
    old.add_argument("--config", type=Path, help="the JSON file with the model's shape that was trained with")
    old.add_argument(
        "--masked-target",
        choices=["next", "same"],
        default="next",
        help="what masked positions predicted: the next token (GPT-BERT), or the same one (BabyBabelLM's code)",
    )
    args = parser.parse_args()
    forms = {
        "from_gpt_bert": ["config"],
        "from_training": [],
        "settings": ["export", "evaluation", "corpora", "model"],
    }
    form = [name for name in forms if getattr(args, name)]
    if len(form) != 1:
        parser.error("one of --settings, --from-training and --from-gpt-bert is required")
    if missing := [name for name in forms[form[0]] if not getattr(args, name)]:
        parser.error(f"--{form[0].replace('_', '-')} needs --{missing[0]} too")
    if form[0] == "settings":
        return stage.run(convert, args)
    from babelmill import by_hand  # and with it PyTorch, which the stage does without

    return stage.run(by_hand.run, args)


if __name__ == "__main__":
    sys.exit(main())
