"""The training behind a row: its record, and the command that repeats it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable

from distilbench.records import ScoreRecord, TrialRecord
from distilbench.reporting.table import unique_trials


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
