"""A run in Python: its trials and scores as data frames, its best row, its students, its figures."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distilbench.errors import InputError
from distilbench.records import ScoreRecord, TrialRecord
from distilbench.reporting.best import Best, best_of_runs
from distilbench.reporting.board import index_rows, leaderboard
from distilbench.reporting.choice import ServingBudget
from distilbench.reporting.run_facts import unique_trials
from distilbench.reporting.runs import read_runs
from distilbench.storage.uris import NO_TRAININGS, WITHOUT_STUDENTS, local_runs

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

    from distilbench.evaluation.faiss_codes import Code

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
        """The row's name, its code and its size."""
        r = self.record
        return f"{r.name}, {r.quantisation}, {r.bytes_per_vector:,} bytes per vector"

    def encode(self, sentences: list[str]) -> NDArray[Any]:
        """The stored form of sentences: their codes, or their vectors if there is no code; a row for each."""
        from distilbench.encoders.encoder import encode

        vectors = encode(self.model, sentences)
        return vectors if self.code is None else self.code.encode(vectors)


class Run:
    """A finished or unfinished run, by its folder or its URI; of several methods, the folder that holds theirs.

    Every call reads what is there now. `page` is where the leaderboard is, if the run was just made.
    """

    def __init__(self, place: str | Path, *, page: Path | None = None) -> None:
        self.place, self.page = os.fspath(place), page

    def __repr__(self) -> str:
        """The call that makes it."""
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
        from distilbench.reporting.frame import board_frame

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
        from distilbench.evaluation.faiss_codes import Code

        budget = ServingBudget(bytes, latency, dim)
        if name is not None and budget != ServingBudget():
            raise InputError("student: expected its name, or limits to choose it by, not both")
        with tempfile.TemporaryDirectory(prefix="distilbench-") as scratch:
            folder = Path(scratch) / "student"
            record = export([self._folder(NO_TRAININGS)], folder, budget, student=name, seed=seed).record
            model = SentenceTransformer(str(folder), device="cpu")
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
        from distilbench.reporting.serving import serving_costs

        records = self._records()
        board = leaderboard(records)
        plots = board_plots(board, serving_costs(board), index_rows(board))
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
        "dev_pca": record.dev_pca,
        "steps": record.rungs[-1].step if record.rungs else 0,
        "seconds": record.seconds,
        **{f"objective_{name}": value for name, value in record.values.items()},
    }
    return columns | {PARAMETER * (name in columns) + name: value for name, value in record.params.items()}
