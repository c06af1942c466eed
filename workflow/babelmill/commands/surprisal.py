"""Write the surprisal of each word of a text: -log2 p in bits, as tab-separated values.

    babelmill surprisal converted/eng sentences.txt > surprisal.tsv

Each line of the file is one sentence. Words are separated by white space; a word includes the tokens that begin in it,
and the space before it. The bits of a line's words add up to the score of the whole line, as in a suite. With `causal`,
each token is predicted from the tokens before it. With `masked`, each token is hidden alone and predicted from all
others. A model is named as for `babelmill score`; a folder needs no configuration.
"""

import argparse
import bisect
import re
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from babelmill.config import loading
from babelmill.core.files import UserError
from babelmill.core.globs import at_home
from babelmill.release.elsewhere.given_model import (
    add_model_arguments,
    compute_quietly,
    converted_folder,
    methods_of,
    model_folder,
)
from babelmill.text_files.whole import read_text, text_of

AT_ONCE = 256  # lines at a time
COLUMNS = ("line", "number", "word", "bits", "tokens")


def words_of(text: str) -> list[tuple[int, int]]:
    """Return where the words of a text begin and end."""
    return [word.span() for word in re.finditer(r"\S+", text)]


def owners(text: str, offsets: list[tuple[int, int]]) -> list[int]:
    """Return for each token the number of the word that it belongs to: the word that its first letter is in.

    A token of spaces alone belongs to the next word, or to the last word if no other follows.
    """
    ends = [end for _, end in words_of(text)]
    letters = [begin + len(text[begin:end]) - len(text[begin:end].lstrip()) for begin, end in offsets]
    return [min(bisect.bisect_right(ends, letter), len(ends) - 1) for letter in letters]


def lines_of(path: str) -> Iterator[tuple[int, str]]:
    """Yield (number, line) for the lines of a file that are not blank."""
    text = text_of(sys.stdin.buffer.read(), "standard input") if path == "-" else read_text(Path(path))
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line.rstrip("\r")


def table_of(model: Any, name: str, lines: list[tuple[int, str]]) -> Iterator[tuple[Any, ...]]:
    """Yield a row of `COLUMNS` for each word."""
    import numpy as np

    from babelmill.suites.sentences import encode, token_scores

    how = model.method(name)
    scorer, longest = model.scorer(how)
    for start in range(0, len(lines), AT_ONCE):
        some = lines[start : start + AT_ONCE]
        texts = [text for _, text in some]
        sentences = encode(model.tokenizer, texts, how.causal)
        for (number, _), sentence in zip(some, sentences, strict=True):
            if longest and len(sentence.ids) > longest:
                raise UserError(
                    f"line {number} has {len(sentence.ids)} tokens, but the model reads only {longest}: shorten it"
                )
        encoded = model.tokenizer(texts, return_offsets_mapping=True, return_special_tokens_mask=True)
        scored = token_scores(scorer, sentences, how)
        for i, (number, text) in enumerate(some):
            offsets = encoded["offset_mapping"][i]
            places = [place for place, mark in enumerate(encoded["special_tokens_mask"][i]) if not mark]
            of_word = owners(text, [offsets[place] for place in places])
            words = words_of(text)
            bits = np.bincount(of_word, -scored[i] / np.log(2), len(words))
            counts = np.bincount(of_word, minlength=len(words))
            for j, (begin, end) in enumerate(words):
                yield number, j + 1, text[begin:end], f"{bits[j]:.6f}", counts[j]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_model_arguments(parser)
    add, methods = parser.add_argument, ["causal", "masked"]
    add("file", metavar="FILE", type=at_home, help="a text with one sentence per line, or - for standard input")
    add("--method", choices=methods, help="predict tokens by this method (default: causal, if the model has it)")
    loading.add_arguments(parser)


def models_known(args: argparse.Namespace) -> Collection[str]:
    """Return the names of the configuration's models; none if they do not matter, or if it is missing or wrong."""
    if converted_folder(args.model).is_dir():
        return ()
    try:
        return loading.from_arguments(args).known_models()
    except UserError:
        if args.profile or args.configfile or args.config:
            raise
        return ()


def run(args: argparse.Namespace) -> None:
    """Print the surprisal of each word as a table."""
    lines = list(lines_of(args.file))
    folder, _, _ = model_folder(args, models_known(args))
    there = methods_of(folder)
    name = args.method or ("causal" if "causal" in there else "masked")
    if name not in there:
        raise UserError(f"--method {name}: {folder} scores sentences by {', '.join(there)}")
    from babelmill.suites.scoring_model import ScoringModel  # imports PyTorch

    compute_quietly(args.threads)
    model = ScoringModel(folder, {}, extra=True)
    if not model.tokenizer.is_fast:
        raise UserError(f"{folder}: its tokenizer is a slow one, which does not tell which characters a token covers")
    print("\t".join(COLUMNS))
    for row in table_of(model, name, lines):
        print("\t".join(map(str, row)))
