"""Define the section `corpus`: where a language's text comes from, and how it becomes documents."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from babelmill.config.marks import Neutral, OnlyIf
from babelmill.config.section import BelowOne, Encoding, LocalPath, Mark, Names, NonNegative, Number, Quoting, Section
from babelmill.config.values import budget, column_names, dataset_parts
from babelmill.core.formats import split_name

# Keys of `corpus` that name columns, and the end of the error for a source without columns.
TABLES = {
    "prompt_column": "prompts come from .jsonl, .csv, .tsv or .parquet",
    "label_columns": "labels come from .csv, .tsv, .jsonl or .parquet",
}


class DatasetPart(Section):
    """An entry of `corpus.hub`: files of a dataset on the Hub. A key that is null or empty has no effect.

    Attributes:
        repository: its name; {language} stands for the language's code.
        config: a configuration that the dataset's card declares, with its data files.
        files: globs inside the repository.
        text_column: replaces `corpus.text_column`.
    """

    repository: Annotated[str, Field(min_length=1)]
    config: Annotated[str, Field(min_length=1)] | None = None
    files: Names = []
    text_column: Annotated[str, Field(min_length=1)] | None = None


class Corpus(Section):
    """Where a language's text comes from and how it becomes documents."""

    files: list[LocalPath]
    builtin: Literal["python-docs"] | None
    hub: Annotated[
        Annotated[list[DatasetPart], Field(min_length=1)] | str | None,
        BeforeValidator(dataset_parts, json_schema_input_type=list[DatasetPart | str] | str | None),
    ]
    revision: str
    validation_files: list[LocalPath]
    text_column: str
    prompt_column: Annotated[Annotated[str, Field(min_length=1)] | None, Neutral(None)]
    label_columns: Annotated[Names, BeforeValidator(column_names, json_schema_input_type=list[str] | str), Neutral([])]
    context_column: Annotated[Annotated[str, Field(min_length=1)] | None, Neutral(None)]
    context: Annotated[Annotated[str, Field(min_length=1)] | None, Neutral(None)]
    delimiter: Annotated[Mark, Neutral(",")]
    encoding: Annotated[Encoding, Neutral("utf-8")]
    format: Annotated[Literal["txt", "jsonl", "csv", "tsv", "parquet"] | None, Neutral(None)]
    quoting: Annotated[Quoting, Neutral("format")]
    document: Literal["file", "paragraph", "line"]
    validation_share: Annotated[BelowOne, OnlyIf("validation_files", ([],), 0.0)]
    on_error: Literal["stop", "skip"]
    normalization: Literal["none", "NFC"]
    control_characters: Literal["keep", "remove"]
    min_characters: NonNegative
    min_words: Annotated[NonNegative, Neutral(0)]
    deduplicate: bool
    categories: list[str]
    budget: Annotated[Annotated[Number, Field(gt=0)] | str | None, AfterValidator(budget)]

    @model_validator(mode="after")
    def _prompts_have_columns(self) -> Self:
        if self.prompt_column is not None and self.prompt_column == self.text_column:
            name = f"corpus.prompt_column = {self.prompt_column!r}"
            raise ValueError(
                f"{name} is also corpus.text_column: set corpus.text_column to the column with the responses"
            )
        plain = [path for path in [*self.files, *self.validation_files] if split_name(path, self.format)[0] == ".txt"]
        found = plain[0] if plain else self.builtin
        for key, words in TABLES.items():
            if found and getattr(self, key):
                raise ValueError(f"corpus.{key} = {getattr(self, key)!r}: {found} has no columns; {words}")
        return self

    @model_validator(mode="after")
    def _columns_of_labels(self) -> Self:
        names = {"text_column": self.text_column, "context_column": self.context_column}
        for key, name in names.items():
            if name in self.label_columns:
                raise ValueError(f"corpus.label_columns names {name!r}, which is also corpus.{key}: remove one of them")
        if self.context_column is not None and self.context is not None:
            raise ValueError(
                f"corpus.context_column = {self.context_column!r} and corpus.context = {self.context!r}: a text has one"
                " context; leave one of them out"
            )
        for key in ("context_column", "context"):
            if getattr(self, key) is not None and not self.label_columns:
                raise ValueError(
                    f"corpus.{key} = {getattr(self, key)!r} is for labelled text: also set corpus.label_columns"
                )
        if self.label_columns and self.prompt_column is not None:
            raise ValueError(
                f"corpus.prompt_column = {self.prompt_column!r} and corpus.label_columns = {self.label_columns}: text"
                " has prompts or labels, not both; for a context of labelled text, set corpus.context_column"
            )
        return self
