"""Show the scores of a converted model, and text that it completes.

    babelmill show converted/eng --masked "The cat <mask> on the mat." --prompt "The cat"

Only the converted folder is read, with the classes that its users load. So this is also the quickest check that the
folder works where it is.
"""

import argparse
import logging
import os
from pathlib import Path
from typing import Any

from babelmill.core import manifest
from babelmill.core.files import UserError, read_json
from babelmill.core.stage_entry import utf8

GENERATED = 64  # tokens that masked diffusion generates
CONTINUED = 40  # tokens that other models generate

log = logging.getLogger("babelmill")


def figures(folder: Path) -> str:
    """Return the scores of each variant, with standard errors, next to those of a unigram model."""
    from babelmill.evaluation.metrics import metrics_of, shown, units, value_of
    from babelmill.release.card.card import scored_text

    evaluation = manifest.read(folder)["figures"]["evaluation"]
    metrics, measured = metrics_of(evaluation), f"  {units(evaluation)} of {scored_text(evaluation)}"
    if "labels" in evaluation:
        frequent = {"always the most frequent code": evaluation["most_frequent"]}
        lines = [
            f"    {name:<6} {', '.join(f'{metric} {shown(score)}' for metric, score in scores.items())}"
            for name, scores in (evaluation["variants"] | frequent).items()
        ]
        return "\n".join([measured, *lines])
    unigram = evaluation["unigram"]
    lines = [f"{measured} (a unigram model needs {shown(unigram)})"]
    for variant, scores in evaluation["variants"].items():
        found = []
        for name, score in scores.items():
            below = 1 - value_of(score) / value_of(unigram)
            beside = f" ({abs(below):.0%} {'below' if below >= 0 else 'above'} that)"
            found.append(f"{name} {shown(score, metrics[name])}{beside if metrics[name].perplexity else ''}")
        lines.append(f"    {variant:<6} {', '.join(found)}")
    return "\n".join(lines)


def suites(folder: Path) -> str:
    """Return the scores on the suites of minimal pairs, "" if there are none."""
    from babelmill.release.card.card import SuiteScores, percent

    scored = [
        SuiteScores(name, found, []) for name, found in manifest.read(folder)["figures"].get("scores", {}).items()
    ]
    lines = [
        f"    {suite.title} {code}: {', '.join(f'{name} {percent(suite.score(code, name))}' for name in suite.methods)}"
        for suite in scored
        for code in suite.found["languages"]
    ]
    return "\n".join(["  minimal pairs: % that are right, with 95 % intervals", *lines] if lines else [])


def fitting(folder: Path, tokenizer: Any, given: int, wanted: int, option: str) -> int:
    """Return how many of the wanted tokens fit after the given ones, at least one if any is wanted.

    A GPT-BERT has no embeddings of positions, so it reads more than it was made for, with a warning.

    Raises:
        UserError: the model cannot read so many.
    """
    import torch
    from transformers import AutoConfig, AutoModel

    from babelmill.release.folder.loading import runs_code
    from babelmill.training.networks.transformers_models import longest_row

    longest, own = int(tokenizer.model_max_length), runs_code(folder)
    if not own:
        with torch.device("meta"):
            longest = min(longest, longest_row(AutoModel.from_config(AutoConfig.from_pretrained(folder))))
    if given + min(wanted, 1) <= longest:
        return min(wanted, longest - given)
    if not own:
        follow = " with those that follow" if wanted else ""
        raise UserError(f"{option} has {given:,} tokens, but the model reads only {longest:,}{follow}: shorten it")
    log.warning("%s has %d tokens: the model was made for %d, and may be worse beyond", option, given, longest)
    return wanted


def fill_mask(folder: Path, text: str) -> str:
    """Return the five likeliest words for each mask."""
    from transformers import AutoTokenizer, pipeline

    from babelmill.release.folder.loading import aligned, runs_code

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=runs_code(folder))
    mask = tokenizer.mask_token
    if mask is None:
        raise UserError(f"--masked {text!r}: the tokenizer in {folder} has no token for a hidden word")
    if mask not in text:
        raise UserError(f"--masked {text!r}: write {mask} in place of a word")
    fitting(folder, tokenizer, len(tokenizer(text).input_ids), 0, "--masked")
    # The pipeline needs scores in this alignment, whatever config.json says.
    fill = pipeline("fill-mask", model=str(folder), trust_remote_code=runs_code(folder), model_kwargs=aligned(folder))
    found: Any = fill(text)
    masks = (
        found if isinstance(found[0], list) else [found]
    )  # one list for each mask, but for one mask only its answers
    answers = [", ".join(f"{answer['token_str']!r} {answer['score']:.2f}" for answer in mask) for mask in masks]
    return "\n    ".join([f"  {text}", *answers])


def complete(folder: Path, prompt: str, steps: int | None) -> str:
    """Return the prompt and the model's greedy continuation; a model of masked diffusion fills `GENERATED` masks."""
    if "objective" in read_json(folder / "config.json"):
        if steps is not None and steps < 1:
            raise UserError(f"--steps {steps}: one or more steps are needed")
        return f"  {prompt} ...\n    {unmask(folder, prompt, steps or GENERATED)!r}"
    if steps is not None:
        raise UserError("--steps: only a model that was trained by masked diffusion generates in steps; leave it out")
    from transformers import AutoTokenizer, pipeline

    from babelmill.release.folder.loading import runs_code

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=runs_code(folder))
    given = len(tokenizer(prompt).input_ids)
    if not given and tokenizer.bos_token_id is None:
        raise UserError('--prompt "": the tokenizer has no token for the beginning of a text; write a word or more')
    length = fitting(folder, tokenizer, given, CONTINUED, "--prompt")
    generate = pipeline("text-generation", model=str(folder), trust_remote_code=runs_code(folder))
    text = generate(prompt, max_new_tokens=length, do_sample=False, repetition_penalty=1.2)[0]["generated_text"]
    return f"  {prompt} ...\n    {text!r}"


def unmask(folder: Path, prompt: str, steps: int) -> str:
    """Return the prompt and the text that a model of masked diffusion puts into the masks after it."""
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    from babelmill.model.transformers.diffusion_generation import generate
    from babelmill.release.folder.loading import aligned, load, runs_code

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=runs_code(folder))
    given = torch.tensor([beginning(tokenizer, prompt)], dtype=torch.long)
    length = fitting(folder, tokenizer, given.size(1), GENERATED, "--prompt")
    model = load(AutoModelForMaskedLM, folder, None, **aligned(folder))
    mask: Any = getattr(model.config, "mask_token_id", None)
    mask = mask if tokenizer.mask_token_id is None else tokenizer.mask_token_id
    if mask is None:
        raise UserError(f"{folder}: neither tokenizer nor config.json says which token hides another (mask_token_id)")
    tokens = generate(model, given, mask, gen_length=length, steps=steps)[0].tolist()
    answer, ends = tokens[given.size(1) :], {tokenizer.eos_token_id, tokenizer.sep_token_id}
    end = next((place for place, token in enumerate(answer) if token in ends), len(answer))
    return tokenizer.decode(tokens[: given.size(1) + end], skip_special_tokens=True)


def beginning(tokenizer: Any, prompt: str) -> list[int]:
    """Return the tokens of a prompt without the end token that a published tokenizer adds: it would end the text."""
    tokens = tokenizer(prompt).input_ids
    while tokens and tokens[-1] in {tokenizer.eos_token_id, tokenizer.sep_token_id} - {tokenizer.bos_token_id}:
        tokens = tokens[:-1]
    return tokens


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("folder", type=Path, help="converted/{model}")
    parser.add_argument("--masked", type=utf8, help="a text with <mask>, which the model fills")
    parser.add_argument("--prompt", type=utf8, help="the beginning of a text, which the model continues")
    parser.add_argument(
        "--steps",
        type=int,
        help=f"masked diffusion: forward passes for the {GENERATED} tokens; fewer passes are faster",
    )


def run(args: argparse.Namespace) -> None:
    """Print the figures of a converted model, a filled mask and a continuation."""
    if not args.folder.is_dir():
        raise UserError(f"{args.folder}: no such folder; a converted model is expected, such as converted/eng")
    if "evaluation" not in manifest.verify(args.folder)["figures"]:
        raise UserError(f"{args.folder}: not a converted model; name a folder such as converted/eng")
    print(args.folder.resolve())
    print(figures(args.folder))
    if pairs := suites(args.folder):
        print(pairs)
    tried = args.masked is not None or args.prompt is not None
    if tried and not any(args.folder.glob("model*.safetensors")):
        raise UserError(
            f"{args.folder} holds only adapters (export.adapter: only), and its card says how to load them; to try the"
            " model here, set export.adapter: also"
        )
    if tried and "labels" in read_json(args.folder / "config.json"):
        raise UserError(
            f"{args.folder}: a model of labels cannot fill masks or write text; its card says how to use it"
        )
    if tried:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the folder holds everything
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
    if args.masked is not None:
        print(fill_mask(args.folder, args.masked))
    if args.prompt is not None:
        print(complete(args.folder, args.prompt, args.steps))
