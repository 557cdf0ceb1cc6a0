"""The trainings of runs: those worth listing, the one behind a row, and the command that repeats it."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from distilbench.progress.tally import finite
from distilbench.records import ScoreRecord, TrialRecord

DIAGNOSTICS = {"effective_rank": "Effective rank", "variance": "Variance"}
"""Rung metrics that tell a collapsed student: columns of the trial table where a trial has them."""


class TrialTable(NamedTuple):
    """The trials of the search worth listing. `total` and `states` count all of them, listed or not.

    `confirmations`: trainings that repeat one of them with another seed; they are counted only here.
    `diagnostics` are the keys of DIAGNOSTICS that a rung of any trial has.
    """

    shown: tuple[TrialRecord, ...]
    total: int
    states: Mapping[str, int]
    confirmations: int
    diagnostics: tuple[str, ...]


def unique_trials(records: Iterable[TrialRecord | ScoreRecord]) -> tuple[TrialRecord, ...]:
    """The trials by run (in order of appearance), number and seed; of a trial recorded twice, the last record."""
    latest: dict[str, dict[str, TrialRecord]] = {}
    for record in records:
        if isinstance(
            record, TrialRecord
        ):  # its number alone does not tell it where a run has several seeds or methods
            key = [record.number, record.seed, record.method, record.dim, record.params]
            latest.setdefault(record.run, {})[json.dumps(key, sort_keys=True, default=str)] = record
    return tuple(t for trials in latest.values() for t in sorted(trials.values(), key=lambda t: (t.number, t.seed)))


def trial_table(records: Iterable[TrialRecord | ScoreRecord], limit: int = 300) -> TrialTable:
    """All trials when there are at most `limit`; else those with the highest objective and a sixth without any."""
    distinct = unique_trials(records)
    trials = tuple(t for t in distinct if not t.confirms)
    ranked = sorted((t for t in trials if finite(t.objective) is not None), key=lambda t: -(t.objective or 0.0))
    silent = [t for t in trials if finite(t.objective) is None][: limit // 6]
    listed = {id(t) for t in (*ranked[: limit - len(silent)], *silent)}
    shown = trials if len(trials) <= limit else tuple(t for t in trials if id(t) in listed)
    present = {key for t in trials for rung in t.rungs for key in rung.metrics}
    states = Counter(str(t.state) for t in trials)
    diagnostics = tuple(key for key in DIAGNOSTICS if key in present)
    return TrialTable(shown, len(trials), states, len(distinct) - len(trials), diagnostics)


def last_metric(trial: TrialRecord, key: str) -> float | None:
    """The metric at the trial's last rung; None where that rung has none or it is not finite."""
    return finite(trial.rungs[-1].metrics.get(key)) if trial.rungs else None


class Trainings:
    """The trainings of some records, to be found by the score records of what they trained."""

    def __init__(self, records: Iterable[TrialRecord | ScoreRecord]) -> None:
        trials = unique_trials(records)
        self._numbered = {(t.run, t.number, t.seed): t for t in trials}
        self._named = {_settings(t.run, t.method, t.seed, t.params): t for t in trials if not t.confirms}

    def of(self, record: ScoreRecord) -> TrialRecord | None:
        """The training of the record's student; None where there is no record of it, or nothing was trained.

        A row of a sweep knows its trial; one of a comparison is known by its settings.
        """
        if record.role != "student":
            return None
        settings = record.method, record.seed, record.hyperparameters
        if record.trial is None:
            return self._named.get(_settings(record.run, *settings))
        training = self._numbered.get((record.run, record.trial, record.seed))
        return training if training and (training.method, training.seed, training.params) == settings else None


def reproduce_command(training: TrialRecord) -> str:
    """The `distilbench reproduce` that repeats it, from the folder that holds `runs/`."""
    run = " ".join(training.run.split())
    words = ["distilbench", "reproduce", f"runs/{run}", str(training.number)]
    return shlex.join([*words, *(["--seed", str(training.seed)] if training.confirms else [])])


def _settings(run: str, method: str, seed: int, params: dict[str, object]) -> tuple[str, str, int, str]:
    return run, method, seed, json.dumps(params, sort_keys=True, default=str)
