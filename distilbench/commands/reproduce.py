"""`distilbench reproduce`: train a recorded trial again, in a folder of its own, and compare its dev metrics.

    distilbench reproduce runs/mcr2-builtin-all-MiniLM-L6-v2 7
    distilbench reproduce runs/mcr2-builtin-all-MiniLM-L6-v2 7 --seed 1

No Ray, and nothing is written into the run. It goes as far as the record does: a trial that was stopped at rung 2 is trained
to rung 2.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from distilbench.cluster.prepared_paths import ARTIFACTS
from distilbench.errors import InputError
from distilbench.records import Rung, TrialRecord, read_records
from distilbench.reporting.runs import TRIAL_FILES, run_folders
from distilbench.stage_times import PEAK
from distilbench.storage.arrays import MANIFEST
from distilbench.storage.files import bound_config
from distilbench.trials.budget import Budget

NOT_COMPARED = frozenset({"rung_seconds", PEAK, "latency_ms", "single_ms", "model_bytes", "micro_batches"})
"""What depends on the machine at that moment: times, and whether its memory sufficed; and what was measured beforehand."""


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
        recorded, again = ({rung.rung: rung for rung in rungs} for rungs in (self.record.rungs, self.rungs))
        differences = []
        for number in sorted(recorded.keys() | again.keys()):
            one, two = recorded.get(number), again.get(number)
            rung = one or two
            assert rung is not None
            names = dict.fromkeys([*_metrics(one), *_metrics(two)])
            values = ((name, _metrics(one).get(name), _metrics(two).get(name)) for name in names)
            differences += [MetricDifference(number, rung.step, *value) for value in values]
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
        console.print(
            f"{record.run}: {kind} {record.number}, {record.method} d={record.dim}, seed {record.seed}, {record.state}",
            markup=False,
        )
        if differences:
            console.print(_table(differences, tolerance))
        if self.reason or self.expected:
            console.print(f"recorded failure: {self.expected or 'none'}", markup=False)
            console.print(f"failure again:    {self.reason or 'none'}", markup=False)
        most = max((abs(d.amount) for d in differences), default=0.0)
        if self.same(tolerance):
            console.print(f"reproduced: no difference above {tolerance:g} (the largest: {most:.3g})", markup=False)
            return
        beyond = sum(abs(d.amount) > tolerance for d in differences)
        console.print(
            f"not reproduced: {beyond} of {len(differences)} values differ by more than {tolerance:g}"
            + ("" if self.reason == self.expected else "; it did not fail alike"),
            markup=False,
        )


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
    from distilbench.storage.patience import StorageGone
    from distilbench.trials.rung_training import RungTraining
    from distilbench.trials.training_spec import TrainingSpec

    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory(prefix="distilbench-") as name:
        folder = Path(name)
        spec = TrainingSpec(
            method=record.method,
            params=record.params,
            seed=record.seed,
            budget=_budget(run, config),
            prepared=prepared,
            folder=folder,
            log=folder / "hang.txt",
        )
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
    # Of one that was recorded twice, the last: a killed writer's was written again.
    records: dict[tuple[int, int, bool], TrialRecord] = {}
    for name in TRIAL_FILES:
        for r in read_records(run / name):
            if isinstance(r, TrialRecord):
                records[r.number, r.seed, r.confirms] = r
    of_number = [r for r in records.values() if r.number == number]
    if not of_number:
        numbers = sorted({r.number for r in records.values()})
        ended = f"those that have ended are {_ranges(numbers)}" if numbers else "none has ended"
        raise InputError(f"{run}: no record of a trial {number}; {ended}")
    for r in of_number:
        if (not r.confirms) if seed is None else r.seed == seed:
            return r
    seeds = ", ".join(str(r.seed) for r in sorted(of_number, key=lambda r: r.seed))
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
    """What a training of the run may take, and where it is judged."""
    if "rows" in config:
        from distilbench.commands.compare import comparison_budget

        return comparison_budget(config["steps"])
    fields = {key.removeprefix("budget."): value for key, value in config.items() if key.startswith("budget.")}
    if "steps" not in fields:
        raise InputError(f"{run}/config.json: no budget.steps in it: the run of an earlier version")
    return Budget.model_validate({**fields, "trials": config["trials"]})


def _check_artifacts(prepared: Path) -> None:
    file = prepared / "prepared.json"
    if not file.exists():
        raise InputError(
            f"{file}: not there, so what the trials were trained on is not known; repeat the run's command"
        )
    described = json.loads(file.read_text())
    named = [(what, own[what]) for own in described.get("students", {}).values() for what in ARTIFACTS if what in own]
    vectors = ("vectors", described["vectors"]["folder"])
    for what, folder in (vectors, *((what, described.get(what)) for what in ARTIFACTS), *named):
        if folder is not None and not (Path(folder) / MANIFEST).exists():
            raise InputError(
                f"{folder}: the prepared {what} that the trials were trained on are gone; repeat the run's command, which "
                "makes them again"
            )


def _metrics(rung: Rung | None) -> dict[str, float | None]:
    if rung is None:
        return {}
    return {"objective": rung.objective, **{k: v for k, v in rung.metrics.items() if k not in NOT_COMPARED}}


def _table(differences: Sequence[MetricDifference], tolerance: float) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, justify in (("rung", "right"), ("step", "right"), ("metric", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for name in ("recorded", "again", "difference"):
        table.add_column(name, justify="right")
    for d in differences:
        mark = "" if abs(d.amount) <= tolerance else " !"
        amount = "-" if math.isinf(d.amount) else f"{d.amount:+.4g}" if d.amount else "0"
        cells = [str(d.rung), str(d.step), d.metric, _shown(d.recorded), _shown(d.again), amount + mark]
        table.add_row(*map(Text, cells))
    return table


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _ranges(numbers: Sequence[int]) -> str:
    """0 to 5, 7."""
    ranges: list[list[int]] = []
    for n in numbers:
        if ranges and n == ranges[-1][1] + 1:
            ranges[-1][1] = n
        else:
            ranges.append([n, n])
    return ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in ranges)
