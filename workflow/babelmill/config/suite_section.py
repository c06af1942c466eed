"""Define the types of an evaluation suite: an entry of `suites:`, or a file of `config/suites/`."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from babelmill.config.section import Encoding, LocalPath, Mark, Number, Quoting, Section

Text = Annotated[str, Field(min_length=1)]


class Baseline(Section):
    """A published score, which reports show beside ours.

    Attributes:
        language: the code of the language, as in this workflow.
        model: the model that was scored.
        pipeline: the program that scored it; a model's scores differ between pipelines.
        score: percent of the pairs that are right.
    """

    language: Text
    model: Text
    pipeline: Text
    score: Annotated[Number, Field(ge=0, le=100)]


class Suite(Section):
    """A set of minimal pairs: a good sentence, and a bad one that differs in little.

    Attributes:
        title: its name in reports.
        repository: a dataset on the Hub; without one, the files are local.
        revision: the revision of the repository.
        files: globs; `{language}` stands for the value that `languages` has for a language.
        language: the language of all pairs.
        languages: instead of `language`, {code in this workflow: the language's name in the names of the files}.
        good, bad: the columns of the sentences.
        phenomenon: the column that says what is tested.
        paradigm: the column of the finer group; "{file}" means the file's name without its ending.
        delimiter, encoding, quoting: those of .csv and .tsv files.
        headline: what counts as the score: the share of all pairs, or the mean of the paradigms' shares.
        license: the licence of the pairs; pairs without a licence are not copied.
        note: what a reader of a score must know.
        baselines: published scores.
    """

    title: str = ""
    repository: Text | None = None
    revision: Text = "main"
    files: Annotated[list[Annotated[LocalPath, Field(min_length=1)]], Field(min_length=1)]
    language: Text | None = None
    languages: dict[str, str] = {}
    good: Text
    bad: Text
    phenomenon: Text | None = None
    paradigm: Text | None = None
    delimiter: Mark | None = None
    encoding: Encoding = "utf-8"
    quoting: Quoting = "format"
    headline: Literal["pairs", "paradigms"] = "pairs"
    license: str = ""
    note: str = ""
    baselines: list[Baseline] = []

    @model_validator(mode="after")
    def _languages_are_said(self) -> Self:
        if (self.language is None) == (not self.languages):
            raise ValueError(
                "set `language`; or set `languages`, if the names of the files contain each language's code"
            )
        if self.languages and any("{language}" not in pattern for pattern in self.files):
            raise ValueError(
                "with `languages`, each of `files` needs {language}: else all languages have the same pairs"
            )
        if self.good == self.bad:
            raise ValueError(f"good and bad are both the column {self.good!r}")
        return self

    @property
    def covered(self) -> dict[str, str]:
        """Return the languages of the suite: {code: the language's name in the names of the files}."""
        return {self.language: self.language} if self.language else self.languages

    def files_of(self, code: str) -> list[str]:
        """Return the globs of a language's files."""
        return [pattern.replace("{language}", self.covered[code]) for pattern in self.files]
