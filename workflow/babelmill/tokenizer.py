"""Train a byte-level BPE tokenizer on the training text of a model's languages, or adopt one (stage `tokenizer`).

A model that continues another (`model.source`) adopts that model's tokenizer, from the folder `--source`.

    python -m babelmill.tokenizer results/settings/tokenizer/eng-702c9c586b.json --threads 2

This writes `tokenizer.json` and `manifest.json`, whose figures report the tokenizer's quality for each language. The
same text gives the same bytes on every run and for every number of threads.

The tokenizer is lossless for every Unicode text: it has no normaliser, all 256 bytes are in the vocabulary, and the
pieces cover the text. Its 16 special tokens have the ids 0 to 15. A text becomes `<s> A`, and a pair `<s> A <s> B`.
With `tokenizer.prefix_space`, a space is put before each text, and decoding takes it away (`tokens/prefix_space.py`).
`pretokenizer.py` cuts a text into pieces. A merge never crosses the end of a piece, so no token is longer than a piece.
"""

import itertools
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from babelmill.core import manifest, stage_entry
from babelmill.core.escape import some
from babelmill.core.files import UserError, copy_file, read_json, write_text
from babelmill.core.stage_entry import Job
from babelmill.core.words import span
from babelmill.hub import revisions
from babelmill.hub.files import of_source
from babelmill.hub.sources import TOKENIZER
from babelmill.stages import TokenizerStage
from babelmill.tokens import characters, prefix_space, trial
from babelmill.tokens.documents import Documents
from babelmill.tokens.limits import TRAINING_BYTES
from babelmill.tokens.pretokenizer import parts, pre_tokenizer, sections
from babelmill.tokens.published_tokenizer import FILES, has_our_tokens, roles_of
from babelmill.tokens.quality import count_tokens, measure, vocabulary_used
from babelmill.tokens.tokenizer_file import begin_with_bos, encodings, load_tokenizer, use_threads, vocab_size
from babelmill.tokens.vocabulary import MASK, SPECIAL_TOKENS, UNK

log = logging.getLogger("babelmill.tokenizer")

REPORT_BYTES = 8_000_000  # bytes of text per language, for the figures

# Decoding must restore these texts. Normalisers, trimmers and vocabularies without all bytes would lose parts of them.
PROBES = [
    " two  spaces, tab\tand\r\nlines \n\n end ",
    "ﬁ ² ① ½ Ａ é e\u0301 Å \u00a0\u200b\ufeff\u2028\x00\x7f",
    "中文，日本語のテキスト。 ไทย हिन्दी ಕನ್ನಡ می‌خواهم עִבְרִית 한국어 ᏣᎳᎩ 👩‍👩‍👧🏽 𝔘𝔫𝔦 \U0010fffd",
    *SPECIAL_TOKENS,
    "a <mask> b<s>c",
]


Cut = Callable[[str], Iterator[str]]  # cuts a long text


def untrained() -> Tokenizer:
    """Return a tokenizer whose only tokens are bytes."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNK, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def train(batches: Iterator[list[str]], size: int, min_frequency: int, space: bool = False) -> Tokenizer:
    """Train on batches of documents. The vocabulary has `size` entries, or fewer if the text is too small for them.

    `space`: whether the tokenizer will put a space before each text; the documents already begin with this space.
    """
    tokenizer = untrained()
    tokenizer.train_from_iterator(
        batches,
        trainers.BpeTrainer(
            vocab_size=size,
            min_frequency=min_frequency,
            # The space before <mask> is part of the hidden word, so the mask includes it.
            special_tokens=[
                AddedToken(token, special=True, lstrip=token == MASK, normalized=space) for token in SPECIAL_TOKENS
            ],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.encode_special_tokens = True
    begin_with_bos(tokenizer)
    if space:
        prefix_space.put(tokenizer)
    return tokenizer


def check_tokenizer(path: str, where: str) -> None:
    """Raise a UserError, which begins with `where`, unless a model can be trained with this tokenizer.json."""
    try:
        content = read_json(path)
        vocabulary = content["model"]["vocab"]
        special = {token["content"]: token["special"] for token in content["added_tokens"]}
    except (KeyError, TypeError):
        raise UserError(f"{where}: a file of the `tokenizers` library is expected") from None
    known = special.keys() | {piece if isinstance(piece, str) else piece[0] for piece in vocabulary}
    for token in ("<s>", "</s>", "<pad>", "<mask>"):
        if token not in known or not special.get(token):
            raise UserError(f"{where}: {token} is expected among the special tokens")


# The text to train on.


def shares(sizes: list[int], weights: float) -> list[float]:
    """Return each language's share, proportional to size ** weights. The shares sum to 1."""
    powers = [size**weights for size in sizes]
    return [power / sum(powers) for power in powers]


def text_to_train_on(
    corpora: list[Documents], weights: float, limit: int = TRAINING_BYTES, cut: Cut = sections
) -> Iterator[list[str]]:
    """Yield documents in the proportions of `weights`: as many bytes as the corpora have, but at most `limit`.

    Documents, or what `cut` makes of long ones, are skipped or repeated evenly over each corpus, so that the text comes
    from the whole corpus, not only from its beginning.
    """
    sizes = [corpus.bytes() for corpus in corpora]
    total = min(sum(sizes), limit)
    for corpus, size, share in zip(corpora, sizes, shares(sizes, weights), strict=True):
        if share:
            yield from sample(corpus, share * total / size, cut)


def sections_with_space(text: str) -> Iterator[str]:
    """Yield the sections of a document that begins with an added space."""
    return sections(prefix_space.with_space(text))


def sample(corpus: Documents, rate: float, cut: Cut) -> Iterator[list[str]]:
    """Yield each document, or each of the texts that `cut` makes of a long one, 0 or more times; long texts in parts.

    At any point, the bytes yielded are about `rate` times the bytes read.
    """
    seen = given = 0
    for texts, _ in corpus.batches():
        chosen = []
        for text in itertools.chain.from_iterable(map(cut, texts)):
            size = len(text.encode())
            seen += size
            while size and given + size / 2 <= rate * seen:
                chosen += parts(text)
                given += size
        yield chosen


# Adopting an existing tokenizer.


def adopt(path: str, where: str) -> Tokenizer:
    """Load a tokenizer.json, and check that a model can be trained with it. `where` names it in errors.

    The post-processor is replaced, since the models see text as `<s> A`. A UserError says that the file is missing, or
    a special token is missing or not declared as special.
    """
    check_tokenizer(path, where)
    trial.check(path, where)
    tokenizer = load_tokenizer(path)
    begin_with_bos(tokenizer)
    return tokenizer


def adopt_from_model(folder: Path, name: str) -> tuple[Tokenizer, dict[str, Any] | None]:
    """Load the tokenizer of the model `name` from a folder of the stage `tokenizer` or `base_model`.

    The weights work only with this tokenizer. So it is allowed to lose text, as many published tokenizers do. Beside
    it, return the roles of its special tokens (`published_tokenizer.roles_of`); None for our own kind.
    """
    made, where = manifest.read(folder), f"the tokenizer of {name}"
    if "tokenizer.json" not in made["files"]:
        raise UserError(
            f"model.source = {name} has no tokenizer.json, which is needed (`save_pretrained` of a fast tokenizer in"
            " transformers writes it); set tokenizer.source to another tokenizer"
        )
    manifest.verify(folder, *tokenizer_files(made))
    path, roles = folder / "tokenizer.json", made["figures"].get("roles")
    architecture = made["figures"].get("architecture")
    if architecture == "transformers" or (architecture == "norbert4" and not has_our_tokens(load_tokenizer(path))):
        roles = roles_of(folder, load_tokenizer(path), where)
    tokenizer = load_tokenizer(path) if roles else adopt(str(path), where)
    try:
        check_lossless(tokenizer, PROBES, where)
    except UserError as error:
        log.warning("%s", str(error).partition(";")[0])
    return tokenizer, roles


def tokenizer_files(made: dict[str, Any]) -> list[str]:
    """Return the names of a tokenizer's files that a manifest lists."""
    return [name for name in FILES if name in made["files"]]


def fetch(source: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Fetch a repository's tokenizer.json, and check its content.

    Return its path in the Hugging Face cache, and its repository, revision and commit.
    """
    files = of_source(TOKENIZER, source)
    if "tokenizer.json" not in files.names:
        raise UserError(
            f"{files.where} has no tokenizer.json; it has {some(files.names, 8) or 'no files'}; {TOKENIZER.instead}"
        )
    path = files.get(["tokenizer.json"])["tokenizer.json"]
    revisions.record(TOKENIZER.repo_type, **files.figures)
    return str(path), files.figures


def check_lossless(tokenizer: Tokenizer, texts: list[str], where: str) -> None:
    """Raise a UserError with the place of the first difference if decoding does not restore every text."""
    ids = [encoding.ids for encoding in encodings(tokenizer, texts)]
    for text, again in zip(texts, tokenizer.decode_batch(ids, skip_special_tokens=False), strict=True):
        if text != again:
            equal = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(text, again, strict=False))
            i = sum(1 for _ in equal)
            part = slice(max(i - 5, 0), i + 15)
            raise UserError(
                f"{where} is not lossless: {text[part]!r} becomes {again[part]!r};"
                " use a tokenizer that is byte-level and has no normaliser"
            )


def excerpt(corpus: Documents) -> Iterator[list[str]]:
    """Yield documents from all over a corpus, for the figures."""
    return text_to_train_on([corpus], 1.0, REPORT_BYTES, parts)


def report(tokenizer: Tokenizer, corpora: dict[str, Path], lossy: bool) -> dict[str, dict[str, float]]:
    """Return the tokenizer's quality for each language, on its validation text, or on training text if it has none.

    A UserError says that decoding does not restore a document, and that the tokenizer may not be `lossy`.
    """
    figures = {}
    for language, folder in corpora.items():
        training = Documents(folder / "train.parquet")
        held_out = Documents(folder / "validation.parquet")
        log.info("measuring it on the text of %s", language)
        measured = measure(tokenizer, excerpt(held_out if held_out.count else training))
        counts = count_tokens(tokenizer, excerpt(training))
        measured["vocabulary_used"] = vocabulary_used(tokenizer, counts)
        if measured["round_trip_rate"] < 1 and not lossy:
            raise UserError(f"{folder}: decoding does not restore every document; use a lossless tokenizer")
        figures[language] = {key: round(value, 4) for key, value in measured.items()}
        log.info("%s: %s", language, ", ".join(f"{key} {value:.3f}" for key, value in figures[language].items()))
    return figures


def trained(settings: TokenizerStage, corpora: list[Documents], size: int) -> Tokenizer:
    """Train the tokenizer of the settings on corpora of `size` bytes.

    A UserError says that the text is too small for the wanted number of entries. (That of labelled tables may have
    fewer.)
    """
    wanted = settings.tokenizer.vocab_size
    log.info("training on %.1f MB of %s", min(size, TRAINING_BYTES) / 1e6, " ".join(settings.languages))
    space = settings.tokenizer.prefix_space
    texts = text_to_train_on(corpora, settings.mixture.weights, cut=sections_with_space if space else sections)
    tokenizer = train(texts, wanted, settings.tokenizer.min_frequency, space)
    entries = vocab_size(tokenizer)
    if entries < wanted and all(corpus.labelled for corpus in corpora):  # a table of labels is as large as it is
        log.warning(
            "tokenizer.vocab_size = %d: the labelled text of %s is enough for only %d entries; the tokenizer of model"
            " %s has these",
            *(wanted, " ".join(settings.languages), entries, settings.label()),
        )
    elif entries < wanted:
        fixed = len(SPECIAL_TOKENS) + 256
        missing = size * (wanted - entries) / max(entries - fixed, 1)  # at least: entries grow slower than the text
        raise UserError(
            f"tokenizer.vocab_size = {wanted}: the training text of {' '.join(settings.languages)} ({size:,} bytes)"
            f" is enough for only {entries} entries; add at least {missing / 1e6:.2g} MB of text or set"
            f" tokenizer.vocab_size to {entries} or less"
        )
    return tokenizer


def run(job: Job[TokenizerStage]) -> None:
    """Train or adopt the tokenizer of a model."""
    settings = job.settings
    use_threads(job.threads)
    folders, source_folders = settings.folders("corpora"), settings.folders("source")
    for folder in folders:
        manifest.verify(folder, "train.parquet", "validation.parquet")
    corpora = [Documents(folder / "train.parquet") for folder in folders]
    size = sum(corpus.bytes() for corpus in corpora)
    hub, roles, of_model = None, None, settings.of_model
    if of_model:
        log.info("adopting the tokenizer of %s", of_model)
        tokenizer, roles = adopt_from_model(source_folders[0], of_model)
    elif settings.characters:
        log.info("the tokens are characters")
        tokenizer, roles = characters.make(), characters.ROLES
    elif source := settings.tokenizer.source:
        path = source
        if settings.source:
            path, hub = fetch(settings.source)
        log.info("adopting %s", f"{source} at {hub['commit']}" if hub else source)
        tokenizer = adopt(path, f"tokenizer.source: {source}")
        check_lossless(tokenizer, PROBES, f"tokenizer.source: {source}")
    else:
        tokenizer = trained(settings, corpora, size)
    figures = {
        "vocab_size": vocab_size(tokenizer),
        "bytes": size,
        "hub": hub,
        "report": report(tokenizer, dict(zip(settings.languages, folders, strict=True)), lossy=bool(of_model)),
    }
    per_word = [each["tokens_per_word"] for each in figures["report"].values()]
    figures["summary"] = f"{figures['vocab_size']:,} entries, {span(per_word)} tokens per word"
    if roles:
        figures["roles"] = roles
    if settings.characters:
        files = characters.write_files(job.out, settings.characters)
    else:
        files = write(job.out, tokenizer, source_folders[0] if roles else None)
    manifest.write(job.out, settings, files, [*folders, *source_folders], figures)


def write(out: Path, tokenizer: Tokenizer, published: Path | None) -> list[str]:
    """Write a tokenizer, or copy all files of a published one unchanged. Return the names of the files."""
    files = tokenizer_files(manifest.read(published)) if published else ["tokenizer.json"]
    for name in set(FILES) - set(files):
        (out / name).unlink(missing_ok=True)  # a file of an earlier tokenizer
    if published:
        for name in files:
            copy_file(published / name, out / name)
        return files
    write_text(out / "tokenizer.json", tokenizer.to_str(pretty=True))
    return files


if __name__ == "__main__":
    sys.exit(stage_entry.main(TokenizerStage, run, __doc__))
