"""Define the types and bounds of the section `predict`: the tables whose rows a model of labels predicts."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from babelmill.config.marks import Neutral
from babelmill.config.section import Encoding, LocalPath, Mark, Positive, Quoting, Section, Share
from babelmill.config.values import prediction_inputs


class PredictInput(Section):
    """An entry of `predict.inputs`. For a key that is null, the value of the section `predict` applies.

    Attributes:
        file: the table.
    """

    file: Annotated[LocalPath, Field(min_length=1)]
    text_column: str | None = None
    context_column: str | None = None
    context: str | None = None
    delimiter: Mark | None = None
    encoding: Encoding | None = None
    quoting: Quoting | None = None


class Predict(Section):
    """Tables whose rows a model of labels predicts."""

    inputs: Annotated[
        dict[str, PredictInput],
        BeforeValidator(prediction_inputs, json_schema_input_type=dict[str, PredictInput | str]),
        Neutral({}),
    ]
    top: Annotated[Annotated[Positive, Field(le=1000)], Neutral(5)]
    method: Annotated[Literal["blocks", "linear"], Neutral("blocks")]
    threshold: Annotated[Share | None, Neutral(None)]
    review: Annotated[Positive, Neutral(100)]
    text_column: Annotated[str | None, Neutral(None)]
    context_column: Annotated[str | None, Neutral(None)]
    context: Annotated[str | None, Neutral(None)]
    delimiter: Annotated[Mark | None, Neutral(None)]
    encoding: Annotated[Encoding, Neutral("utf-8")]
    quoting: Annotated[Quoting, Neutral("format")]

    @model_validator(mode="after")
    def _one_context(self) -> Self:
        for name, said in {"": self, **self.inputs}.items():
            if said.context_column is not None and said.context is not None:
                where = f"predict.inputs.{name}" if name else "predict"
                raise ValueError(
                    f"{where}: context_column names a column, and context says it for all rows: choose one"
                )
        return self
