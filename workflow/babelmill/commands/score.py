"""Score a model from anywhere on a suite of minimal pairs or choices, as the workflow scores its own models.

    babelmill score openai-community/gpt2 --suite blimp
    babelmill compare eng scores/openai-community--gpt2
    babelmill score converted/eng --words sentences.txt > words.tsv    # the surprisal of each word of a text

MODEL is a folder that transformers loads as a causal or masked language model, or a repository on the Hub, which is
fetched at one commit. The suite is one of the configuration's (config/README.md). The scores have the same form as
those in results/score. After an interruption, the same command continues.

With `--words`, each line of the file is one sentence, and the output has -log2 p of each word in bits, as tab-separated
values. Words are separated by white space; a word includes the tokens that begin in it, and the space before it. The
bits of a line's words add up to the score of the whole line, as in a suite. With method `causal` (the default, if the
model has it), each token is predicted from the tokens before it. With `masked`, each token is hidden alone and
predicted from all others. A folder needs no configuration.
"""

import argparse
import bisect
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from babelmill.commands.by_hand import languages_asked, made_by_hand
from babelmill.config import loading
from babelmill.config.datasets import how_scored
from babelmill.config.resolve import Configuration
from babelmill.core import manifest
from babelmill.core.files import UserError
from babelmill.evaluation.suite_scores import METHODS
from babelmill.graph import Graph
from babelmill.release.elsewhere.given_model import (
    add_model_arguments,
    compute_quietly,
    converted_folder,
    methods_of,
    model_folder,
)
from babelmill.stages import ScoreStage
from babelmill.tables.text import read_text, text_of

AT_ONCE = 256  # lines of --words at a time
COLUMNS = ("line", "number", "word", "bits", "tokens")
OF_WORDS = ("causal", "masked")  # the methods that score each word


def wanted(folder: Path, asked: list[str] | None) -> list[str]:
    """Return the methods to score by: those asked for (the last is the headline), and the two that `fused` adds up."""
    if not asked:
        return methods_of(folder)
    parts = ["causal", "masked", *asked] if "fused" in asked else asked
    return sorted(dict.fromkeys(parts), key=lambda name: (name == asked[-1], name == "fused", METHODS.index(name)))


def settings_by_hand(args: argparse.Namespace, folder: Path, configuration: Configuration) -> ScoreStage:
    """Return the settings that the stage `score` would have."""
    suite = configuration.suite(args.suite)
    languages = languages_asked(f"the suite {args.suite}", "pairs", suite.covered, args.language)
    values: dict[str, Any] = {
        "languages": languages,
        "suite": args.suite,
        "covered": languages,
        "headline": suite.headline,
        **how_scored(suite),
        "methods": wanted(folder, args.method),
        "masked_pairs": args.masked_pairs or "all",
        "pairs": args.pairs or "all",
    }
    return ScoreStage(**values, raw=values)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add_model_arguments(parser)
    on = parser.add_mutually_exclusive_group(required=True)
    on.add_argument("--suite", help="score on this suite, of config/suites or of your configuration")
    words = "print the bits of each word of this text, with one sentence per line (-: standard input)"
    on.add_argument("--words", type=os.path.expanduser, metavar="FILE", help=words)
    add("--language", nargs="+", metavar="CODE", help="score these languages, if the suite has several")
    method = "score by these methods (default: all); the last of those with the most pairs gives the headline"
    add("--method", nargs="+", choices=METHODS, help=method)
    add("--pairs", type=int, metavar="N", help="score a sample of N pairs of each paradigm")
    add("--masked-pairs", type=int, metavar="N", help="with method masked, score only N of these pairs")
    add("--out", type=Path, metavar="FOLDER", help="write the scores here (default: scores/{MODEL}/{suite})")
    loading.add_arguments(parser)


def refuse_others(out: Path, origin: dict[str, Any]) -> None:
    """Raise a UserError if a folder holds the scores of a model from another folder or repository."""
    there = manifest.read(out)["figures"].get("model", {}) if (out / manifest.NAME).is_file() else origin
    if any(there.get(key) != origin.get(key) for key in ("folder", "repository")):
        whose = there.get("folder") or there.get("repository") or "another model"
        raise UserError(f"{out}: holds the scores of {whose}; name another folder with --out, or delete this folder")


# The words of a text.


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
    text = text_of(sys.stdin.buffer.read(), Path("standard input")) if path == "-" else read_text(Path(path))
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line.rstrip("\r")


def table_of(model: Any, name: str, lines: list[tuple[int, str]]) -> Iterator[tuple[Any, ...]]:
    """Yield a row of `COLUMNS` for each word."""
    import numpy as np

    from babelmill.evaluation.rows import encode

    how = model.method(name)
    loaded, longest = model.load(how)
    for start in range(0, len(lines), AT_ONCE):
        some = lines[start : start + AT_ONCE]
        texts = [text for _, text in some]
        sentences = encode(model.tokenizer, texts, how.causal)
        for (number, _), sentence in zip(some, sentences, strict=True):
            if len(sentence.ids) > longest:
                raise UserError(
                    f"line {number} has {len(sentence.ids)} tokens, but the model reads only {longest}: shorten it"
                )
        encoded = model.tokenizer(texts, return_offsets_mapping=True, return_special_tokens_mask=True)
        found = loaded.log_probs([row for each in sentences if each.scored for row in how.rows(each)])
        scored = np.split(found, np.cumsum([len(each.scored) for each in sentences])[:-1])
        for i, (number, text) in enumerate(some):
            offsets = encoded["offset_mapping"][i]
            places = [place for place, mark in enumerate(encoded["special_tokens_mask"][i]) if not mark]
            of_word = owners(text, [offsets[place] for place in places])
            words = words_of(text)
            bits = np.bincount(of_word, -scored[i] / np.log(2), len(words))
            counts = np.bincount(of_word, minlength=len(words))
            for j, (begin, end) in enumerate(words):
                yield number, j + 1, text[begin:end], f"{bits[j]:.6f}", counts[j]


def print_words(args: argparse.Namespace) -> None:
    """Print the surprisal of each word as a table."""
    if args.language or args.pairs or args.masked_pairs or args.out:
        raise UserError("--words prints a table of words: --language, --pairs, --masked-pairs and --out are for suites")
    lines = list(lines_of(args.words))
    configured = args.profile or args.configfile or args.config or Path(loading.USER_FILE).is_file()
    needed = configured and not converted_folder(args.model).is_dir()
    folder, origin, _ = model_folder(args, loading.from_arguments(args).known_models() if needed else ())
    there = methods_of(folder)
    names = args.method or [name for name in OF_WORDS if name in there][:1]
    if len(names) != 1 or names[0] not in OF_WORDS or names[0] not in there:
        raise UserError(f"--words takes one method, causal or masked; {folder} has {', '.join(there)}")
    from babelmill.evaluation.rows import require_offsets
    from babelmill.suites.scoring_model import ScoringModel  # imports PyTorch

    compute_quietly(args.threads)
    model = ScoringModel(folder, origin)
    require_offsets(model.tokenizer)
    print("\t".join(COLUMNS))
    for row in table_of(model, names[0], lines):
        print("\t".join(map(str, row)))


def run(args: argparse.Namespace) -> None:
    """Score the model, and write the same files as the stage `score`; or print the words of a text."""
    for option, count in (("--pairs", args.pairs), ("--masked-pairs", args.masked_pairs)):
        if count is not None and count < 1:
            raise UserError(f"{option} {count}: at least 1 is expected")
    if args.words:
        print_words(args)
        return
    graph = Graph(configuration := loading.from_arguments(args))
    configuration.suite(args.suite)  # raises an error for an unknown suite before anything is fetched
    folder, origin, name = model_folder(args, configuration.known_models())
    settings = settings_by_hand(args, folder, configuration)
    from babelmill import suite  # imports the client of the Hub
    from babelmill.score import score  # imports PyTorch
    from babelmill.suites.scoring_model import ScoringModel

    compute_quietly(args.threads)
    out = args.out or Path("scores", name, args.suite)
    refuse_others(out, origin)
    suites = [made_by_hand(graph, "suite", suite.run, code, args.suite) for code in settings.covered]
    model = ScoringModel(folder, origin)
    score(model, suites, settings, out / "partial", out, suites, {"model": origin})
    print(out)
