"""What is known of each run of a report, and of its trainings: those worth listing, and the command that repeats one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from distilbench.prepare.layer_ranking import read_rankings
from distilbench.progress.console import PROGRESS
from distilbench.progress.tally import Progress, finite
from distilbench.records import AS_IT_CAME, Provenance, ScoreRecord, TrialRecord, read_records
from distilbench.reporting.board import Leaderboard, Row
from distilbench.reporting.runs import SCORES, TRIAL_FILES
from distilbench.reporting.study_file import RunRecord
from distilbench.stage_times import read_timings
from distilbench.storage.files import bound_config, flat

RUNS = "runs"
"""The folder of the pages of runs."""
PREPARED = "prepared"


class RunFacts(NamedTuple):
    """One run. `steps` were spent by all its trials.

    `described` is what its folder says: settings, progress, layer rankings, sentences, timings.
    """

    run: str
    file: str
    methods: tuple[str, ...]
    trials: int
    states: Mapping[str, int]
    confirmations: int
    steps: int
    rows: int
    provenances: tuple[Provenance, ...]
    described: RunRecord


def run_file(run: str) -> str:
    """Where the run's page lies in the report: its name is derived, since the run's own may be anything."""
    return f"{RUNS}/s-{hashlib.sha256(run.encode()).hexdigest()[:12]}.html"


def run_facts(
    records: Sequence[TrialRecord | ScoreRecord],
    board: Leaderboard,
    folders: Sequence[Path] = (),
    described: Sequence[RunRecord] = (),
) -> tuple[RunFacts, ...]:
    """Gather the facts of every run in the records, in order of appearance.

    `folders` are the runs' own; a run whose folder is away is as it is `described`.
    """
    known = {run.run: run for run in (*described, *filter(None, map(_described, folders)))}
    trials: dict[str, list[TrialRecord]] = {}
    for trial in unique_trials(records):
        trials.setdefault(trial.run, []).append(trial)
    provenances: dict[str, dict[str, Provenance]] = {}
    for r in records:
        made = r.provenance.model_dump_json(include={"commit", "versions", "device"})
        provenances.setdefault(r.run, {}).setdefault(made, r.provenance)
    facts = []
    for run, of_run in provenances.items():
        rows = [row for row in board.rows if row.record.run == run]
        searched = [t for t in trials.get(run, []) if not t.confirms]
        facts.append(
            RunFacts(
                run=run,
                file=run_file(run),
                methods=tuple(dict.fromkeys([t.method for t in searched] or [row.record.method for row in rows])),
                trials=len(searched),
                states=Counter(str(t.state) for t in searched),
                confirmations=len(trials.get(run, [])) - len(searched),
                steps=sum(max((rung.step for rung in t.rungs), default=0) for t in searched),
                rows=len(rows),
                provenances=tuple(of_run.values()),
                described=known.get(run, RunRecord(run=run)),
            )
        )
    return tuple(facts)


def _described(folder: Path) -> RunRecord | None:
    """What a run's folder says, under the run's name in its records; None of a folder without records.

    Timings are those of the sweep of several methods that it is part of, then its own.
    """
    name = next((r.run for file in (SCORES, *TRIAL_FILES) for r in read_records(folder / file)), None)
    if name is None:
        return None
    stage, wanted, sentences = "", None, None
    with contextlib.suppress(OSError, ValueError):
        written = Progress.model_validate_json((folder / PROGRESS).read_bytes())
        stage, wanted = written.stage, written.wanted
    with contextlib.suppress(OSError, ValueError):
        sentences = np.load(folder / PREPARED / "train.npy", mmap_mode="r", allow_pickle=False).shape[0]
    return RunRecord(
        run=name,
        config={".".join(path): leaf for path, leaf in flat(bound_config(folder) or {}).items()},
        stage=stage,
        wanted=wanted,
        rankings=read_rankings(folder / PREPARED),
        sentences=sentences,
        timings=(*read_timings(folder.parent), *read_timings(folder)),
    )


def unique_trials(records: Iterable[TrialRecord | ScoreRecord]) -> tuple[TrialRecord, ...]:
    """The trials by run (in order of appearance), number and seed; of a trial recorded twice, the last record.

    Its number alone does not tell a trial where a run has several seeds or methods. A trial that was stopped, and trained to
    its end to confirm it, is two: the search's, then the confirmation.
    """
    latest: dict[str, dict[str, TrialRecord]] = {}
    for record in records:
        if isinstance(record, TrialRecord):
            key = [record.number, record.seed, record.confirms, record.method, record.dim, record.params]
            latest.setdefault(record.run, {})[json.dumps(key, sort_keys=True, default=str)] = record
    return tuple(t for trials in latest.values() for t in sorted(trials.values(), key=lambda t: (t.number, t.seed)))


def listed_trials(records: Iterable[TrialRecord | ScoreRecord], limit: int) -> tuple[TrialRecord, ...]:
    """The trials of the search when there are at most `limit`; else those with the highest objective, a sixth without any."""
    trials = tuple(t for t in unique_trials(records) if not t.confirms)
    if len(trials) <= limit:
        return trials
    silent = [t for t in trials if finite(t.objective) is None][: limit // 6]
    ranked = sorted((t for t in trials if finite(t.objective) is not None), key=lambda t: -(t.objective or 0.0))
    listed = {id(t) for t in (*ranked[: limit - len(silent)], *silent)}
    return tuple(t for t in trials if id(t) in listed)


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


def commands(row: Row, trainings: Trainings) -> list[str]:
    """Commands that make the row's numbers again, from the folder that holds `runs/`; none where they cannot be told."""
    r = row.record
    if r.start == AS_IT_CAME:
        return [shlex.join(["distilbench", "evaluate", r.source or r.label, "--data", "DIR"])]
    return [reproduce_command(t) for seed in row.seeds if (t := trainings.of(seed.record)) is not None]


def reproduce_command(training: TrialRecord) -> str:
    """The `distilbench reproduce` that repeats it, from the folder that holds `runs/`."""
    run = " ".join(training.run.split())
    words = ["distilbench", "reproduce", f"runs/{run}", str(training.number)]
    return shlex.join([*words, *(["--seed", str(training.seed)] if training.confirms else [])])


def _settings(run: str, method: str, seed: int, params: dict[str, object]) -> tuple[str, str, int, str]:
    return run, method, seed, json.dumps(params, sort_keys=True, default=str)
