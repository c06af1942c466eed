"""Say before anything runs that a text may have too few documents to set any aside for validation."""

from babelmill.config.inputs import corpus_sources, hub_datasets
from babelmill.config.resolve import Configuration
from babelmill.config.schema import Corpus
from babelmill.config.values import words_of_document
from babelmill.core.formats import split_name
from babelmill.core.words import plural

FEW = 3  # documents for validation; if fewer are expected, there may be none
WORD = 6  # bytes with the space after it, about


def too_few(corpus: Corpus, documents: int) -> str | None:
    """Return what to set if none of so many documents may be set aside; None if there are enough."""
    if documents * corpus.validation_share >= FEW or not corpus.validation_share:
        return None
    return (
        f"too few documents to set any aside: corpus.validation_share = {corpus.validation_share:g} of"
        f" {plural(documents, 'document')}; set corpus.document: 300 words (or paragraph, or line), a larger"
        " corpus.validation_share, or corpus.validation_files"
    )


def few_documents(configuration: Configuration, code: str) -> str | None:
    """Return this note for a language whose text is local plain text, if files or many words are its documents."""
    resolved = configuration.corpus(code)
    corpus = resolved.corpus
    words = words_of_document(corpus.document)
    plain = all(split_name(pattern, corpus.format)[0] == ".txt" for pattern in corpus.files)
    known = plain and (words or corpus.document == "file")
    if not known or corpus.builtin or corpus.validation_files or hub_datasets(resolved):
        return None
    sources = corpus_sources(resolved).values()
    files, size = (sum(each[key] for each in sources) for key in ("files", "bytes"))
    return too_few(corpus, max(files, size // (WORD * words)) if words else files)
