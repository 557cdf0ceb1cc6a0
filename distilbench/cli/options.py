"""The options of a command, made from the fields of its settings."""

from __future__ import annotations

import inspect
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Optional, TypeVar, get_args

import typer
from pydantic import BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from distilbench.errors import InputError
from distilbench.settings.option import ARGUMENT, COMMAS, Settings, choices_of, extra_of, option_name

EVERYDAY = "method data text teacher student trials time_budget space name seed".split()
"""The fields without a panel, in the order of `--help`; what is not here comes after them."""
PANELS = (
    ARGUMENT,
    "",
    "Data",
    "Teacher and student",
    "Augmentation",
    "Search",
    "Scores",
    "Resources",
    "Cluster and storage",
    "Logging",
)


S = TypeVar("S", bound=Settings)

INTERRUPTED = 130
"""The exit status of a command that Ctrl-C ended, as shells have it: 128 + SIGINT."""
TERMINATED = 143
"""The exit status of a command that SIGTERM ended, as a scheduler or container sends it: 128 + SIGTERM."""
GO_ON = ("sweep", "compare", "prepare", "evaluate", "index")
"""Commands that go on where they were interrupted."""
SETTINGS: dict[str, type[Settings]] = {}
"""The settings of each command."""


def takes(settings: type[S]) -> Callable[[Callable[[S], None]], Callable[..., None]]:
    """Gives a command the options of `settings`, and calls it with the settings that they make.

    Bad input is one message and exit status 2. Ctrl-C is one message and exit status 130, SIGTERM the same and 143.
    """

    def decorate(command: Callable[[S], None]) -> Callable[..., None]:
        def run(**options: Any) -> None:
            with input_errors(), interruption(goes_on=command.__name__ in GO_ON):
                command(settings(**{name: value for name, value in options.items() if value not in (None, [], ())}))

        fields = sorted(settings.model_fields.items(), key=lambda name_and_field: _place(*name_and_field))
        parameters = [_parameter(name, field) for name, field in fields]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        SETTINGS[command.__name__] = settings
        return run

    return decorate


@contextmanager
def input_errors() -> Iterator[None]:
    """Turns bad input into its one message and exit status 2."""
    try:
        yield
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(2) from None


class Terminated(KeyboardInterrupt):
    """SIGTERM came, and the command ends as with Ctrl-C."""


@contextmanager
def interruption(*, goes_on: bool) -> Iterator[None]:
    """Turns Ctrl-C and SIGTERM into one message, which names the command that goes on from there, and their exit status."""
    heard = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _terminate) if heard else None
    try:
        yield
    except KeyboardInterrupt as error:
        program, *rest = sys.orig_argv[1:]
        again = shlex.join(["python", program, *rest] if program == "-m" else [Path(program).name, *rest])
        print(f"interrupted; to go on: {again}" if goes_on else "interrupted", file=sys.stderr)  # noqa: T201
        raise typer.Exit(TERMINATED if isinstance(error, Terminated) else INTERRUPTED) from None
    finally:
        if heard:
            signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: object) -> None:
    raise Terminated


def _place(name: str, field: FieldInfo) -> tuple[int, int]:
    extra = extra_of(field)
    everyday = EVERYDAY.index(name) if name in EVERYDAY else len(EVERYDAY)
    return PANELS.index(extra["panel"]), everyday


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    extra, kind = extra_of(field), _type(field)
    arguments: dict[str, Any] = {"help": field.description}
    if kind in (int, float):
        arguments |= {
            key: getattr(part, bound) for part in field.metadata for key, bound in _BOUNDS if hasattr(part, bound)
        }
    if (words := choices_of(field.annotation)) and COMMAS not in field.metadata:
        arguments["metavar"] = f"[{'|'.join(words)}]"
    if extra["panel"] == ARGUMENT:
        info: Any = typer.Argument(**arguments)
    else:
        option = option_name(name, field)
        declared = [option] if kind is not bool or field.default is False else [f"{option}/--no-{option[2:]}"]
        arguments |= {"envvar": extra["env"] or None, "rich_help_panel": extra["panel"] or None}
        info = typer.Option(*declared, **arguments)
    read: Any = kind if kind is bool or field.is_required() else Optional[kind]  # noqa: UP045 - kind is a variable
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=_default(field), annotation=Annotated[read, info]
    )


_BOUNDS = (("min", "ge"), ("max", "le"))


def _type(field: FieldInfo) -> Any:
    """The type that the command line reads for a field; the settings convert it."""
    if any(isinstance(part, BeforeValidator) for part in field.metadata):
        return str
    annotation = field.annotation
    inner = [part for part in get_args(annotation) if part is not NoneType] if NoneType in get_args(annotation) else []
    kind = inner[0] if inner else annotation
    if choices_of(kind):
        return str
    if (arguments := get_args(kind)) and arguments[-1] is Ellipsis:
        return list[arguments[0]]  # type: ignore[valid-type]
    return kind if kind in (bool, int, float, Path) else str


def _default(field: FieldInfo) -> Any:
    if field.is_required():
        return inspect.Parameter.empty
    if field.default is PydanticUndefined or field.default in (None, ()):
        return None
    return ",".join(map(str, field.default)) if isinstance(field.default, tuple) else field.default
