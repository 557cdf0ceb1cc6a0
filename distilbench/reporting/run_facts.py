"""What is known of each run of a report, and what differs between several."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distilbench.prepare.ranked_layers import LayerRanking, read_rankings
from distilbench.progress.progress_file import PROGRESS
from distilbench.progress.tally import Progress, finite
from distilbench.records import Provenance, ScoreRecord, TrialRecord, read_records
from distilbench.reporting.report_records import RunRecord
from distilbench.reporting.runs import SCORES, TRIAL_FILES
from distilbench.reporting.table import DEV, Cell, Leaderboard, Row, unique_trials
from distilbench.stage_times import Took, read_timings
from distilbench.storage.files import bound_config, flat

FOLDER = "runs"
PREPARED = "prepared"
ABSENT = "—"


class RunFacts(NamedTuple):
    """One run. `steps` were spent by all its trials; `best` is the highest dev objective of a completed one.

    `config` is the run's config.json by dotted keys, empty where its folder was not given. `stage` and `wanted` (trials) are
    what its progress file says: "done", or that there is more to come; "" and None where there is none.
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
    config: Mapping[str, Any]
    provenances: tuple[Provenance, ...]
    stage: str
    wanted: int | None
    rankings: tuple[LayerRanking, ...] = ()
    """Those that chose the layers of its students, one for each student."""
    sentences: int | None = None
    """Distinct sentences that its students are trained on; None where its folder does not say it."""
    timings: tuple[Took, ...] = ()
    """How long its stages took and how much memory, in the order of time; those that it shares with other methods first."""


class Changed(NamedTuple):
    """A setting that not all runs have in common, and each run's value."""

    key: str
    values: tuple[str, ...]


class Beside(NamedTuple):
    """The student with the highest dev score of each run in so many bytes; None where a run has none."""

    bytes: int
    of: tuple[tuple[Row, Cell] | None, ...]


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
    described_configs = {one.run: (one.config, one.stage, one.wanted) for one in described}
    configs: Mapping[str, tuple[Mapping[str, Any], str, int | None]] = {**described_configs, **_configs(folders)}
    rankings = {**{one.run: one.rankings for one in described}, **_rankings(folders)}
    sentences = {**{one.run: one.sentences for one in described}, **_sentences(folders)}
    timings = {**{one.run: one.timings for one in described}, **_timings(folders)}
    trials: dict[str, list[TrialRecord]] = {}
    for trial in unique_trials(records):
        trials.setdefault(trial.run, []).append(trial)
    provenances: dict[str, dict[str, Provenance]] = {}
    for r in records:
        of_run = provenances.setdefault(r.run, {})
        of_run.setdefault(
            f"{r.provenance.commit} {sorted(r.provenance.versions.items())} {r.provenance.device}", r.provenance
        )
    rows = Counter(row.record.run for row in board.rows)
    facts = []
    for run in dict.fromkeys(r.run for r in records):
        run_trials = trials.get(run, [])
        searched = [t for t in run_trials if not t.confirms]
        candidates = [t for t in searched if t.is_candidate and finite(t.objective) is not None]
        config, stage, wanted = configs.get(run, ({}, "", None))
        methods = dict.fromkeys(
            [t.method for t in searched] or [row.record.method for row in board.rows if row.record.run == run]
        )
        facts.append(
            RunFacts(
                run=run,
                file=run_file(run),
                methods=tuple(methods),
                trials=len(searched),
                states=Counter(str(t.state) for t in searched),
                confirmations=len(run_trials) - len(searched),
                steps=sum(max((rung.step for rung in t.rungs), default=0) for t in searched),
                best=max(candidates, key=lambda t: t.objective or 0.0, default=None),
                rows=rows[run],
                config=config,
                provenances=tuple(provenances[run].values()),
                stage=stage,
                wanted=wanted,
                rankings=rankings.get(run, ()),
                sentences=sentences.get(run),
                timings=timings.get(run, ()),
            )
        )
    return tuple(facts)


def descriptions(runs: Iterable[RunFacts]) -> list[RunRecord]:
    """What is known of the runs beside their trials and scores; no line for a run of which nothing is."""
    return [
        RunRecord(
            run=run.run,
            config=dict(run.config),
            stage=run.stage,
            wanted=run.wanted,
            rankings=run.rankings,
            sentences=run.sentences,
            timings=run.timings,
        )
        for run in runs
        if run.config or run.stage or run.rankings
    ]


def changed(runs: Sequence[RunFacts]) -> tuple[Changed, ...]:
    """What differs between runs of known configuration: settings, then commit, device and versions of their records."""
    if len(runs) < 2:
        return ()
    configs = [{**run.config, **_origin(run)} for run in runs]
    changes = []
    for key in dict.fromkeys(key for config in configs for key in config):
        values = [config.get(key, ABSENT) for config in configs]
        if any(value != values[0] for value in values):
            changes.append(Changed(key, tuple(v if isinstance(v, str) else json.dumps(v, default=str) for v in values)))
    return tuple(changes)


def beside(board: Leaderboard, runs: Sequence[RunFacts]) -> tuple[Beside, ...]:
    """The runs beside each other at every number of bytes that at least two of them have a student of, in any code."""
    best: dict[tuple[int, str], Row] = {}
    for row in board.rows:
        r = row.record
        dev = board.cell(row, DEV).value
        if r.role != "student" or dev is None:
            continue
        other = best.get((r.bytes_per_vector, r.run))
        if other is None or dev > (board.cell(other, DEV).value or 0.0):
            best[r.bytes_per_vector, r.run] = row
    lines = []
    for size in sorted({size for size, _ in best}):
        best_of_run = [best.get((size, run.run)) for run in runs]
        lines.append(Beside(size, tuple(row and (row, row.values["all"][0]) for row in best_of_run)))
    return tuple(line for line in lines if sum(row is not None for row in line.of) > 1)


def _origin(run: RunFacts) -> dict[str, str]:
    origins = {
        "commit": dict.fromkeys(p.commit or "outside a checkout" for p in run.provenances),
        "device": dict.fromkeys(p.device for p in run.provenances),
    }
    for name in sorted({name for p in run.provenances for name in p.versions}):
        origins[f"version of {name}"] = dict.fromkeys(p.versions.get(name, ABSENT) for p in run.provenances)
    return {key: ", ".join(values) for key, values in origins.items()}


def _configs(folders: Iterable[Path]) -> dict[str, tuple[dict[str, Any], str, int | None]]:
    """Configuration by dotted keys, stage and wanted trials, by the run's name in its records."""
    configs = {}
    for folder in folders:
        name = _run_name(folder)
        if name is not None:
            config = {".".join(path): leaf for path, leaf in flat(bound_config(folder) or {}).items()}
            configs[name] = config, *_progress(folder)
    return configs


def _rankings(folders: Iterable[Path]) -> dict[str, tuple[LayerRanking, ...]]:
    """By the run's name in its records."""
    return {
        name: rankings
        for folder in folders
        if (rankings := read_rankings(folder / PREPARED)) and (name := _run_name(folder)) is not None
    }


def _sentences(folders: Iterable[Path]) -> dict[str, int]:
    """By the run's name in its records."""
    counts = {}
    for folder in folders:
        with contextlib.suppress(OSError, ValueError):
            rows = np.load(folder / PREPARED / "train.npy", mmap_mode="r", allow_pickle=False).shape[0]
            if (name := _run_name(folder)) is not None:
                counts[name] = rows
    return counts


def _timings(folders: Iterable[Path]) -> dict[str, tuple[Took, ...]]:
    """By the run's name in its records: those of the sweep of several methods that it is part of, and its own."""
    return {
        name: timings
        for folder in folders
        if (timings := (*read_timings(folder.parent), *read_timings(folder)))
        and (name := _run_name(folder)) is not None
    }


def _run_name(folder: Path) -> str | None:
    return next((r.run for file in (SCORES, *TRIAL_FILES) for r in read_records(folder / file)), None)


def _progress(folder: Path) -> tuple[str, int | None]:
    try:
        written = Progress.model_validate_json((folder / PROGRESS).read_bytes())
    except (OSError, ValueError):
        return "", None
    return written.stage, written.wanted
