"""`distilbench reproduce`: train a recorded trial again, in a folder of its own, and compare its dev metrics.

    distilbench reproduce runs/mcr2-demonstration-all-MiniLM-L6-v2 7
    distilbench reproduce runs/mcr2-demonstration-all-MiniLM-L6-v2 7 --seed 1

No Ray, and nothing is written into the run. It goes as far as the record does: a trial that was stopped at rung 2 is trained
to rung 2.
"""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from distilbench.errors import InputError
from distilbench.memory import GPU_PEAK, PEAK
from distilbench.records import Rung, TrialRecord, read_records
from distilbench.reporting.runs import TRIAL_FILES, run_folders
from distilbench.storage.arrays import MANIFEST
from distilbench.storage.files import bound_config
from distilbench.trials.budget import Budget

NOT_COMPARED = frozenset({"rung_seconds", PEAK, GPU_PEAK, "latency_ms", "single_ms", "model_bytes", "micro_batches"})
"""Metrics that depend on the machine at that moment (times, memory), or were measured beforehand."""


class MetricDifference(NamedTuple):
    """A metric of a rung, as it is recorded and as it came out again; None where it is not finite, or not there."""

    rung: int
    step: int
    metric: str
    recorded: float | None
    again: float | None

    @property
    def amount(self) -> float:
        """The difference; 0 where both are None, infinite where one is."""
        if self.recorded is None or self.again is None:
            return 0.0 if self.recorded is self.again else math.inf
        return self.again - self.recorded


class Reproduced(NamedTuple):
    """A record beside what its training came to this time."""

    record: TrialRecord
    rungs: tuple[Rung, ...]
    reason: str
    """Why it failed this time; "" where it did not."""

    @property
    def expected(self) -> str:
        """Why it is recorded to have failed; a stopped trial did not fail."""
        return self.record.reason if self.record.state == "FAIL" else ""

    def differences(self) -> list[MetricDifference]:
        """Every dev metric of every rung that either has, the objective first."""
        recorded, again = ({r.rung: (r.step, _metrics(r)) for r in rungs} for rungs in (self.record.rungs, self.rungs))
        differences = []
        for rung in sorted(recorded.keys() | again.keys()):
            step = (recorded.get(rung) or again[rung])[0]
            one, two = (of.get(rung, (step, {}))[1] for of in (recorded, again))
            names = dict.fromkeys([*one, *two])
            differences += [MetricDifference(rung, step, name, one.get(name), two.get(name)) for name in names]
        return differences

    def same(self, tolerance: float) -> bool:
        """Whether it went as far, failed alike or not at all, and no metric differs by more than `tolerance`."""
        as_far = [(r.rung, r.step) for r in self.rungs] == [(r.rung, r.step) for r in self.record.rungs]
        close = all(abs(d.amount) <= tolerance for d in self.differences())
        return as_far and self.reason == self.expected and close

    def show(self, tolerance: float, console: Console) -> None:
        """A table of the metrics, and whether they are the same."""
        record, differences = self.record, self.differences()
        kind = "confirmation of trial" if record.confirms else "trial"
        where = f"{record.method} d={record.dim}, seed {record.seed}, {record.state}"
        console.print(f"{record.run}: {kind} {record.number}, {where}", markup=False)
        if differences:
            table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
            for name in ("rung", "step", "metric", "recorded", "again", "difference"):
                table.add_column(name, justify="left" if name == "metric" else "right")
            for d in differences:
                amount = "-" if math.isinf(d.amount) else f"{d.amount:+.4g}" if d.amount else "0"
                amount += "" if abs(d.amount) <= tolerance else " !"
                values = ("-" if value is None else f"{value:.6g}" for value in (d.recorded, d.again))
                table.add_row(*map(Text, (str(d.rung), str(d.step), d.metric, *values, amount)))
            console.print(table)
        if self.reason or self.expected:
            console.print(f"recorded failure: {self.expected or 'none'}", markup=False)
            console.print(f"failure again:    {self.reason or 'none'}", markup=False)
        amounts = [abs(d.amount) for d in differences]
        if self.same(tolerance):
            most = max(amounts, default=0.0)
            line = f"reproduced: no difference above {tolerance:g} (the largest: {most:.3g})"
        else:
            beyond = sum(amount > tolerance for amount in amounts)
            line = f"not reproduced: {beyond} of {len(amounts)} values differ by more than {tolerance:g}"
            line += "" if self.reason == self.expected else "; it did not fail alike"
        console.print(line, markup=False)


def reproduce(run: Path, number: int, seed: int | None = None, *, threads: int = 1) -> Reproduced:
    """Train trial `number` of a run again, or its confirmation with `seed`, as far as it is recorded.

    Raises:
        InputError: no such run, trial or seed; or what it was trained on is gone.
    """
    config = _config(run)
    record = find_record(run, number, seed)
    prepared = run.resolve() / "prepared"
    _check_artifacts(prepared)
    import torch

    from distilbench.encoders.encoder import default_device
    from distilbench.storage.retry import StorageGone
    from distilbench.trials.rung_training import RungTraining
    from distilbench.trials.training_spec import TrainingSpec

    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory(prefix="distilbench-") as name:
        folder = Path(name)
        trained = (record.method, record.params, record.seed, _budget(run, config))
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


def find_record(run: Path, number: int, seed: int | None) -> TrialRecord:
    """The record of a trial, or of the training that confirmed it with `seed`.

    Raises:
        InputError: there is none.
    """
    records = [r for name in TRIAL_FILES for r in read_records(run / name) if isinstance(r, TrialRecord)]
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


def _config(run: Path) -> dict[str, Any]:
    if not run.is_dir():
        raise InputError(f"{run}: no such folder; expected that of a run, such as runs/NAME")
    config = bound_config(run)
    if config is None or "corpus_fingerprint" not in config:
        inner = [folder.name for folder in run_folders([run]) if folder != run]
        hint = f"expected one of the runs in it: {', '.join(inner)}" if inner else "expected the folder of a run"
        raise InputError(f"{run}: no run's config.json in it; {hint}")
    return config


def _budget(run: Path, config: dict[str, Any]) -> Budget:
    """The budget of a training of the run, with the rungs at which it is judged."""
    if "rows" in config:
        from distilbench.commands.compare import comparison_budget

        return comparison_budget(config["steps"])
    fields = {key.removeprefix("budget."): value for key, value in config.items() if key.startswith("budget.")}
    return Budget.model_validate({**fields, "trials": config["trials"]})


def _check_artifacts(prepared: Path) -> None:
    """Every artifact that `prepared.json` names is there; they are all in one store."""
    file = prepared / "prepared.json"
    if not file.exists():
        raise InputError(
            f"{file}: not there, so what the trials were trained on is not known; repeat the run's command"
        )
    described = json.loads(file.read_text())
    for part in (described["vectors"], described, *described.get("students", {}).values()):
        for name, value in part.items():
            path = Path(value) if isinstance(value, str) and value.startswith("/") else None
            if path is not None and name not in ("student", "name") and not (path / MANIFEST).exists():
                what = "vectors" if name == "folder" else name
                raise InputError(
                    f"{path}: the prepared {what} that the trials were trained on are gone; repeat the run's command, "
                    "which makes them again"
                )


def _metrics(rung: Rung) -> dict[str, float | None]:
    return {"objective": rung.objective, **{k: v for k, v in rung.metrics.items() if k not in NOT_COMPARED}}
