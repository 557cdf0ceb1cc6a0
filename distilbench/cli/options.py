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
from typing import Annotated, Any, Optional, TypeVar, get_args, get_origin

import typer
from click import ClickException
from pydantic import BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from distilbench.errors import InputError, unforeseen
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
)


S = TypeVar("S", bound=Settings)

INTERRUPTED = 130
"""The exit status of a command that Ctrl-C ended, as shells have it: 128 + SIGINT."""
TERMINATED = 143
"""The exit status of a command that SIGTERM ended, as a scheduler or container sends it: 128 + SIGTERM."""
GO_ON = ("sweep", "compare", "prepare", "evaluate", "index")
"""Commands that go on where they were interrupted."""


def with_options(command: Callable[[S], None], settings: type[S]) -> Callable[..., None]:
    """Give a command the options of `settings`, and call it with the settings that they make.

    Bad input is one message and exit status 2, any other error one line and 1. Ctrl-C is one message and exit status 130,
    SIGTERM the same and 143.
    """

    def run(context: typer.Context, **options: Any) -> None:
        with exit_status(goes_on=command.__name__ in GO_ON):
            # What the user does not give is not set: a time budget may choose it.
            sources = {name: context.get_parameter_source(name) for name in options}
            given = [name for name, source in sources.items() if source and source.name != "DEFAULT"]
            command(settings(**{name: options[name] for name in given}))

    fields = sorted(settings.model_fields.items(), key=lambda name_and_field: _place(*name_and_field))
    own = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [own, *(_parameter(name, field) for name, field in fields)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


class Terminated(KeyboardInterrupt):
    """SIGTERM came, and the command ends as with Ctrl-C."""


@contextmanager
def exit_status(*, goes_on: bool) -> Iterator[None]:
    """Turns bad input, Ctrl-C and SIGTERM into one message and their exit status.

    After an interruption the message names the command that goes on from there.
    """
    heard = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _terminate) if heard else None
    try:
        yield
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(error.status) from None
    except (typer.Exit, typer.Abort, ClickException, BrokenPipeError):
        raise
    except Exception as error:
        print(f"error: {unforeseen(error)}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(1) from None
    except KeyboardInterrupt as error:
        *before_it, program = sys.orig_argv[: 1 - len(sys.argv) or None]  # without the options of Python itself
        begin = ["python", "-m", program] if before_it[-1:] == ["-m"] else [Path(program).name]
        again = shlex.join([*begin, *sys.argv[1:]])
        print(f"interrupted; to go on: {again}" if goes_on else "interrupted", file=sys.stderr)  # noqa: T201
        raise typer.Exit(TERMINATED if isinstance(error, Terminated) else INTERRUPTED) from None
    finally:
        if heard:
            signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: object) -> None:
    raise Terminated


def _place(name: str, field: FieldInfo) -> tuple[int, int]:
    everyday = EVERYDAY.index(name) if name in EVERYDAY else len(EVERYDAY)
    return PANELS.index(extra_of(field)["panel"]), everyday


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    extra, kind = extra_of(field), _kind(field)
    several = get_origin(kind) is tuple
    read: Any = bool if kind is bool else list[str] if several else str
    default = None if field.default in (PydanticUndefined, None, ()) else field.default
    if isinstance(default, tuple):
        default = ",".join(map(str, default))
    words = () if COMMAS in field.metadata else choices_of(field.annotation)
    shown = get_args(kind)[0] if several else kind
    arguments: dict[str, Any] = {"help": field.description}
    if kind is not bool and extra["panel"] != ARGUMENT:
        arguments["metavar"] = f"[{'|'.join(words)}]" if words else f"<{shown.__name__.lower()}>"
    if extra["panel"] == ARGUMENT:
        info: Any = typer.Argument(**arguments)
    else:
        option = option_name(name, field)
        arguments |= {"envvar": extra["env"] or None, "rich_help_panel": extra["panel"] or None}
        # A flag that turns something off: click has the names of both sides in one text.
        info = typer.Option(f" /{option}" if field.default is True else option, **arguments)
    if field.is_required():
        default = inspect.Parameter.empty
    elif kind is not bool:
        read = Optional[read]  # noqa: UP045 - it is a variable
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[read, info])


def _kind(field: FieldInfo) -> Any:
    """The type of a field's value, and `str` of one that has a form of its own, such as commas or a duration."""
    if any(isinstance(part, BeforeValidator) for part in field.metadata):
        return str
    inner = [part for part in get_args(field.annotation) if part is not NoneType]
    kind = inner[0] if NoneType in get_args(field.annotation) else field.annotation
    return kind if kind in (bool, int, float, Path) or get_origin(kind) is tuple else str
