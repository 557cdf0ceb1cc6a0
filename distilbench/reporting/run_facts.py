"""What is known of each run of a report."""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from distilbench.prepare.ranked_layers import read_rankings
from distilbench.progress.console import PROGRESS
from distilbench.progress.tally import Progress, finite
from distilbench.records import Provenance, ScoreRecord, TrialRecord, read_records
from distilbench.reporting.board import Leaderboard
from distilbench.reporting.runs import SCORES, TRIAL_FILES
from distilbench.reporting.study_file import RunRecord
from distilbench.reporting.trainings import unique_trials
from distilbench.stage_times import read_timings
from distilbench.storage.files import bound_config, flat

FOLDER = "runs"
PREPARED = "prepared"


class RunFacts(NamedTuple):
    """One run. `steps` were spent by all its trials; `best` is the highest dev objective of a completed one.

    `described` is what its folder says: settings, progress, layer rankings, sentences, timings.
    """

    run: str
    file: str
    methods: tuple[str, ...]
    trials: int
    states: Mapping[str, int]
    confirmations: int
    steps: int
    best: TrialRecord | None
    rows: int
    provenances: tuple[Provenance, ...]
    described: RunRecord


def run_file(run: str) -> str:
    """Where the run's page lies in the report: its name is derived, since the run's own may be anything."""
    return f"{FOLDER}/s-{hashlib.sha256(run.encode()).hexdigest()[:12]}.html"


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
        candidates = [t for t in searched if t.is_candidate and finite(t.objective) is not None]
        facts.append(
            RunFacts(
                run=run,
                file=run_file(run),
                methods=tuple(dict.fromkeys([t.method for t in searched] or [row.record.method for row in rows])),
                trials=len(searched),
                states=Counter(str(t.state) for t in searched),
                confirmations=len(trials.get(run, [])) - len(searched),
                steps=sum(max((rung.step for rung in t.rungs), default=0) for t in searched),
                best=max(candidates, key=lambda t: t.objective or 0.0, default=None),
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
