"""Python: the commands as functions with the same settings, and a run as data frames, students and figures.

The parameters of a function, their defaults and checks are those of the settings that the options are made from.
"""

from __future__ import annotations

import inspect
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo
from rich.console import Console

from distilbench.errors import InputError
from distilbench.records import ScoreRecord, TrialRecord
from distilbench.reporting.best import Best, best_of_runs
from distilbench.reporting.board import leaderboard
from distilbench.reporting.choice import ServingBudget
from distilbench.reporting.frame import board_frame
from distilbench.reporting.run_facts import unique_trials
from distilbench.reporting.runs import read_runs
from distilbench.reporting.serving import serving_costs
from distilbench.settings.commands import EvaluateSettings, ReportSettings
from distilbench.settings.option import ARGUMENT, Settings, extra_of, option_name
from distilbench.settings.sweep import SweepSettings
from distilbench.storage.folder_copy import NO_TRAININGS, WITHOUT_STUDENTS, local_runs

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

    from distilbench.evaluation.faiss_codes import Code

S = TypeVar("S", bound=Settings)
Result = TypeVar("Result")
PARAMETER = "param_"
"""Before the name of a hyper-parameter that is called as another column is."""


@dataclass(frozen=True)
class Student:
    """A row of the leaderboard, ready to embed: a SentenceTransformer, and the code that its vectors are stored in."""

    model: SentenceTransformer
    code: Code | None
    """None: the vectors are stored as they are, in float32."""
    record: ScoreRecord

    def __repr__(self) -> str:
        r = self.record
        return f"{r.name}, {r.quantisation}, {r.bytes_per_vector:,} bytes per vector"

    def encode(self, sentences: list[str]) -> NDArray[Any]:
        """The stored form of sentences: their codes, or their vectors if there is no code; a row for each."""
        from distilbench.encoders.encoding import encode

        vectors = encode(self.model, sentences)
        return vectors if self.code is None else self.code.encode(vectors)


class Run:
    """A finished or unfinished run, by its folder or its URI; of several methods, the folder that holds theirs.

    Every call reads what is there now. `page` is where the leaderboard is, if the run was just made.
    """

    def __init__(self, place: str | Path, *, page: Path | None = None) -> None:
        self.place, self.page = os.fspath(place), page

    def __repr__(self) -> str:
        return f"Run({self.place!r})"

    def trials(self) -> pd.DataFrame:
        """A row for each trial, and each training that confirms one: state, scores, time, hyper-parameters.

        `dev` and `dev_pca` are x 100, of the student and of PCA with as many dimensions or bytes. `seconds` are those of
        the training. A sweep with several objectives has a column for each: `objective_bytes`.

        Raises:
            InputError: nothing is there, or a record cannot be read.
        """
        import pandas as pd

        return pd.DataFrame([_trial(record) for record in unique_trials(self._records())])

    def scores(self) -> pd.DataFrame:
        """A row for each encoder and code of the leaderboard, with all its scores and costs.

        Raises:
            InputError: nothing is there, or a record cannot be read.
        """
        return board_frame(leaderboard(self._records()))

    def front(self) -> pd.DataFrame:
        """The rows of `scores` that no other one beats in both bytes and test score, the smallest first.

        Raises:
            InputError: as of `scores`.
        """
        frame = self.scores()
        return frame[frame["front"]].sort_values("bytes").reset_index(drop=True)

    def best(self, *, bytes: int | None = None, latency: float | None = None, dim: int | None = None) -> Best:
        """The best row within so many bytes per vector, ms per sentence and dimensions, chosen on dev as `best` does.

        Raises:
            InputError: there is none; the message says what the least is that there is.
        """
        return best_of_runs([self._folder(WITHOUT_STUDENTS)], ServingBudget(bytes, latency, dim))

    def student(
        self,
        name: str | None = None,
        *,
        bytes: int | None = None,
        latency: float | None = None,
        dim: int | None = None,
        seed: int | None = None,
    ) -> Student:
        """The best row within the limits, or the one called `name` (its name, or `id` of `scores`), loaded.

        Of its seeds it is `seed`, or the one with the highest dev score. Baselines and the teacher can be loaded too.

        Raises:
            InputError: there is no such row, or its model is not there and cannot be made.
        """
        from sentence_transformers import SentenceTransformer

        from distilbench.commands.export import export
        from distilbench.encoders.encoder import readable
        from distilbench.evaluation.faiss_codes import Code

        budget = ServingBudget(bytes, latency, dim)
        if name is not None and budget != ServingBudget():
            raise InputError("student: expected its name, or limits to choose it by, not both")
        with tempfile.TemporaryDirectory(prefix="distilbench-") as scratch:
            folder = Path(scratch) / "student"
            record = export([self._folder(NO_TRAININGS)], folder, budget, student=name, seed=seed).record
            with readable(folder) as source:
                model = SentenceTransformer(str(source), device="cpu")
            kind = record.quantisation
            code = None if kind == "float32" else Code.load(kind, folder, record.dim)
        return Student(model.eval(), code, record)

    def figure(self, name: str = "quality-bytes") -> go.Figure:
        """A figure of the run's pages in Plotly, in light colours: `quality-bytes`, `history`, `importance`, ...

        Those of a search are of one method's run.

        Raises:
            InputError: the run has no such figure; the message names those that it has.
        """
        import plotly.graph_objects as go

        from distilbench.reporting.board_figures import board_plots
        from distilbench.reporting.search_figures import search_plots

        records = self._records()
        board = leaderboard(records)
        plots = board_plots(board, serving_costs(board))
        searches = {record.run for record in records if isinstance(record, TrialRecord)}
        if name not in plots and len(searches) == 1:
            plots |= search_plots(records)[0]
        if name not in plots:
            several = f", or a run of one method, such as {self.place}/METHOD" if len(searches) > 1 else ""
            raise InputError(
                f"figure {name!r}: the run has no such figure; expected one of {', '.join(plots)}{several}"
            )
        plot = plots[name]
        figure = go.Figure(json.loads(plot.figure))
        figure.update_layout(title=plot.title, margin={"t": 72}, paper_bgcolor="white", plot_bgcolor="white")
        return figure

    def _folder(self, leave_out: str) -> Path:
        return local_runs([self.place], leave_out)[0]

    def _records(self) -> list[ScoreRecord | TrialRecord]:
        folder = self._folder(WITHOUT_STUDENTS)
        if not folder.is_dir():
            raise InputError(f"{self.place}: no such folder; expected that of a run, such as runs/NAME")
        return read_runs([folder])


def _trial(record: TrialRecord) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "run": record.run,
        "method": record.method,
        "trial": record.number,
        "seed": record.seed,
        "confirms": record.confirms,
        "state": record.state,
        "reason": record.reason,
        "dim": record.dim,
        "bytes": record.group.bytes,
        "objective": record.objective,
        "dev": record.dev,
        "dev_pca": record.result and record.result.dev_pca,
        "steps": record.rungs[-1].step if record.rungs else 0,
        "seconds": record.seconds,
        **{f"objective_{name}": value for name, value in record.values.items()},
    }
    return columns | {PARAMETER * (name in columns) + name: value for name, value in record.params.items()}


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
    for name, field in sorted(settings.model_fields.items(), key=lambda item: not item[1].is_required()):
        if field.is_required():
            yield inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=field.annotation)
        else:
            default = field.get_default(call_default_factory=True)
            yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=field.annotation)


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
    return Run(runs / page.parent.name, page=page.resolve())  # both folders have its name
