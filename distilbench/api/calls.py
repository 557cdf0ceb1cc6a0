"""Commands as functions: their parameters, defaults and checks are those of the settings that the options are made from."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo
from rich.console import Console

from distilbench.api.run import Run
from distilbench.settings.commands import EvaluateSettings, ReportSettings
from distilbench.settings.option import ARGUMENT, Settings, extra_of, option_name
from distilbench.settings.sweep import SweepSettings

S = TypeVar("S", bound=Settings)
Result = TypeVar("Result")


def with_settings(settings: type[S]) -> Callable[[Callable[[S], Result]], Callable[..., Result]]:
    """Gives a function the fields of `settings` as parameters, and calls it with the settings that they make.

    A required field may be given by its place, too. A path may be given where text is expected, and one value where
    several are.
    """

    def decorate(function: Callable[[S], Result]) -> Callable[..., Result]:
        returned = inspect.signature(function).return_annotation
        signature = inspect.Signature(list(_parameters(settings)), return_annotation=returned)
        fields = settings.model_fields

        def call(*given: Any, **named: Any) -> Result:
            warnings.filterwarnings("ignore", message="IProgress not found")  # tqdm's, of bars that are not drawn
            values = signature.bind(*given, **named).arguments.items()
            return function(settings(**{n: _value(fields[n], value) for n, value in values if value is not None}))

        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__name__ = call.__qualname__ = function.__name__
        call.__module__ = "distilbench"
        call.__doc__ = f"{inspect.getdoc(function)}\n\nArgs:\n" + "".join(_lines(settings.model_fields))
        return call

    return decorate


def _parameters(settings: type[Settings]) -> Iterator[inspect.Parameter]:
    """The parameters, those without a default first, as Python wants it."""
    fields = sorted(settings.model_fields.items(), key=lambda item: not item[1].is_required())
    for name, field in fields:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if field.is_required() else inspect.Parameter.KEYWORD_ONLY
        default = inspect.Parameter.empty if field.is_required() else field.get_default(call_default_factory=True)
        yield inspect.Parameter(name, kind, default=default, annotation=field.annotation)


def _value(field: FieldInfo, value: Any) -> Any:
    """The value as the field takes it: paths as text, and one value as a tuple where the field has several.

    A text is left to a field that splits it at its commas.
    """
    if isinstance(value, (list, tuple)):
        return tuple(map(_text, value))
    several = get_origin(field.annotation) is tuple and get_args(field.annotation)[-1] is Ellipsis
    splits = isinstance(value, str) and any(isinstance(part, BeforeValidator) for part in field.metadata)
    return (_text(value),) if several and not splits else _text(value)


def _text(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _lines(fields: Mapping[str, FieldInfo]) -> Iterator[str]:
    for name, field in fields.items():
        needed = "" if not field.is_required() else " Required."
        option = "" if extra_of(field)["panel"] == ARGUMENT else f" ({option_name(name, field)})"
        yield f"    {name}{option}: {field.description}{needed}\n"


@with_settings(SweepSettings)
def sweep(settings: SweepSettings) -> Run:
    """Sweep a method's hyper-parameters and publish the leaderboard; the same call again continues a sweep.

    Returns:
        The run.

    Raises:
        InputError: bad input, found before anything is written.
        KeyboardInterrupt: it was interrupted; the same call goes on.
    """
    from distilbench.commands.sweep import sweep as run

    return _run_of(settings.runs, run(settings, Console(soft_wrap=True)))


@with_settings(EvaluateSettings)
def evaluate(settings: EvaluateSettings) -> Run:
    """Score encoders, trained here or not, on every set, and publish the leaderboard; the same call again goes on.

    Returns:
        The run, of which every row is an encoder.

    Raises:
        InputError: bad input, found before anything is encoded; or, after the others are published, the models that could
            not be scored, with the reasons.
        KeyboardInterrupt: it was interrupted; the same call goes on.
    """
    from distilbench.commands.evaluate import evaluate as run

    return _run_of(settings.runs, run(settings, Console(soft_wrap=True)))


@with_settings(ReportSettings)
def report(settings: ReportSettings) -> str:
    """Write one leaderboard from the records of one or more runs, or build a report again from its file of records.

    Returns:
        Where its page is: a path, or a URI.

    Raises:
        InputError: a source cannot be read.
    """
    from distilbench.commands.report import report as run

    return run(settings)


def _run_of(runs: Path, page: Path) -> Run:
    """The run of a page: both folders have its name."""
    return Run(runs / page.parent.name, page=page.resolve())
