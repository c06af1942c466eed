"""Try a folder as its users would: let the model fill masks, or continue a text (`babelmill show`)."""

import logging
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, pipeline

from babelmill.core.files import UserError, read_json
from babelmill.model.transformers.diffusion_generation import generate
from babelmill.release.folder.loading import aligned, load, runs_code, tokenizer_of
from babelmill.training.networks.transformers_models import longest_row

GENERATED = 64  # tokens that masked diffusion generates
CONTINUED = 40  # tokens that other models generate

log = logging.getLogger("babelmill")


def fitting(folder: Path, tokenizer: Any, given: int, wanted: int, option: str) -> int:
    """Return how many of the wanted tokens fit after the given ones, at least one if any is wanted.

    A GPT-BERT has no embeddings of positions, so it reads more than it was made for, with a warning. A UserError says
    that the model cannot read so many.
    """
    longest, own = int(tokenizer.model_max_length), runs_code(folder)
    if not own:
        with torch.device("meta"):
            longest = min(longest, longest_row(AutoModel.from_config(AutoConfig.from_pretrained(folder))))
    if given + min(wanted, 1) <= longest:
        return min(wanted, longest - given)
    if not own:
        follow = " with those that follow" if wanted else ""
        raise UserError(f"{option} has {given:,} tokens, but the model reads only {longest:,}{follow}: shorten it")
    log.warning("%s has %d tokens: the model was made for %d, and may be worse with more", option, given, longest)
    return wanted


def fill_mask(folder: Path, text: str) -> str:
    """Return the five likeliest words for each mask."""
    tokenizer = tokenizer_of(folder)
    mask = tokenizer.mask_token
    if mask is None:
        raise UserError(f"--masked {text!r}: the tokenizer in {folder} has no token for a hidden word")
    if mask not in text:
        raise UserError(f"--masked {text!r}: write {mask} in place of a word")
    fitting(folder, tokenizer, len(tokenizer(text).input_ids), 0, "--masked")
    # The pipeline needs scores in this alignment, whatever config.json says.
    fill = pipeline("fill-mask", model=str(folder), trust_remote_code=runs_code(folder), model_kwargs=aligned(folder))
    found: Any = fill(text)
    masks = found if isinstance(found[0], list) else [found]  # for a single mask, the pipeline gives no list of lists
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
    tokenizer = tokenizer_of(folder)
    given = len(tokenizer(prompt).input_ids)
    if not given and tokenizer.bos_token_id is None:
        raise UserError('--prompt "": the tokenizer has no token for the beginning of a text; write a word or more')
    length = fitting(folder, tokenizer, given, CONTINUED, "--prompt")
    write = pipeline("text-generation", model=str(folder), trust_remote_code=runs_code(folder))
    text = write(prompt, max_new_tokens=length, do_sample=False, repetition_penalty=1.2)[0]["generated_text"]
    return f"  {prompt} ...\n    {text!r}"


def unmask(folder: Path, prompt: str, steps: int) -> str:
    """Return the prompt and the text that a model of masked diffusion puts into the masks after it."""
    tokenizer = tokenizer_of(folder)
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
