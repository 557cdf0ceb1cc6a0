"""`distilbench best`: the best student of some runs within a budget, and what is needed to use it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distilbench.errors import InputError
from distilbench.records import ScoreRecord
from distilbench.reporting.budget import ServingBudget, best_under, latency_of, students
from distilbench.reporting.runs import latest_scores, read_runs, run_folders
from distilbench.reporting.table import AVERAGE, DEV, Leaderboard, Row, SeedScores, leaderboard, teacher_of


@dataclass(frozen=True)
class Best:
    """The chosen row and its teacher's; `folders[i]` is the model folder of the row's i-th seed, None where none is kept."""

    budget: ServingBudget
    board: Leaderboard
    row: Row
    teacher: Row | None
    folders: tuple[Path | None, ...]

    def to_json(self) -> dict[str, Any]:
        """Everything that `text` says."""
        record, model = self.row.record, self._model()
        return {
            "budget": self.budget._asdict(),
            "student": {
                "label": self.row.name,
                "method": record.method,
                "quantisation": record.quantisation,
                "hyperparameters": record.hyperparameters,
                **self._figures(self.row),
                "seeds": [
                    {
                        "seed": seed.record.seed,
                        "dev": self._dev(seed),
                        "test_average": seed.values["all"][self._column(AVERAGE)],
                        "record_id": seed.record.record_id,
                        "run": seed.record.run,
                        "model": None if folder is None else str(folder),
                    }
                    for seed, folder in zip(self.row.seeds, self.folders, strict=True)
                ],
            },
            "teacher": None if self.teacher is None else {"label": self.teacher.name, **self._figures(self.teacher)},
            "test_sets": list(self.board.sts_sets),
            "model": None if model is None else str(model),
            "load": None if model is None else self._load(model),
        }

    def text(self) -> str:
        """The choice for the terminal."""
        student, model = self.row.record, self._model()
        kind = "" if student.quantisation == "float32" else f", {student.quantisation}"
        lines = [f"{self.row.name}{kind} (chosen on dev)", *self._lines(self.row)]
        if self.teacher is not None:
            lines += ["", f"Teacher {self.teacher.name}", *self._lines(self.teacher)]
        lines += ["", "Seed  dev     test    record, model"]
        for seed, folder in zip(self.row.seeds, self.folders, strict=True):
            scores = f"{_two(self._dev(seed)):<8}{_two(seed.values['all'][self._column(AVERAGE)]):<8}"
            lines.append(f"{seed.record.seed:<6}{scores}{seed.record.record_id}")
            lines.append(f"{'':<22}{'no model is kept' if folder is None else folder}")
        if model is not None:
            best = " (the seed with the highest dev score)" if len(self.row.seeds) > 1 else ""
            lines += ["", f"To load it{best}:", "", *(f"    {line}" for line in self._load(model).splitlines())]
        return "\n".join(lines)

    def _column(self, key: str) -> int:
        return [column.key for column in self.board.columns].index(key)

    def _dev(self, seed: SeedScores) -> float | None:
        return seed.values["all"][self._column(DEV)]

    def _figures(self, row: Row) -> dict[str, Any]:
        test = self.board.cell(row, AVERAGE)
        return {
            "bytes_per_vector": row.record.bytes_per_vector,
            "dim": row.record.dim,
            "latency_ms": latency_of(row),
            "dev": self.board.cell(row, DEV).value,
            "test_average": test.value,
            "test_interval95": test.interval,
            "test_seeds": test.seeds,
            "test_retention_percent": test.retention,
        }

    def _lines(self, row: Row) -> list[str]:
        test, latency = self.board.cell(row, AVERAGE), latency_of(row)
        spread = "" if test.interval is None else f" ± {test.interval:.2f}"
        seeds = f"{test.seeds} {'seed' if test.seeds == 1 else 'seeds'}"
        kept = "" if test.retention is None or row is self.teacher else f", {test.retention:.1f} % of the teacher's"
        lines = [
            f"  bytes per vector  {row.record.bytes_per_vector:,}",
            f"  dimensions        {row.record.dim:,}",
            f"  dev               {_two(self.board.cell(row, DEV).value)}",
            f"  test average      {_two(test.value)}{spread} ({seeds}){kept}: {', '.join(self.board.sts_sets) or 'no set'}",
        ]
        return lines if latency is None else [*lines, f"  latency           {latency:.3g} ms per sentence"]

    def _model(self) -> Path | None:
        """The model folder of the seed with the highest dev score, of those that keep one."""
        kept = [pair for pair in zip(self.row.seeds, self.folders, strict=True) if pair[1] is not None]
        known = [(self._dev(seed), folder) for seed, folder in kept]
        return max(known, key=lambda pair: -1e9 if pair[0] is None else pair[0], default=(None, None))[1]

    def _load(self, model: Path) -> str:
        """Python that embeds sentences with the model as it was scored."""
        record = self.row.record
        nested = record.dim < record.hyperparameters.get("output_dim", record.dim)
        cut = f", truncate_dim={record.dim}" if nested else ""
        lines = [
            "from sentence_transformers import SentenceTransformer",
            f"model = SentenceTransformer({_literal(model)}{cut})",
            'vectors = model.encode(["One sentence.", "Another one."])',
        ]
        if record.quantisation != "float32":
            name = {"int8": "Int8", "binary": "Binary"}[record.quantisation]
            own = model / f"d{record.dim}"  # a student of several widths has a quantiser for each
            folder = own if own.is_dir() else model
            lines.insert(0, "from pathlib import Path")
            lines.insert(1, f"from distilbench.evaluation.quantisation import {name}")
            lines.append(f"codes = {name}.load(Path({_literal(folder)})).encode(vectors)")
        return "\n".join(lines)


def best_of_runs(runs: Sequence[Path], budget: ServingBudget) -> Best:
    """The best student of the runs within the budget, by dev score.

    Raises:
        InputError: a folder holds no records, the runs are of several corpora, they have no student with a dev score,
            or none is within the budget; the message says what the least is that there is.
    """
    runs = run_folders(runs)
    records = read_runs(runs)
    board = leaderboard(records)
    named = ", ".join(map(str, runs))
    rows = students(board)
    if not rows:
        raise InputError(f"{named}: no student with a dev score; expected the folders of finished runs")
    corpora = list(dict.fromkeys(row.record.compared_on for row in rows))
    if len(corpora) > 1:
        names = ", ".join(f"{row.record.corpus} of {row.record.run}" for row in _first_of_each(rows, corpora))
        raise InputError(f"{named}: the runs are of {len(corpora)} corpora ({names}); expected runs of one")
    row = best_under(board, budget)
    if row is None:
        raise InputError(f"{_limits(budget)}: no student is within it; {_least(rows)}")
    found = teacher_of(row.record, [other.record for other in board.rows])
    teacher = next((other for other in board.rows if other.record is found), None)
    owners = {(r.run, r.record_id): folder for folder in reversed(runs) for r in latest_scores(folder)}
    return Best(budget, board, row, teacher, tuple(_folder(seed.record, owners) for seed in row.seeds))


def _folder(record: ScoreRecord, owners: dict[tuple[str, str], Path]) -> Path | None:
    return owners[record.run, record.record_id] / record.model if record.model else None


def _first_of_each(rows: Sequence[Row], corpora: Sequence[str]) -> list[Row]:
    return [next(row for row in rows if row.record.compared_on == corpus) for corpus in corpora]


def _limits(budget: ServingBudget) -> str:
    given = (("--bytes", budget.bytes_per_vector), ("--latency", budget.latency_ms), ("--dim", budget.dim))
    return " ".join(f"{option} {value:g}" for option, value in given if value is not None)


def _least(rows: Sequence[Row]) -> str:
    """The smallest student in each respect; they need not be one."""
    smallest = min(rows, key=lambda row: row.record.bytes_per_vector)
    narrowest = min(rows, key=lambda row: row.record.dim)
    timed = [(latency, row.name) for row in rows if (latency := latency_of(row)) is not None]
    fastest = "no latency was measured"
    if timed:
        latency, name = min(timed)
        fastest = f"the fastest takes {latency:.3g} ms ({name})"
    return (
        f"the smallest has {smallest.record.bytes_per_vector:,} bytes ({smallest.name}, "
        f"{smallest.record.quantisation}), the narrowest {narrowest.record.dim:,} dimensions ({narrowest.name}), {fastest}"
    )


def _two(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"


def _literal(path: Path) -> str:
    """The path as a Python string: every escape that JSON writes is one in Python too."""
    return json.dumps(str(path), ensure_ascii=False)
