"""`distilbench best`: the best row of some runs within a budget (`choice.best_under`), and what is needed to use it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from distilbench.errors import InputError
from distilbench.records import ON_DEMONSTRATION, ScoreRecord, TrialRecord, read_records
from distilbench.reporting.board import Leaderboard, Row, SeedScores, leaderboard, teacher_row
from distilbench.reporting.choice import (
    Recommendation,
    ServingBudget,
    best_under,
    candidates,
    for_search,
    latency_of,
    recommendation,
    scored,
)
from distilbench.reporting.columns import DEV, TEST
from distilbench.reporting.comparison import dev_comparison
from distilbench.reporting.formats import fixed
from distilbench.reporting.frame import board_frame
from distilbench.reporting.loading import can_be_built, export_command, is_nested, load_code, quantiser_folder
from distilbench.reporting.runs import SCORES, read_runs, run_folders
from distilbench.reporting.serving import LEAST_OVERLAP, serving_costs
from distilbench.selection import Selection


@dataclass(frozen=True)
class Best:
    """The chosen row; `folders[i]` is the model folder of its i-th seed, None where none is kept.

    `runs` are the folders that it was chosen from, as they were given.
    """

    runs: tuple[Path, ...]
    budget: ServingBudget
    board: Leaderboard
    row: Row
    folders: tuple[Path | None, ...]
    pair: Recommendation | None = None
    """The student for queries among the teacher's documents, within the budget (`choice.for_search`)."""

    def __repr__(self) -> str:
        return self.text()

    def to_json(self) -> dict[str, Any]:
        """Return the choice with all columns of its row and its teacher's."""
        record, model, teacher = self.row.record, self._model(), teacher_row(self.row, self.board.rows)
        seeds = [
            {
                "seed": seed.record.seed,
                "dev": seed.score(DEV),
                "test": seed.score(TEST),
                "record_id": seed.record.record_id,
                "run": seed.record.run,
                "model": folder and str(folder),
            }
            for seed, folder in zip(self.row.seeds, self.folders, strict=True)
        ]
        return {
            "budget": self.budget._asdict(),
            "summary": self._summary(),
            "student": {**self._columns(self.row), "hyperparameters": record.hyperparameters, "seeds": seeds},
            "teacher": teacher and self._columns(teacher),
            "selected_by": str(self.board.selection),
            "demonstration": record.demonstration,
            "corpus": record.corpus,
            "model": model and str(model),
            "load": (model and self._load(model)) or None,
            "export": self._export_command(self.row) or None,
            "for_search": self.pair
            and {
                "summary": self.pair.text(),
                **self._columns(self.pair.row),
                "export": self._export_command(self.pair.row) or None,
            },
        }

    def text(self) -> str:
        """Return the choice for the terminal: what the page says of it, its seeds, and how to load and export it."""
        model = self._model()
        none = "none is kept: `export` makes it" if can_be_built(self.row.record) else "no model is kept"
        lines = [self._summary()]
        lines += [f"Scores are {ON_DEMONSTRATION}."] if self.row.record.demonstration else []
        lines += ["", f"Seed  dev     test    record, model (chosen on dev, by {self.board.selection.title})"]
        for seed, folder in zip(self.row.seeds, self.folders, strict=True):
            scores = f"{fixed(seed.score(DEV)):<8}{fixed(seed.score(TEST)):<8}"
            lines += [f"{seed.record.seed:<6}{scores}{seed.record.record_id}", f"{'':<22}{folder or none}"]
        if model is not None and self._load(model):
            best = " (the seed with the highest dev score)" if len(self.row.seeds) > 1 else ""
            lines += ["", f"To load it{best}:", "", *(f"    {line}" for line in self._load(model).splitlines())]
        if command := self._export_command(self.row):
            lines += ["", "To export it, with a model card:", "", f"    {command}"]
        if self.pair is not None:
            lines += ["", self.pair.text(), "", f"    {self._export_command(self.pair.row)}"]
        return "\n".join(lines)

    def _export_command(self, row: Row) -> str:
        seed = best_seed(row) or row.seeds[0]
        return export_command(seed.record, seed.anchor, self.runs)

    def _summary(self) -> str:
        return recommendation("", self.row, self.board, serving_costs(self.board)).text()

    def _columns(self, row: Row) -> dict[str, Any]:
        """The row's columns, called as in `Run.scores()`."""
        place = self.board.rows.index(row)
        columns: dict[str, Any] = json.loads(board_frame(self.board).iloc[[place]].to_json(orient="records"))[0]
        return columns

    def _model(self) -> Path | None:
        seed = best_seed(self.row)
        return None if seed is None else self.folders[self.row.seeds.index(seed)]

    def _load(self, model: Path) -> str:
        record = self.row.record
        if record.documents:
            return ""
        return load_code(record, str(model), str(quantiser_folder(model, record)), cut=is_nested(record))


def best_of_runs(
    runs: Sequence[Path], budget: ServingBudget, records: Sequence[ScoreRecord | TrialRecord] | None = None
) -> Best:
    """Choose the best row of the runs within the budget, by `choice.best_under`; an InputError says why there is none.

    `records` are those of the runs, where they have been read.
    """
    board, folders = leaderboard(read_runs(runs) if records is None else records), run_folders(runs)
    named = ", ".join(map(str, folders))
    usable, rows = scored(board.rows), candidates(board.rows)
    if not usable:
        raise InputError(f"{named}: no row with a dev score; expected the folders of finished runs")
    selects = sorted({str(Selection.parse(row.record.select).measure) for row in usable})
    if len(selects) > 1:
        raise InputError(f"{named}: the runs were selected by {' and by '.join(selects)}; expected runs of one")
    lost = len(usable) - len(rows)
    lost_rows = f"{lost} {'row' if lost == 1 else 'rows'}"
    without = f"{lost_rows} whose codes keep less than {LEAST_OVERLAP:g} % of the neighbours of their float32 vectors"
    if not rows:
        raise InputError(f"{named}: no row can be recommended: {without}")
    corpora = {row.compared_on: f"{row.record.corpus} of {row.record.run}" for row in reversed(rows)}
    if len(corpora) > 1:
        names = ", ".join(corpora.values())
        raise InputError(f"{named}: the runs are of {len(corpora)} corpora ({names}); expected runs of one")
    compared, costs = dev_comparison(board, folders), serving_costs(board)
    row = best_under(rows, budget, compared)
    if row is None:
        units = ("bytes per vector", "ms per sentence", "dimensions")
        limits = [f"{limit:,g} {unit}" for limit, unit in zip(budget, units, strict=True) if limit is not None]
        left_out = f" (left out: {without})" if lost else ""
        raise InputError(f"at most {' and '.join(limits)}: no row is within it; {_least(rows)}{left_out}")
    owners = record_owners(runs)
    pair = None if row.record.documents else for_search(board, compared, costs, budget)
    return Best(tuple(runs), budget, board, row, tuple(model_folder(seed.record, owners) for seed in row.seeds), pair)


def best_seed(row: Row) -> SeedScores | None:
    """The seed with the highest dev score of those that keep a model; None where none does."""
    devs = [(-math.inf if (dev := seed.score(DEV)) is None else dev, seed) for seed in row.seeds if seed.record.model]
    return max(devs, key=lambda pair: pair[0], default=(0.0, None))[1]


def record_owners(runs: Sequence[Path]) -> dict[tuple[str, str], Path]:
    """By a record's run and id the folder of the run that it is in; of several folders, the first one."""
    return {
        (r.run, r.record_id): folder
        for folder in reversed(run_folders(runs))
        for r in read_records(folder / SCORES)
        if isinstance(r, ScoreRecord)
    }


def model_folder(record: ScoreRecord, owners: Mapping[tuple[str, str], Path]) -> Path | None:
    """The record's model folder; None where none is kept."""
    if not record.model:
        return None
    inside = PurePosixPath(record.model)
    if inside.is_absolute() or ".." in inside.parts:
        raise InputError(f"record {record.record_id}: model {record.model!r}: expected a folder of its run")
    return owners[record.run, record.record_id] / inside


def _least(rows: Sequence[Row]) -> str:
    """The smallest row in each respect; they need not be one."""
    smallest = min(rows, key=lambda row: row.record.bytes_per_vector)
    narrowest = min(rows, key=lambda row: row.record.dim)
    timed = [(latency, row.name) for row in rows if (latency := latency_of(row)) is not None]
    fastest = "the fastest takes {:.3g} ms ({})".format(*min(timed)) if timed else "no latency was measured"
    return (
        f"the smallest has {smallest.record.bytes_per_vector:,} bytes ({smallest.name}, "
        f"{smallest.record.quantisation}), the narrowest {narrowest.record.dim:,} dimensions ({narrowest.name}), {fastest}"
    )
