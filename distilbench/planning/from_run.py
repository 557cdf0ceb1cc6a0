"""Rates of a finished run, from what it left: seconds of rungs, of pools of workers, of stages.

The seconds of a rung are those of its steps and of judging it, so over the rungs of all trials the steps of each phase and
the judging have a time each (least squares, none negative). What the workers of the search did beside that (starting,
building a trial's model, waiting) is shared by the trials as `begin_s`.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from distilbench.encoders.student import said_of
from distilbench.errors import InputError
from distilbench.planning.rates import PhaseRate, Rates, Training, rate_name
from distilbench.planning.steps import phase_steps
from distilbench.prepare.copies import SHARD_ROWS as COPY_ROWS
from distilbench.prepare.encode import SHARD_ROWS
from distilbench.prepare.tokens import SHARD_ROWS as TOKEN_ROWS
from distilbench.records import ScoreRecord, TrialRecord, read_records
from distilbench.stage_times import Took, read_timings
from distilbench.training.length import Examples, PhaseSteps


def run_rates(path: Path) -> Rates:
    """The rates of a run, or of all methods of a run of several.

    Raises:
        InputError: it is no run's folder, or none of its trials has ended.
    """
    folders = [path] if (path / "config.json").exists() else sorted(f.parent for f in path.glob("*/config.json"))
    trials = {folder: _trials(folder) for folder in folders}
    trained = {folder: method_trials for folder, method_trials in trials.items() if any(t.rungs for t in method_trials)}
    if not trained:
        raise InputError(
            f"--rates {path}: no finished trials there; expected runs/NAME of a finished sweep, or a file of rates"
        )
    last = max((t for method_trials in trained.values() for t in method_trials), key=lambda t: t.provenance.created_at)
    stages = read_timings(path)
    pools = {took.stage: took for took in stages if took.first_s}
    device = "cpu" if last.provenance.device.startswith("CPU") else "cuda"
    encoded = pools.get("Teacher encoding")
    encode, worker_s = _speed(encoded, SHARD_ROWS["cuda" if encoded and encoded.device == "cuda" else "cpu"])
    training = {
        rate_name(own[0].method, student): _training(folder, own, worker_s)
        for folder, method_trials in trained.items()
        for student, own in _by_student(method_trials).items()
    }
    searched = [took for folder in trained for took in read_timings(folder) if took.stage == "search"]
    return Rates(
        source=f"the run {path}",
        measured_at=last.provenance.created_at,
        device=device,
        device_name=last.provenance.device,
        cpus=last.provenance.cpus,
        side_by_side=max((took.workers for took in searched), default=1),
        teacher=str(json.loads((next(iter(trained)) / "config.json").read_text()).get("teacher", "")),
        start_s=max((t.seconds for t in stages if t.stage == "start"), default=0.0),
        worker_s=worker_s,
        encode_per_s=encode,
        tokenise_per_s=_speed(pools.get("Tokens"), TOKEN_ROWS)[0],
        augment_per_s={
            label.removeprefix("Augmentation, "): rate
            for label, took in pools.items()
            if label.startswith("Augmentation, ") and (rate := _speed(took, COPY_ROWS)[0])
        },
        training=training,
        row_s=_row_seconds(list(trained)),
        report_s=max((t.seconds for t in stages if t.stage == "report"), default=0.0),
    )


def _trials(folder: Path) -> list[TrialRecord]:
    return [r for r in read_records(folder / "trials.jsonl") if isinstance(r, TrialRecord)]


def _by_student(trials: Sequence[TrialRecord]) -> dict[str | None, list[TrialRecord]]:
    """The trials of each student that their hyper-parameters name."""
    by_student: dict[str | None, list[TrialRecord]] = {}
    for trial in trials:
        by_student.setdefault(trial.params.get("student"), []).append(trial)
    return by_student


def _speed(took: Took | None, shard: int) -> tuple[float | None, float]:
    """What one worker did in a second, and how long it took to be ready."""
    if took is None or not took.seconds:
        return None, 0.0
    first = min(took.count, took.workers * shard)
    if took.count - first < first:  # too few shards to tell the start from the work
        return took.count / took.seconds / took.workers, 0.0
    rate = (took.count - first) / max(1e-9, took.seconds - took.first_s) / took.workers
    return rate, max(0.0, took.first_s - shard / rate)


def _training(folder: Path, trials: Sequence[TrialRecord], worker_s: float) -> Training:
    method = trials[0].method
    config = json.loads((folder / "config.json").read_text())
    examples, budget = _examples(folder), int(config.get("budget.steps", 10**9))
    budget = said_of(trials[0].params.get("student") or "", config.get("budget.student_steps")) or budget
    rows, seconds, sizes = [], [], dict[str, int]()
    for trial in trials:
        phases = phase_steps(method, trial.params, examples, budget)
        sizes |= {phase.name: phase.batch for phase in phases}
        at = 0
        for rung in trial.rungs:
            spent = rung.metrics.get("rung_seconds")
            if spent is not None:
                rows.append(_steps_between(phases, at, rung.step))
                seconds.append(spent)
            at = rung.step
    names = sorted(sizes)
    table = np.array([[row.get(name, 0) for name in names] + [1] for row in rows], dtype=float).reshape(
        -1, len(names) + 1
    )
    solved, _ = nnls(table, np.array(seconds)) if seconds else (np.zeros(len(names) + 1), 0.0)
    stages = read_timings(folder)
    begin_s = _beside(stages, "search", math.fsum(seconds), len(trials), worker_s) or 0.0
    finish_s = _finish(folder, stages, worker_s)
    return Training(
        phases={name: PhaseRate(batch=sizes[name], step_s=float(s)) for name, s in zip(names, solved, strict=False)},
        judge_s=float(solved[-1]),
        begin_s=begin_s,
        finish_s=None if finish_s is None else max(0.0, finish_s - begin_s),
    )


def _steps_between(phases: Sequence[PhaseSteps], start: int, stop: int) -> dict[str, int]:
    steps_of_phase, first = dict[str, int](), 0
    for phase in phases:
        steps_of_phase[phase.name] = max(0, min(stop, first + phase.steps) - max(start, first))
        first += phase.steps
    return steps_of_phase


def _examples(folder: Path) -> Examples:
    """Those of `prepared/` in the run."""

    def rows(name: str) -> int:
        file = folder / "prepared" / f"{name}.npy"
        return len(np.load(file, mmap_mode="r", allow_pickle=False)) if file.exists() else 0

    return Examples(rows("train"), rows("augmented"), rows("pairs"), rows("triplets"), rows("task-train-target"))


def _beside(stages: Sequence[Took], name: str, busy_s: float, count: int, worker_s: float) -> float | None:
    """What `busy_s` leaves of the workers' seconds in a stage, once they are ready, for each of `count`.

    None where the stage was not timed.
    """
    timed = [(t.seconds, min(t.workers, max(1, t.count or count))) for t in stages if t.stage == name]
    spent = math.fsum(max(0.0, seconds - worker_s) * workers for seconds, workers in timed)
    return max(0.0, spent - busy_s) / max(1, count) if timed else None


def _finish(folder: Path, stages: Sequence[Took], worker_s: float) -> float | None:
    confirmed = [r for r in read_records(folder / "confirmations.jsonl") if isinstance(r, TrialRecord)]
    trained = math.fsum(rung.metrics.get("rung_seconds") or 0.0 for r in confirmed for rung in r.rungs)
    chosen = folder / "confirmed.json"
    chosen_students = sum(len(rows) for rows in json.loads(chosen.read_text()).values()) if chosen.exists() else 0
    return _beside(stages, "confirm", trained, chosen_students + len(confirmed), worker_s)


def _row_seconds(folders: Sequence[Path]) -> float | None:
    """The seconds of scoring one encoder; from the times at which references were written where no stage was timed."""
    spent, rows = 0.0, 0
    for folder in folders:
        scores = [r for r in read_records(folder / "scores.jsonl") if isinstance(r, ScoreRecord)]
        whole = [r for r in scores if r.quantisation == "float32"]
        students = len({(r.trial, r.seed) for r in whole if r.role == "student"})
        stages = read_timings(folder)
        references = max((t for t in stages if t.stage == "references"), key=lambda t: t.seconds, default=None)
        if references is not None:
            spent += references.seconds + math.fsum(t.seconds for t in stages if t.stage == "score")
            rows += references.count + students
            continue
        written = [datetime.datetime.fromisoformat(r.provenance.created_at) for r in whole if r.role != "student"]
        if len(written) > 1:
            spent += (max(written) - min(written)).total_seconds()
            rows += len(written) - 1
    return spent / rows if rows else None
