"""The trainings of runs: those worth listing, the one behind a row, and the command that repeats it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable

from distilbench.progress.tally import finite
from distilbench.records import ScoreRecord, TrialRecord


def unique_trials(records: Iterable[TrialRecord | ScoreRecord]) -> tuple[TrialRecord, ...]:
    """The trials by run (in order of appearance), number and seed; of a trial recorded twice, the last record.

    Its number alone does not tell a trial where a run has several seeds or methods.
    """
    latest: dict[str, dict[str, TrialRecord]] = {}
    for record in records:
        if isinstance(record, TrialRecord):
            key = [record.number, record.seed, record.method, record.dim, record.params]
            latest.setdefault(record.run, {})[json.dumps(key, sort_keys=True, default=str)] = record
    return tuple(t for trials in latest.values() for t in sorted(trials.values(), key=lambda t: (t.number, t.seed)))


def listed_trials(records: Iterable[TrialRecord | ScoreRecord], limit: int) -> tuple[TrialRecord, ...]:
    """The trials of the search when there are at most `limit`; else those with the highest objective, a sixth without any."""
    trials = tuple(t for t in unique_trials(records) if not t.confirms)
    ranked = sorted((t for t in trials if finite(t.objective) is not None), key=lambda t: -(t.objective or 0.0))
    silent = [t for t in trials if finite(t.objective) is None][: limit // 6]
    listed = {id(t) for t in (*ranked[: limit - len(silent)], *silent)}
    return trials if len(trials) <= limit else tuple(t for t in trials if id(t) in listed)


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
