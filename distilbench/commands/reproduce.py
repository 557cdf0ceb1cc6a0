"""`distilbench reproduce`: train a recorded trial again, in a folder of its own, and compare its dev metrics.

    distilbench reproduce runs/mcr2-demonstration-all-MiniLM-L6-v2 7
    distilbench reproduce runs/mcr2-demonstration-all-MiniLM-L6-v2 7 --seed 1

No Ray, and nothing is written into the run. It goes as far as the record does: a trial that was stopped at rung 2 is trained
to rung 2.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from distilbench.errors import InputError
from distilbench.machine import GPU_PEAK, PEAK
from distilbench.records import Rung, TrialRecord, read_trials
from distilbench.reporting.runs import TRIAL_FILES, run_folders
from distilbench.storage.files import bound_config, read_json_object
from distilbench.trials.budget import Budget

NOT_COMPARED = frozenset({"rung_seconds", PEAK, GPU_PEAK, "latency_ms", "single_ms", "model_bytes", "micro_batches"})
"""Metrics that depend on the machine at that moment (times, memory), or were measured beforehand."""


class Reproduced(NamedTuple):
    """A record beside what its training came to this time."""

    record: TrialRecord
    rungs: tuple[Rung, ...]
    reason: str
    """Why it failed this time; "" where it did not."""

    def show(self, tolerance: float, console: Console) -> bool:
        """Print the dev metrics of every rung that either has, and return whether they are the same.

        They are if it went as far, failed alike or not at all, and no metric differs by more than `tolerance`; NaN differs
        from every number.
        """
        import pandas as pd

        record = self.record
        recorded, again = (pd.Series(_metrics(rungs), dtype=float) for rungs in (record.rungs, self.rungs))
        frame = pd.DataFrame({"recorded": recorded, "again": again})
        absent = frame["recorded"].isna() & frame["again"].isna()
        frame["difference"] = (frame["again"] - frame["recorded"]).fillna(math.inf).mask(absent, 0.0)
        beyond = frame["difference"].abs() > tolerance
        kind = "confirmation of trial" if record.confirms else "trial"
        where = f"{record.method} d={record.dim}, seed {record.seed}, {record.state}"
        console.print(f"{record.run}: {kind} {record.number}, {where}", markup=False)
        if len(frame):
            table = frame.rename_axis(["rung", "step", "metric"]).reset_index()
            table["beyond"] = ["!" if differs else "" for differs in beyond]
            console.print(table.to_string(index=False, na_rep="-", float_format="{:.6g}".format), markup=False)
        recorded_reason = record.reason if record.state == "FAIL" else ""  # a stopped trial did not fail
        if self.reason or recorded_reason:
            console.print(f"recorded failure: {recorded_reason or 'none'}", markup=False)
            console.print(f"failure again:    {self.reason or 'none'}", markup=False)
        alike = self.reason == recorded_reason
        as_far = [(r.rung, r.step) for r in self.rungs] == [(r.rung, r.step) for r in record.rungs]
        same = as_far and alike and not beyond.any()
        if same:
            largest = frame["difference"].abs().max()
            line = f"reproduced: no difference above {tolerance:g} (the largest: {largest:.3g})"
        else:
            line = f"not reproduced: {beyond.sum()} of {len(frame)} values differ by more than {tolerance:g}"
            line += "" if alike else "; it did not fail alike"
        console.print(line, markup=False)
        return same


def reproduce(run: Path, number: int, seed: int | None = None, *, threads: int = 1) -> Reproduced:
    """Train trial `number` of a run again, or its confirmation with `seed`, as far as it is recorded."""
    budget, record = _budget(run), _record(run, number, seed)
    prepared = run.resolve() / "prepared"
    _check_prepared(prepared / "prepared.json")
    import torch

    from distilbench.encoders.encoder import default_device
    from distilbench.storage.retry import StorageGone
    from distilbench.trials.rung_training import RungTraining
    from distilbench.trials.training_spec import TrainingSpec

    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory(prefix="distilbench-") as name:
        folder = Path(name)
        trained = (record.method, record.params, record.seed, budget)
        spec = TrainingSpec(*trained, prepared=prepared, folder=folder, log=folder / "hang.txt")
        try:
            training = RungTraining(spec, default_device())
            # A failed one went on from its last rung, and ended before the next.
            rungs = len(record.rungs) + (record.state == "FAIL")
            while not training.done and len(training.rungs) < rungs:
                training.advance()
        except StorageGone as error:
            raise InputError(f"{prepared}: what the trial was trained on cannot be read: {error}") from None
        return Reproduced(record, tuple(training.rungs), training.failed)


def _budget(run: Path) -> Budget:
    """The budget of a training of the run, with the rungs at which it is judged."""
    if not run.is_dir():
        raise InputError(f"{run}: no such folder; expected that of a run, such as runs/NAME")
    config: dict[str, Any] = bound_config(run) or {}
    if "corpus_fingerprint" not in config:
        inner = [folder.name for folder in run_folders([run]) if folder != run]
        hint = f"expected one of the runs in it: {', '.join(inner)}" if inner else "expected the folder of a run"
        raise InputError(f"{run}: no run's config.json in it; {hint}")
    if "rows" in config:
        from distilbench.commands.compare import comparison_budget

        return comparison_budget(config["steps"])
    fields = {key.removeprefix("budget."): value for key, value in config.items() if key.startswith("budget.")}
    return Budget.model_validate({**fields, "trials": config["trials"]})


def _record(run: Path, number: int, seed: int | None) -> TrialRecord:
    records = read_trials(*(run / name for name in TRIAL_FILES))
    of_number = [r for r in records if r.number == number]
    if not of_number:
        numbers = sorted({r.number for r in records})
        ended = f"{len(numbers)} have ended, {numbers[0]} to {numbers[-1]}" if numbers else "none has ended"
        raise InputError(f"{run}: no record of a trial {number}; {ended}")
    for r in reversed(of_number):  # of one that was recorded twice, the last: a killed writer's was written again
        if (not r.confirms) if seed is None else r.seed == seed:
            return r
    seeds = ", ".join(map(str, sorted({r.seed for r in of_number})))
    raise InputError(f"{run}: no record of trial {number} with seed {seed}; it was trained with seed {seeds}")


def _check_prepared(file: Path) -> None:
    """Refuse prepared inputs that are gone, at once: a training would wait for the disk to be back."""
    from distilbench.cluster.driver_files import paths_in

    again = "repeat the run's command, which makes it again"
    if not file.exists():
        raise InputError(f"{file}: not there, so what the trials were trained on is not known; {again}")
    for path in paths_in(read_json_object(file, again)):
        if not path.exists():
            raise InputError(f"{path}: the trials were trained on it, and it is gone; {again}")


def _metrics(rungs: Iterable[Rung]) -> dict[tuple[int, int, str], float | None]:
    metrics = [(r, {"objective": r.objective, **r.metrics}) for r in rungs]
    return {(r.rung, r.step, name): m[name] for r, m in metrics for name in m if name not in NOT_COMPARED}
