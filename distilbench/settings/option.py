"""A field that is an option of the command line, a setting of the Python API, and the check of both."""

from __future__ import annotations

from typing import Annotated, Any, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from distilbench.errors import InputError

ARGUMENT = "argument"
"""The panel of what is no option but an argument of the command."""


def option(
    help: str, default: Any = ..., *, panel: str = "", named: str = "", env: str = "", expected: str = "", **limits: Any
) -> Any:
    """A field with the help of its option.

    `panel` is the group of `--help` that it is in ("": the everyday ones), `named` the option's name where it is not the
    field's, `env` the environment variable that stands for it, `expected` what a refused value should have been, where
    the type does not say it. `limits` are those of pydantic's `Field`, its `default_factory` among them.
    """
    extra: dict[str, Any] = {"panel": panel, "named": named, "env": env, "expected": expected}
    given = {} if "default_factory" in limits else {"default": default}
    return Field(**given, description=help, json_schema_extra=extra, **limits)


def extra_of(field: FieldInfo) -> dict[str, Any]:
    """The arguments of `option` beside the help and the limits."""
    return dict(field.json_schema_extra) if isinstance(field.json_schema_extra, dict) else {}


def option_name(name: str, field: FieldInfo) -> str:
    """The field's name on the command line, such as `--max-pairs`, or `--no-cost` of what is on by default.

    An argument is its name in capitals.
    """
    extra = extra_of(field)
    if extra.get("panel") == ARGUMENT:
        return name.upper()
    turns_off = "no-" if field.default is True else ""
    return f"--{turns_off}{extra.get('named') or name.replace('_', '-')}"


def split_at_commas(value: Any) -> Any:
    """The parts of a text with commas between, empty ones left out and each once; anything else as it is."""
    if isinstance(value, str):
        value = tuple(part.strip() for part in value.split(",") if part.strip())
    return tuple(dict.fromkeys(value)) if isinstance(value, (tuple, list)) else value


COMMAS = BeforeValidator(split_at_commas)
"""Marks a tuple that is written with commas between on the command line."""

Names = Annotated[tuple[str, ...], COMMAS]


class Settings(BaseModel):
    """The settings of a command."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InputError(_first_error(type(self), error)) from None

    def but(self, **changes: Any) -> Self:
        """A copy with some settings changed, checked again."""
        set_values = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**set_values, **changes})


def _first_error(settings: type[Settings], error: ValidationError) -> str:
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    field = settings.model_fields.get(name)
    if field is None:
        names = ", ".join(settings.model_fields)
        return f"{name}: no such setting; expected one of {names}"
    if first["type"] == "missing":
        return f"{option_name(name, field)}: it is missing"
    value = first["input"]
    text = ",".join(map(str, value)) if isinstance(value, (tuple, list)) else value
    return f"{option_name(name, field)} {text}: expected {extra_of(field).get('expected') or _expected(first)}"


_EXPECTED = {
    "greater_than_equal": "at least {ge:g}",
    "greater_than": "more than {gt:g}",
    "less_than_equal": "at most {le}",
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_parsing", "float_type", "finite_number"), "a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "true or false"),
}
"""What a field takes, by the kind of pydantic's error."""


def _expected(error: Any) -> str:
    """The values that a field takes, in words, from pydantic's error."""
    context = error.get("ctx", {})
    if error["type"] == "literal_error":  # 'a', 'b' or 'c', as pydantic writes it
        return "one of " + context["expected"].replace(" or ", ", ").replace("'", "")
    return _EXPECTED[error["type"]].format(**context) if error["type"] in _EXPECTED else str(error["msg"])


def choices_of(annotation: Any) -> tuple[str, ...]:
    """The words that a type of named choices takes, also where they are in an optional one or in a tuple; () of others."""
    arguments = get_args(annotation)
    if arguments and all(isinstance(argument, str) for argument in arguments):
        return tuple(arguments)
    return next((nested for argument in arguments if (nested := choices_of(argument))), ())
