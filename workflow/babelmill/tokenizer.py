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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from babelmill.core import manifest, stage_entry
from babelmill.core.files import UserError, copy_file, write_text
from babelmill.core.stage_entry import Job
from babelmill.core.words import span
from babelmill.hub import revisions
from babelmill.hub.files import of_source
from babelmill.hub.sources import TOKENIZER
from babelmill.stages import TokenizerStage
from babelmill.tokens import characters, prefix_space, tokenizer_file
from babelmill.tokens.documents import Documents
from babelmill.tokens.pretokenizer import parts, pre_tokenizer
from babelmill.tokens.vocabulary import MASK, NEEDED, SPECIAL_TOKENS, UNK

log = logging.getLogger("babelmill.tokenizer")

# The largest number of bytes of text to train on. Each byte of a new piece takes about 100 bytes of memory, and in
# scripts without spaces most pieces are new. More text does not help: a quarter of 5 MB of help pages gave the same 4.1
# bytes per token as all of it, with 4,096 entries.
TRAINING_BYTES = 100_000_000
REPORT_BYTES = 8_000_000  # bytes of text per language, for the figures

# Decoding must restore this text. Normalisers, trimmers and vocabularies without all bytes would lose parts of it.
PROBE = (
    " two  spaces, tab\tand\r\nlines \n\n ﬁ ² ① ½ Ａ é e\u0301 Å \u00a0\u200b\ufeff\u2028\x00\x7f 中文，日本語。 ไทย"
    " हिन्दी می\u200cخواهم עִבְרִית 한국어 👩\u200d👩\u200d👧🏽 𝔘𝔫𝔦 \U0010fffd <s>a <mask> b<unk>c \n"
)


def train(batches: Iterator[list[str]], size: int, min_frequency: int, space: bool = False) -> Tokenizer:
    """Train on batches of documents. The vocabulary has `size` entries, or fewer if the text is too small for them.

    `space`: whether the tokenizer puts a space before each text, also in training.
    """
    tokenizer = Tokenizer(models.BPE(unk_token=UNK, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    if space:
        prefix_space.put(tokenizer)
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
    tokenizer_file.begin_with_bos(tokenizer)
    return tokenizer


def text_to_train_on(corpora: list[Documents], weights: float, limit: int = TRAINING_BYTES) -> Iterator[list[str]]:
    """Yield text in proportion to size ** weights of each corpus: as many bytes as they have, but at most `limit`."""
    sizes = [corpus.bytes() for corpus in corpora]
    shares = [size**weights if size else 0.0 for size in sizes]
    total = min(sum(sizes), limit)
    for corpus, size, share in zip(corpora, sizes, shares, strict=True):
        if size:
            yield from sample(corpus, total * share / sum(shares) / size)


def sample(corpus: Documents, rate: float) -> Iterator[list[str]]:
    """Yield each document, or each part of a long one, 0 or more times, evenly over the whole corpus.

    At any point, the bytes yielded are about `rate` times the bytes read.
    """
    seen = given = 0
    for texts, _ in corpus.batches():
        chosen = []
        for text in itertools.chain.from_iterable(map(parts, texts)):
            size = len(text.encode())
            seen += size
            while size and given + size / 2 <= rate * seen:
                chosen.append(text)
                given += size
        yield chosen


def trained(settings: TokenizerStage, corpora: list[Documents]) -> Tokenizer:
    """Train the tokenizer of the settings.

    A UserError says that the text is too small for the wanted number of entries. (That of labelled tables may have
    fewer.)
    """
    asked, languages = settings.tokenizer, " ".join(settings.languages)
    log.info("training on the text of %s", languages)
    texts = text_to_train_on(corpora, settings.mixture.weights)
    tokenizer = train(texts, asked.vocab_size, asked.min_frequency, asked.prefix_space)
    if (entries := tokenizer_file.vocab_size(tokenizer)) < asked.vocab_size:
        found = f"tokenizer.vocab_size = {asked.vocab_size}: the text of {languages} is enough for {entries} entries"
        if not all(corpus.labelled for corpus in corpora):  # a table of labels is as large as it is
            raise UserError(f"{found}; add text, or set tokenizer.vocab_size to {entries} or less")
        log.warning("%s; the tokenizer of model %s has these", found, settings.label())
    return tokenizer


def fit_for_training(tokenizer: Tokenizer, where: str) -> None:
    """Let a tokenizer encode text as the models see it, as `<s> A`. `where` names it in errors.

    A UserError says that a special token is missing or not declared as special.
    """
    special = tokenizer_file.special_ids(tokenizer)
    for token in NEEDED:
        if tokenizer.token_to_id(token) not in special:
            raise UserError(f"{where}: {token} is expected among the special tokens")
    tokenizer_file.begin_with_bos(tokenizer)


def is_lossless(tokenizer: Tokenizer) -> bool:
    """Return whether decoding restores a difficult text."""
    ids = tokenizer.encode(PROBE, add_special_tokens=False).ids
    return tokenizer.decode(ids, skip_special_tokens=False) == PROBE


def adopt_from_model(folder: Path, name: str) -> tuple[Tokenizer, dict[str, Any] | None]:
    """Load the tokenizer of the model `name` from a folder of the stage `tokenizer` or `base_model`.

    The weights work only with this tokenizer. So it is allowed to lose text, as many published tokenizers do. Beside
    it, return the roles of its special tokens (`tokenizer_file.roles_of`); None for our own kind.
    """
    made, where = manifest.read(folder), f"the tokenizer of {name}"
    if "tokenizer.json" not in made["files"]:
        raise UserError(
            f"model.source = {name} has no tokenizer.json, which is needed (`save_pretrained` of a fast tokenizer in"
            " transformers writes it); set tokenizer.source to another tokenizer"
        )
    manifest.verify(folder, *tokenizer_files(folder))
    tokenizer = tokenizer_file.load_tokenizer(folder / "tokenizer.json")
    roles, architecture = (made["figures"].get(key) for key in ("roles", "architecture"))
    if architecture == "transformers" or (architecture == "norbert4" and not tokenizer_file.has_our_tokens(tokenizer)):
        roles = tokenizer_file.roles_of(folder, tokenizer, where)
    if not roles:
        fit_for_training(tokenizer, where)
    if not is_lossless(tokenizer):
        log.warning("%s is not lossless: decoding does not restore every text", where)
    return tokenizer, roles


def tokenizer_files(folder: Path) -> list[str]:
    """Return the names of a tokenizer's files in a result."""
    return [name for name in tokenizer_file.FILES if name in manifest.read(folder)["files"]]


def adopt(settings: TokenizerStage) -> tuple[Tokenizer, dict[str, Any] | None]:
    """Load the tokenizer that `tokenizer.source` names.

    Beside it, return its repository, revision and commit; None for a local file.
    """
    path, hub = settings.tokenizer.source or "", None
    where = f"tokenizer.source: {path}"
    if settings.source:
        files = of_source(TOKENIZER, settings.source)
        (path,) = files.get(files.matching(["tokenizer.json"], TOKENIZER.key)).values()
        hub = files.figures
        revisions.record(TOKENIZER.repo_type, **hub)
    log.info("adopting %s", f"{where} at {hub['commit']}" if hub else where)
    tokenizer = tokenizer_file.load_tokenizer(path)
    fit_for_training(tokenizer, where)
    if not is_lossless(tokenizer):
        raise UserError(f"{where}: a tokenizer is expected that loses no text: byte-level, without a normaliser")
    return tokenizer, hub


def report(tokenizer: Tokenizer, corpora: dict[str, Path], lossy: bool) -> dict[str, dict[str, float]]:
    """Return the tokenizer's quality for each language, on its validation text, or on training text if it has none.

    A UserError says that decoding does not restore a document, and that the tokenizer may not be `lossy`.
    """
    figures = {}
    for language, folder in corpora.items():
        training, held_out = (Documents(folder / f"{split}.parquet") for split in ("train", "validation"))
        log.info("measuring it on the text of %s", language)
        chosen = held_out if held_out.count else training
        measured = tokenizer_file.measure(tokenizer, text_to_train_on([chosen], 1.0, REPORT_BYTES))
        counts = np.zeros(tokenizer_file.vocab_size(tokenizer), np.int64)
        for texts in text_to_train_on([training], 1.0, REPORT_BYTES):
            counts += np.bincount(tokenizer_file.encode(tokenizer, texts)[0], minlength=len(counts))
        measured["vocabulary_used"] = tokenizer_file.vocabulary_used(tokenizer, counts)
        if measured["round_trip_rate"] < 1 and not lossy:
            raise UserError(f"{folder}: decoding does not restore every document; use a lossless tokenizer")
        figures[language] = {key: round(value, 4) for key, value in measured.items()}
        log.info("%s: %s", language, ", ".join(f"{key} {value:.3f}" for key, value in figures[language].items()))
    return figures


def run(job: Job[TokenizerStage]) -> None:
    """Train or adopt the tokenizer of a model."""
    settings = job.settings
    tokenizer_file.use_threads(job.threads)
    folders, source_folders = settings.folders("corpora"), settings.folders("source")
    for folder in folders:
        manifest.verify(folder, "train.parquet", "validation.parquet")
    corpora = [Documents(folder / "train.parquet") for folder in folders]
    hub, roles, of_model = None, None, settings.of_model
    if of_model:
        log.info("adopting the tokenizer of %s", of_model)
        tokenizer, roles = adopt_from_model(source_folders[0], of_model)
    elif settings.characters:
        tokenizer, roles = characters.make(), characters.ROLES
    elif settings.tokenizer.source:
        tokenizer, hub = adopt(settings)
    else:
        tokenizer = trained(settings, corpora)
    figures = {
        "vocab_size": tokenizer_file.vocab_size(tokenizer),
        "bytes": sum(corpus.bytes() for corpus in corpora),
        "hub": hub,
        "report": report(tokenizer, dict(zip(settings.languages, folders, strict=True)), lossy=bool(of_model)),
    }
    per_word = [each["tokens_per_word"] for each in figures["report"].values()]
    figures["summary"] = f"{figures['vocab_size']:,} entries, {span(per_word)} tokens per word"
    if roles:
        figures["roles"] = roles
    if settings.characters:
        files = characters.write_files(job.out, settings.characters)
    elif roles:  # a published tokenizer stays unchanged
        files = tokenizer_files(source_folders[0])
        for name in files:
            copy_file(source_folders[0] / name, job.out / name)
    else:
        files = ["tokenizer.json"]
        write_text(job.out / "tokenizer.json", tokenizer.to_str(pretty=True))
    manifest.write(job.out, settings, files, [*folders, *source_folders], figures)


if __name__ == "__main__":
    sys.exit(stage_entry.main(TokenizerStage, run, __doc__))
