"""Try a folder as its users would: let the model fill masks, or continue a text (`babelmill show`)."""

import itertools
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


def fitting(folder: Path, tokenizer: Any, given: int, wanted: int, option: str) -> int:
    """Return how many of the wanted tokens fit after the given ones, at least one if any is wanted.

    A UserError says that the model cannot read so many. (A GPT-BERT has no embeddings of positions, and reads more than
    it was made for.)
    """
    if runs_code(folder):
        return wanted
    with torch.device("meta"):
        positions = longest_row(AutoModel.from_config(AutoConfig.from_pretrained(folder)))
    longest = min(int(tokenizer.model_max_length), positions)
    if given + min(wanted, 1) > longest:
        follow = " with those that follow" if wanted else ""
        raise UserError(f"{option} has {given:,} tokens, but the model reads only {longest:,}{follow}: shorten it")
    return min(wanted, longest - given)


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


def complete(folder: Path, prompt: str) -> str:
    """Return the prompt and the model's greedy continuation; a model of masked diffusion fills `GENERATED` masks."""
    if "objective" in read_json(folder / "config.json"):
        return f"  {prompt} ...\n    {unmask(folder, prompt)!r}"
    tokenizer = tokenizer_of(folder)
    given = len(tokenizer(prompt).input_ids)
    if not given and tokenizer.bos_token_id is None:
        raise UserError('--prompt "": the tokenizer has no token for the beginning of a text; write a word or more')
    length = fitting(folder, tokenizer, given, CONTINUED, "--prompt")
    write = pipeline("text-generation", model=str(folder), trust_remote_code=runs_code(folder))
    text = write(prompt, max_new_tokens=length, do_sample=False, repetition_penalty=1.2)[0]["generated_text"]
    return f"  {prompt} ...\n    {text!r}"


def unmask(folder: Path, prompt: str) -> str:
    """Return the prompt and the text that a model of masked diffusion puts into the masks after it, one per pass."""
    tokenizer = tokenizer_of(folder)
    ends = {tokenizer.eos_token_id, tokenizer.sep_token_id}
    tokens = tokenizer(prompt).input_ids
    while tokens and tokens[-1] in ends - {tokenizer.bos_token_id}:  # a published tokenizer adds it, to end the text
        tokens = tokens[:-1]
    length = fitting(folder, tokenizer, len(tokens), GENERATED, "--prompt")
    model: Any = load(AutoModelForMaskedLM, folder, None, **aligned(folder))
    mask = tokenizer.mask_token_id
    mask = getattr(model.config, "mask_token_id", None) if mask is None else mask
    if mask is None:
        raise UserError(f"{folder}: neither tokenizer nor config.json says which token hides another (mask_token_id)")
    answer = generate(model, torch.tensor([tokens]).long(), mask, gen_length=length, steps=length)[0, len(tokens) :]
    text = itertools.takewhile(lambda token: token not in ends, answer.tolist())
    return tokenizer.decode([*tokens, *text], skip_special_tokens=True)
