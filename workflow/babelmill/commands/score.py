"""Score a model from anywhere on a suite of minimal pairs or choices, as the workflow scores its own models.

    babelmill score openai-community/gpt2 --suite blimp
    babelmill compare eng scores/openai-community--gpt2
    babelmill score converted/eng --words sentences.txt > words.tsv    # the surprisal of each word of a text

MODEL is a folder that transformers loads as a causal or masked language model, or a repository on the Hub, which is
fetched at one commit. The suite is one of the configuration's (config/README.md), and `evaluation.max_items` and
`evaluation.max_masked_items` say how many of its items are scored. The scores have the same form as those in
results/score.
After an interruption, the same command continues; what is finished is not scored again.

With `--words`, each line of the file is one sentence, and the output has -log2 p of each word in bits, as tab-separated
values. Words are separated by white space; a word includes the tokens that begin in it, and the space before it. The
bits of a line's words add up to the score of the whole line, as in a suite. With method `causal` (the default, if the
model has it), each token is predicted from the tokens before it. With `masked`, each token is hidden alone and
predicted from all others. A folder needs no configuration.
"""

import argparse
import bisect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from babelmill.commands import by_hand
from babelmill.config import loading
from babelmill.config.datasets import how_scored
from babelmill.core.files import UserError
from babelmill.graph import Graph
from babelmill.stages import ScoreStage
from babelmill.tables.text import read_text

AT_ONCE = 256  # lines of --words at a time
COLUMNS = ("line", "number", "word", "bits", "tokens")
OF_WORDS = ("causal", "masked")  # the methods that score each word


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    by_hand.add_arguments(parser, "scores/{MODEL}/{suite}")
    on = parser.add_mutually_exclusive_group(required=True)
    on.add_argument("--suite", help="score on this suite, of config/suites or of your configuration")
    words = "print the bits of each word of this text, with one sentence per line"
    on.add_argument("--words", type=Path, metavar="FILE", help=words)
    parser.add_argument("--method", choices=OF_WORDS, help="score words by this method")


def run(args: argparse.Namespace) -> None:
    """Score the model, and write the same files as the stage `score`; or print the words of a text."""
    if args.words:
        print_words(args)
        return
    if args.method:
        raise UserError("--method is for --words: on a suite, a model is scored by all methods that it has")
    graph = Graph(configuration := loading.from_arguments(args))
    suite = configuration.suite(args.suite)
    languages = by_hand.languages_asked(graph, "suite", args.suite, suite.covered, args.language)
    folder, origin, name = by_hand.model_folder(args, configuration.known_models())
    from babelmill.release.folder.loading import methods_of
    from babelmill.score import score  # imports PyTorch

    by_hand.quiet_transformers()
    values = {"languages": languages, "suite": args.suite, "covered": languages, "headline": suite.headline}
    values |= how_scored(suite) | {"methods": methods_of(folder)}
    named = args.model.removeprefix("converted/").rstrip("/")
    evaluation = configuration.model(named if named in configuration.known_models() else languages[0]).evaluation
    values |= {"max_items": evaluation.max_items, "max_masked_items": evaluation.max_masked_items}
    made_from = {"suites": by_hand.made_by_hand(graph, "suite", languages, args.suite)}
    values |= {"made_from": made_from, "origin": origin}  # not where the model is: it may be in a user's cache
    with_model: dict[str, Any] = values | {"made_from": made_from | {"export": [str(folder)]}}
    settings = ScoreStage(**with_model, raw=values)
    out = args.out or Path("scores", name, args.suite)
    if not by_hand.is_done(out, settings):
        score(settings, out / "partial", out)
    print(out)


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


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number, line) for the lines of a file that are not blank."""
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            yield number, line.rstrip("\r")


def table_of(model: Any, name: str, lines: list[tuple[int, str]]) -> Iterator[tuple[Any, ...]]:
    """Yield a row of `COLUMNS` for each word."""
    import numpy as np

    from babelmill.evaluation.rows import encode, of_method

    mask, (loaded, longest) = model.mask(name), model.load(name)
    for start in range(0, len(lines), AT_ONCE):
        some = lines[start : start + AT_ONCE]
        texts = [text for _, text in some]
        sentences = encode(model.tokenizer, texts, name == "causal")
        for (number, _), sentence in zip(some, sentences, strict=True):
            if len(sentence.ids) > longest:
                raise UserError(
                    f"line {number} has {len(sentence.ids)} tokens, but the model reads only {longest}: shorten it"
                )
        encoded = model.tokenizer(texts, return_offsets_mapping=True, return_special_tokens_mask=True)
        found = loaded.log_probs([row for each in sentences if each.scored for row in of_method(name, each, mask)])
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
    if args.language or args.out:
        raise UserError("--words prints a table of words: --language and --out are for suites")
    lines = list(lines_of(args.words))
    folder, origin, _ = by_hand.model_folder(args)
    from babelmill.evaluation.rows import require_offsets
    from babelmill.release.folder.loading import methods_of  # imports PyTorch
    from babelmill.suites.scoring_model import ScoringModel

    there = methods_of(folder)
    method = args.method or next((name for name in OF_WORDS if name in there), "")
    if method not in there:
        raise UserError(f"--words takes method causal or masked; {folder} has {', '.join(there)}")
    by_hand.quiet_transformers()
    model = ScoringModel(folder, origin)
    require_offsets(model.tokenizer)
    print("\t".join(COLUMNS))
    for row in table_of(model, method, lines):
        print("\t".join(map(str, row)))
