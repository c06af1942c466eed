"""Compare quality and speed of our tokenizer with one trained by the published recipe on the same real text.

    python benchmarks/tokenizer.py [--texts FOLDER] [--vocab-size 8192] [LANGUAGE ...]

For each language (default: the nine of tier 1, and scripts without spaces or with combining marks), both tokenizers are
trained on 19 of 20 documents and measured on the others: fertility (tokens per word between white space), bytes per
token, documents that decoding restores, and seconds of training. A ratio of fertilities of 1 or less means that ours is
not worse. The last lines are about text without spaces (Chinese and Japanese of 2 MB each, and 2 MB of random letters,
the worst case): wall time and CPU time of training.

The published recipe (GPT-BERT) puts a space before every line, normalises to NFKC, and cuts by case and at 24 bytes. So
decoding cannot restore every text. It gets the vocabulary size that ours reached. The text is help pages
(`real_text.py`) or, if there are none, the messages of a program. For yue it is standard Chinese in traditional
characters, since no package has Cantonese.
"""

import argparse
import gettext
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from real_text import fetch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "workflow"))

from babelmill.tokenizer import train  # noqa: E402
from babelmill.tokens.tokenizer_file import measure  # noqa: E402
from babelmill.tokens.vocabulary import SPECIAL_TOKENS, UNK  # noqa: E402

TIER_1 = ("eng", "deu", "fra", "nld", "ind", "zho", "bul", "fas", "ukr")
HELP = {"eng": "en-us", "deu": "de", "fra": "fr", "nld": "nl", "ind": "id", "zho": "zh-cn", "hin": "hi", "jpn": "ja"}
HELP |= {"kor": "ko", "ell": "el", "rus": "ru", "pol": "pl", "eus": "eu", "yue": "zh-tw"}
MESSAGES = {"bul": "bg", "fas": "fa", "ukr": "uk", "tha": "th", "kan": "kn", "nep": "ne"}
SCRIPTS = ("jpn", "yue", "tha", "hin", "kan", "nep")
CASED_WORD = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def messages(folder: Path, language: str) -> list[str]:
    """Return LibreOffice's messages in a language, twenty per document (package `libreoffice-l10n-LANGUAGE`)."""
    path = folder / f"messages-{language}.json"
    if not path.exists():
        with tempfile.TemporaryDirectory() as scratch:
            command = ["apt-get", "download", "-o", "APT::Sandbox::User=root", f"libreoffice-l10n-{language}"]
            subprocess.run(command, cwd=scratch, check=True, stdout=subprocess.DEVNULL)
            subprocess.run(["dpkg-deb", "-x", *Path(scratch).glob("*.deb"), f"{scratch}/x"], check=True)
            found: dict[str, None] = {}
            for catalog in sorted(Path(scratch).glob(f"x/**/{language}/LC_MESSAGES/*.mo")):
                with open(catalog, "rb") as file:
                    strings = gettext.GNUTranslations(file)._catalog
                found |= {strings[key].replace("~", ""): None for key in sorted(strings, key=str) if key}
        texts = [text for text in found if " " in text]
        parts = ["\n".join(texts[i : i + 20]) for i in range(0, len(texts), 20)]
        path.write_text(json.dumps(parts, ensure_ascii=False), encoding="utf-8")
    return json.loads(path.read_text(encoding="utf-8"))


def read(folder: Path, language: str) -> list[str]:
    """Return the documents of a language."""
    if language in MESSAGES:
        return messages(folder, MESSAGES[language])
    with open(fetch(folder, HELP[language]), encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in file]


def train_published(texts: list[str], size: int) -> Tokenizer:
    """Train a tokenizer by the recipe of GPT-BERT (`tokenizer_creation`)."""
    upper, lower = CASED_WORD
    pattern = "|".join(
        [
            rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+",
            rf"[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*",
            r" ?\p{N}",
            r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        ]
    )
    tokenizer = Tokenizer(models.BPE(unk_token=UNK, byte_fallback=False, ignore_merges=True))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Prepend(" "),
            normalizers.NFKC(),
            normalizers.Replace("\n", "\n "),
            normalizers.Replace(Regex(" *\n"), "\n"),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            pre_tokenizers.Split(Regex(".{1,24}"), "isolated"),
        ]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteLevel(), decoders.Strip(" ", 1, 0), decoders.Replace("\n ", "\n")]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def timed(function, *arguments) -> tuple[Tokenizer, float, float]:
    """Return the result of a function, its wall time and its CPU time in seconds."""
    start, cpu = time.perf_counter(), time.process_time()
    return function(*arguments), time.perf_counter() - start, time.process_time() - cpu


def train_ours(texts: list[str], size: int) -> Tokenizer:
    """Train a tokenizer as the stage does."""
    return train(iter([texts]), size, 2)


def compare(language: str, texts: list[str], size: int) -> float:
    """Print the figures of both tokenizers on a language. Return the ratio of their fertilities."""
    training = [text for i, text in enumerate(texts) if i % 20]
    held_out = [text for i, text in enumerate(texts) if i % 20 == 0]
    figures = {}
    for name, function in (("ours", train_ours), ("published", train_published)):
        tokenizer, seconds, _ = timed(function, training, size)
        size = tokenizer.get_vocab_size()
        figures[name] = measure(tokenizer, [held_out]) | {"seconds": seconds}
    ours, published = figures["ours"], figures["published"]
    ratio = ours["tokens_per_word"] / published["tokens_per_word"]
    print(
        f"{language:<5}{sum(len(text.encode()) for text in training) / 1e6:>6.2f}{size:>9}"
        + "".join(
            f"{ours[key]:>10.3f}{published[key]:>8.3f}"
            for key in ("tokens_per_word", "bytes_per_token", "round_trip_rate", "seconds")
        )
        + f"{ratio:>8.3f}",
        flush=True,
    )
    return ratio


def without_spaces(folder: Path, size: int) -> None:
    """Print the seconds of training on 2 MB of text without any space."""
    generator = random.Random(0)
    cases = {"random letters": "".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=2_000_000))}
    for language in ("zho", "jpn"):
        text = "".join("".join(read(folder, language)).split())
        cases[language] = text.encode()[:2_000_000].decode(errors="ignore")
    for name, text in cases.items():
        _, seconds, cpu = timed(train_ours, [text], size)
        print(f"{name:<16}{len(text.encode()) / 1e6:.1f} MB without a space in {seconds:.2f} s (CPU time {cpu:.2f} s)")


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("languages", nargs="*", default=[*TIER_1, *SCRIPTS])
    parser.add_argument("--texts", type=Path, default=Path.home() / ".cache/babelmill/texts", help="see real_text.py")
    parser.add_argument("--vocab-size", type=int, default=8192)
    args = parser.parse_args()
    args.texts.mkdir(parents=True, exist_ok=True)
    print("MB, entries; ours and published: tokens per word, bytes per token, restored, seconds; fertility ratio")
    ratios = [compare(language, read(args.texts, language), args.vocab_size) for language in args.languages]
    print(f"worst fertility ratio, ours to published: {max(ratios):.3f}")
    without_spaces(args.texts, args.vocab_size)


if __name__ == "__main__":
    main()
