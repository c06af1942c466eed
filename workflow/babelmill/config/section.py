"""Define the base class of the configuration's sections, and the types of their values."""

from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from babelmill.config.values import delimiter, each_once, local_path, number

Integer = Annotated[int, BeforeValidator(number)]
Number = Annotated[float, BeforeValidator(number)]
Positive = Annotated[Integer, Field(gt=0)]
NonNegative = Annotated[Integer, Field(ge=0)]
Share = Annotated[Number, Field(ge=0, le=1)]
BelowOne = Annotated[Number, Field(ge=0, lt=1)]
Mark = Annotated[str, AfterValidator(delimiter)]  # the character between the fields of a .csv
Encoding = Literal["utf-8", "latin-1", "cp1252"]
LocalPath = Annotated[str, AfterValidator(local_path)]  # a file, a folder or a glob; ~ becomes the home folder
Quoting = Literal["format", "csv", "none"]  # whether quotation marks may enclose the fields of a .csv or .tsv
Names = Annotated[list[str], AfterValidator(each_once)]


class Section(BaseModel):
    """A group of keys. Unknown keys are refused. The text "null" means None, since `--config` can pass only text."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _null_text(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        optional = {name for name, field in cls.model_fields.items() if type(None) in get_args(field.annotation)}
        return {
            key: None if key in optional and value in ("null", "None", "~") else value for key, value in values.items()
        }
