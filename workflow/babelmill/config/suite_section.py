"""The types of an evaluation suite: an entry of `suites:`, or a file of `config/suites/`."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from babelmill.config.section import Encoding, Mark, Number, Section

Text = Annotated[str, Field(min_length=1)]


class Baseline(Section):
    """A published score, which reports show beside ours.

    Attributes:
        language: of the score, as this workflow calls it.
        model: what was scored.
        pipeline: what scored it; one model has different scores in two of them.
        score: percent of the pairs.
    """

    language: Text
    model: Text
    pipeline: Text
    score: Annotated[Number, Field(ge=0, le=100)]


class Suite(Section):
    """A set of minimal pairs: a good sentence, and a bad one that differs in little.

    Attributes:
        title: what reports call it.
        repository: on the Hub, a dataset; without one, the files are local.
        revision: of the repository.
        files: globs; `{language}` stands for what `languages` says of a language.
        language: of all pairs.
        languages: in its place, {the language here: what it is called in the names of the files}.
        good, bad: the columns of the sentences.
        phenomenon: the column of what is tested.
        paradigm: the column of the finer group; "{file}": the file's name without its ending.
        delimiter, encoding: of .csv and .tsv files.
        headline: what is called the score: the share of all pairs, or the mean of the paradigms' shares.
        license: of the pairs; what nobody granted is not copied.
        note: what a reader of a score has to know.
        baselines: published scores.
    """

    title: str = ""
    repository: Text | None = None
    revision: Text = "main"
    files: Annotated[list[Text], Field(min_length=1)]
    language: Text | None = None
    languages: dict[str, str] = {}
    good: Text
    bad: Text
    phenomenon: Text | None = None
    paradigm: Text | None = None
    delimiter: Mark | None = None
    encoding: Encoding = "utf-8"
    headline: Literal["pairs", "paradigms"] = "pairs"
    license: str = ""
    note: str = ""
    baselines: list[Baseline] = []

    @model_validator(mode="after")
    def _languages_are_said(self) -> Self:
        if (self.language is None) == (not self.languages):
            raise ValueError("say `language`, or `languages` where the files of each have its code in their names")
        if self.good == self.bad:
            raise ValueError(f"good and bad are both the column {self.good!r}")
        return self

    @property
    def covered(self) -> dict[str, str]:
        """What each language that it has is called in the names of its files."""
        return {self.language: self.language} if self.language else self.languages

    def files_of(self, code: str) -> list[str]:
        """Return the globs of a language's files."""
        return [pattern.replace("{language}", self.covered[code]) for pattern in self.files]
