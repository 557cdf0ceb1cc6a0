"""Patience with students: those that no longer improve the search's front get no more trials.

A trial improves the front where it is better by more than `NOISE` than every trial that costs no more: of its own search, and
of those of the methods before it. In a search for quality alone it has to be better than the best of its group
(`codes.competition_key`). A student of which `Budget.patience` trials in a row have improved nothing is exhausted: it gets no
more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from distilbench.choices import QUALITY
from distilbench.codes import CompetitionKey, competition_key, vector_bytes
from distilbench.records import Rung, TrialRecord
from distilbench.search.study import judged_widths, result_of, trial_params

NOISE = 0.3
"""Points of the dev score by which seeds of one training differ."""
EXHAUSTED = "exhausted"
"""User attribute of a study: the number of trials after which all of its students were exhausted."""

Point = tuple[float, ...]
"""Quality, then what it costs, each objective of the search in its order; less is better in all but the first."""


def point_at(
    params: Mapping[str, Any], rung: Rung, width: int, costs: Mapping[str, Any], objectives: Sequence[str]
) -> Point | None:
    """A student's value in each objective at one of its widths; None where one of them is not known.

    `costs` are its "latency" and "model_bytes", where these are objectives.
    """
    quality = rung.metrics.get(f"dev_score_{width}") if rung.widths else rung.metrics.get("dev_quality")
    values = {**costs, QUALITY: quality, "bytes": vector_bytes(params, width)}
    point = [values.get(name) for name in objectives]
    known = tuple(float(v) for v in point if v is not None and math.isfinite(v))
    return known if len(known) == len(point) else None


def points_of_records(records: Iterable[TrialRecord], objectives: Sequence[str]) -> list[Point]:
    """The points of another method's completed trials, at each of their widths; [] of a search for quality alone."""
    points: list[Point | None] = []
    for record in records:
        if record.values and not record.confirms and record.result is not None:
            widths = record.result.widths or [record.dim]
            points += [point_at(record.params, record.result, w, record.values, objectives) for w in widths]
    return [point for point in points if point is not None]


def better_by(point: Point, others: Iterable[Point]) -> float:
    """Points of quality by which it is better than the best of those that cost no more; infinite where none does."""
    cheap = (other for other in others if all(o <= p for o, p in zip(other[1:], point[1:], strict=True)))
    return min((point[0] - other[0] for other in cheap), default=math.inf)


class FrontPatience:
    """Counts how many trials in a row of each student have improved nothing, in the order in which the sampler is told.

    `patience` of None: no student is ever exhausted. `baseline_points` are points of other methods' trials.
    """

    def __init__(self, patience: int | None, objectives: Sequence[str], baseline_points: Sequence[Point] = ()) -> None:
        self.patience, self.objectives = patience, tuple(objectives)
        self._points = list(baseline_points)
        self._best: dict[CompetitionKey, float] = {}
        self._unimproved: dict[str | None, int] = {}

    def report(self, trial: FrozenTrial) -> None:
        """Count a trial that has ended."""
        if self.patience is not None:
            student = trial_params(trial).get("student")
            self._unimproved[student] = 0 if self._improves(trial) else self._unimproved.get(student, 0) + 1

    def is_exhausted(self, student: str | None) -> bool:
        """Whether a student gets no more trials; None stands for that of a search which has one."""
        return self.patience is not None and self._unimproved.get(student, 0) >= self.patience

    def _improves(self, trial: FrozenTrial) -> bool:
        if trial.state != TrialState.COMPLETE:
            return False
        params, rung = trial_params(trial), result_of(trial)
        if len(self.objectives) == 1:
            group = competition_key(params)
            gain = trial.values[0] - self._best.get(group, -math.inf)
            self._best[group] = max(trial.values[0], self._best.get(group, -math.inf))
            return gain > NOISE
        costs = dict(zip(self.objectives, trial.values, strict=True))
        points = [point_at(params, rung, w, costs, self.objectives) for w in judged_widths(trial)] if rung else []
        better = [point for point in points if point is not None and better_by(point, self._points) > NOISE]
        self._points += better
        return bool(better)
