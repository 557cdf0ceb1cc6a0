"""A training from rung to rung: the same wherever it is interrupted, failed for one reason, and patient with storage."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from samples import comparable_rungs

from distilbench.methods.hpd import HPD as Hpd
from distilbench.storage import retry
from distilbench.storage.files import DiskFull
from distilbench.storage.retry import StorageGone
from distilbench.training.loop import Trainer
from distilbench.trials import rung_training as module
from distilbench.trials.budget import Budget
from distilbench.trials.rung_training import RUNGS, RungTraining, known_rungs
from distilbench.trials.training_spec import TrainingSpec

MCR2 = {"output_dim": 8, "lambda": 50.0, "clusters": 4, "lr": 0.003, "batch_size": 16}
HPD = {"output_dim": 8, "lr": 0.003, "batch_size": 16, "epochs": 9}
STEPS = [2, 6, 18]


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the code catches it."""


def spec_of(folder: Path, prepared: Path, method: str = "mcr2", **params: Any) -> TrainingSpec:
    given = {"output_dim": 8} if method == "pca" else {**(HPD if method == "hpd" else MCR2), **params}
    budget = Budget.model_validate({"trials": 1, "steps": 18, "rungs": 3, "eta": 3, "start": False})
    return TrainingSpec(method, given, 0, budget, prepared, folder / "trial", folder / "hang.txt")


def train(spec: TrainingSpec, slices: float = 1e9) -> RungTraining:
    training = RungTraining(spec, "cpu")
    while not training.done:
        training.advance(slices)
    return training


def weights(training: RungTraining) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in training.method.named_parameters()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, prepared_folder: Path) -> Callable[[str], RungTraining]:
    """Trainings that nothing interrupted."""
    made: dict[str, RungTraining] = {}

    def of(method: str) -> RungTraining:
        if method not in made:
            made[method] = train(spec_of(tmp_path_factory.mktemp("whole"), prepared_folder, method))
        return made[method]

    return of


def assert_same(training: RungTraining, wanted: RungTraining) -> None:
    assert training.failed == "" and [r.step for r in training.rungs] == STEPS
    assert comparable_rungs(training.rungs) == comparable_rungs(wanted.rungs)
    assert comparable_rungs(known_rungs(training.spec.folder)) == comparable_rungs(wanted.rungs)
    theirs = weights(wanted)
    assert all(torch.equal(w, theirs[name]) for name, w in weights(training).items())
    assert all(r.metrics["loss"] is not None for r in training.rungs)


@pytest.mark.parametrize("slices", [1e9, 0.0])
@pytest.mark.parametrize("method", ["mcr2", "hpd"])
def test_the_start_is_judged_before_the_first_step_and_changes_no_other_rung(
    tmp_path: Path, prepared_folder: Path, whole: Callable[[str], RungTraining], method: str, slices: float
) -> None:
    spec = spec_of(tmp_path, prepared_folder, method)
    spec = replace(spec, budget=spec.budget.model_copy(update={"start": True}))
    training = train(spec, slices)
    first, *others = training.rungs
    assert (first.rung, first.step, first.eligible, first.metrics["loss"]) == (0, 0, True, None)
    assert comparable_rungs(others) == comparable_rungs(whole(method).rungs)
    again = RungTraining(spec, "cpu")
    assert again.done and comparable_rungs(again.rungs) == comparable_rungs(training.rungs)


@pytest.mark.parametrize("method", ["pca", "mcr2_distil"])
def test_a_student_without_its_final_form_has_no_start(tmp_path: Path, prepared_folder: Path, method: str) -> None:
    """PCA has no step; a distilled MCR2 makes its targets in a phase of its own first."""
    spec = spec_of(tmp_path, prepared_folder, "pca")
    if method == "mcr2_distil":
        params = {**MCR2, "steps": 6, "distil_epochs": 1, "distil_batch_size": 16}
        spec = replace(spec, method=method, params=params)
    training = train(replace(spec, budget=spec.budget.model_copy(update={"start": True})))
    assert training.failed == "" and training.rungs[0].rung == 1


@pytest.mark.parametrize("method", ["mcr2", "hpd"])
@pytest.mark.parametrize("keep_every_s", [0.0, 60.0], ids=["kept at every step", "kept at rungs"])
def test_killed_at_any_step_it_ends_the_same(
    tmp_path: Path,
    prepared_folder: Path,
    whole: Callable[[str], RungTraining],
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    keep_every_s: float,
) -> None:
    """Killed again and again, each time some steps further."""
    monkeypatch.setattr(module, "KEEP_EVERY_S", keep_every_s)
    spec, real, begun = spec_of(tmp_path, prepared_folder, method), Trainer._train_step, []

    for deadly in (0, 1, 2, 3, 6, 7, 11, 17):

        def step(self: Trainer, deadly: int = deadly) -> float:
            if self.step == deadly:
                raise Killed
            return real(self)

        with monkeypatch.context() as patch:
            patch.setattr(Trainer, "_train_step", step)
            training = RungTraining(spec, "cpu")
            begun.append(training.trainer.step)
            with pytest.raises(Killed):
                while not training.done:
                    training.advance(1e9)
    assert_same(train(spec), whole(method))
    # From where it was kept, not from zero.
    assert begun == ([0, 0, 0, 2, 2, 6, 6, 6] if keep_every_s else [0, 0, 1, 2, 3, 6, 7, 11])


POINTS: list[tuple[str, Any, str, int]] = [
    # What is killed at its n-th call.
    ("before the first rung is saved", Trainer, "save", 1),
    ("before the second rung is saved", Trainer, "save", 2),
    ("a rung saved and not judged", module, "dev_report", 1),
    ("a rung judged and not reported", module, "write_json", 2),
    ("the last rung saved and not judged", module, "dev_report", 3),
    ("the last rung not reported", module, "write_json", 3),
]


@pytest.mark.parametrize(("owner", "name", "call"), [p[1:] for p in POINTS], ids=[p[0] for p in POINTS])
def test_killed_at_a_rung_it_ends_the_same(
    tmp_path: Path,
    prepared_folder: Path,
    whole: Callable[[str], RungTraining],
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    call: int,
) -> None:
    spec, calls, real = spec_of(tmp_path, prepared_folder), iter(range(1, 99)), getattr(owner, name)

    def deadly(*arguments: Any, **named: Any) -> Any:
        if next(calls) == call:
            raise Killed
        return real(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, deadly)
        with pytest.raises(Killed):
            train(spec)
    assert_same(train(spec), whole("mcr2"))


@pytest.mark.parametrize("rung", [2, 3])
def test_a_damaged_checkpoint_costs_the_way_from_the_one_before(
    tmp_path: Path, prepared_folder: Path, whole: Callable[[str], RungTraining], rung: int
) -> None:
    spec = spec_of(tmp_path, prepared_folder)
    training = RungTraining(spec, "cpu")
    for _ in range(rung):
        training.advance()
    (spec.folder / f"rung-{rung}.safetensors").write_bytes(b"")
    again = RungTraining(spec, "cpu")
    assert again.trainer.step == STEPS[rung - 2] and not again.done
    assert_same(train(spec), whole("mcr2"))


def test_checkpoints_come_at_least_so_often(
    tmp_path: Path, prepared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, kept = [0.0], []
    real_step, real_save = Trainer._train_step, Trainer.save

    def step(self: Trainer) -> float:
        now[0] += 25.0
        return real_step(self)

    def save(self: Trainer, folder: Path, rung: int) -> None:
        kept.append((self.step, now[0]))
        real_save(self, folder, rung)

    monkeypatch.setattr(Trainer, "_train_step", step)
    monkeypatch.setattr(Trainer, "save", save)
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    train(spec_of(tmp_path, prepared_folder))
    assert set(STEPS) <= {at for at, _ in kept}
    times = [0.0, *(t for _, t in kept)]
    assert max(b - a for a, b in itertools.pairwise(times)) <= module.KEEP_EVERY_S + 25.0


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("loss", r"loss nan, gradient norm nan at step 1"),
        ("gradient", r"loss \S+, gradient norm nan at step 1"),
        ("embedding", "an embedding is not finite"),
        ("objective", "objective is nan"),
        ("error", r"ZeroDivisionError: no \(test_rung_training.py, line \d+\)"),
    ],
)
def test_what_is_not_finite_fails_it_with_the_reason(
    tmp_path: Path, prepared_folder: Path, monkeypatch: pytest.MonkeyPatch, where: str, reason: str
) -> None:
    spec, real_loss, real_embed = spec_of(tmp_path, prepared_folder, "hpd"), Hpd.loss, Hpd.embed
    real_report, calls = module.dev_report, iter(range(99))

    def loss(self: Hpd, index_B: np.ndarray) -> torch.Tensor:
        value = real_loss(self, index_B)
        if next(calls) == 1:
            if where == "error":
                raise ZeroDivisionError("no")
            if where == "gradient":
                value.register_hook(lambda gradient: gradient * float("nan"))
            return value * float("nan") if where == "loss" else value
        return value

    def embed(self: Hpd, rows: np.ndarray) -> np.ndarray:
        return real_embed(self, rows) * (np.nan if where == "embedding" else 1)

    def report(*arguments: Any) -> Any:
        objective, metrics, collapsed = real_report(*arguments)
        return (float("nan") if where == "objective" else objective), metrics, collapsed

    with monkeypatch.context() as patch:
        patch.setattr(Hpd, "loss", loss)
        patch.setattr(Hpd, "embed", embed)
        patch.setattr(module, "dev_report", report)
        training = train(spec)
    assert re.fullmatch(reason, training.failed), training.failed
    if where in ("embedding", "objective"):
        assert [(r.rung, r.objective) for r in training.rungs] == [(1, None)]
        again = RungTraining(spec, "cpu")  # what was judged is not judged again
        assert again.done and again.failed == training.failed
        assert training.collapsed and again.collapsed
    else:
        assert training.rungs == [] and not training.collapsed


@pytest.mark.parametrize("errors", [1, 2])
def test_an_error_of_the_gpu_ends_the_process_and_another_goes_on_once(
    tmp_path: Path,
    prepared_folder: Path,
    whole: Callable[[str], RungTraining],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    errors: int,
) -> None:
    left, real = [errors], Trainer.train_until

    def train_until(trainer: Trainer, step: int, pause: Any) -> float:
        if step == 6 and left[0]:
            left[0] -= 1
            raise torch.AcceleratorError("CUDA error: device-side assert triggered\nCompile with DSA")
        return real(trainer, step, pause)

    def leave(code: int) -> None:
        raise Killed(code)

    monkeypatch.setattr(Trainer, "train_until", train_until)
    monkeypatch.setattr(module.os, "_exit", leave)
    spec = spec_of(tmp_path, prepared_folder, "hpd")
    for _ in range(errors):
        with pytest.raises(Killed):
            train(spec)
        assert "CUDA error: device-side assert triggered" in capsys.readouterr().err
    training = train(spec)
    if errors == 1:
        return assert_same(training, whole("hpd"))
    assert training.failed.startswith("AcceleratorError: CUDA error: device-side assert triggered\n")
    assert not training.loaded and [r.step for r in training.rungs] == [2]


class Storage:
    """A run's folder that can be taken away."""

    def __init__(self, run: Path, prepared: Path) -> None:
        run.mkdir()
        shutil.copytree(prepared, run / "prepared")
        self.run, self.aside = run, run.with_name("aside")
        self.spec = replace(spec_of(run, run / "prepared"), log=run / "logs" / "h.txt")

    def leave(self) -> None:
        self.run.rename(self.aside)

    def come_back(self) -> None:
        assert not self.run.exists(), "a folder was made in the place of the storage that was gone"
        self.aside.rename(self.run)


@pytest.mark.parametrize("moment", ["before it begins", "in a rung", "at its end"])
def test_storage_that_comes_back_leaves_no_trace(
    tmp_path: Path, prepared_folder: Path, whole: Callable[[str], RungTraining], moment: str
) -> None:
    storage = Storage(tmp_path / "run", prepared_folder)
    training = None
    if moment != "before it begins":
        training = RungTraining(storage.spec, "cpu")
        training.advance()
        if moment == "in a rung":
            training.advance(0.0)
    storage.leave()
    timer = threading.Timer(0.7, storage.come_back)
    timer.start()
    began = time.monotonic()
    training = training or RungTraining(storage.spec, "cpu")
    training.advance()
    assert time.monotonic() - began >= 0.7  # it has waited
    timer.join()
    while not training.done:
        training.advance()
    assert_same(training, whole("mcr2"))
    assert not (storage.run / "logs" / "h.txt").exists()


def test_storage_gone_for_long_is_said_and_nothing_is_lost(
    tmp_path: Path,
    prepared_folder: Path,
    whole: Callable[[str], RungTraining],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retry, "LIMIT_S", 0.3)
    storage = Storage(tmp_path / "run", prepared_folder)
    training = RungTraining(storage.spec, "cpu")
    training.advance()
    storage.leave()
    with pytest.raises(StorageGone, match=r"storage failed for 0 s \(FileNotFoundError: .*; what is finished is kept"):
        training.advance()
    with pytest.raises(StorageGone, match="repeat the command when it is back"):
        RungTraining(storage.spec, "cpu")
    assert training.failed == ""
    storage.come_back()
    again = RungTraining(storage.spec, "cpu")
    assert again.trainer.step == 2 and len(again.rungs) == 1
    assert_same(train(storage.spec), whole("mcr2"))


def test_a_full_disk_is_said_at_once(
    tmp_path: Path, prepared_folder: Path, whole: Callable[[str], RungTraining], monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors import SafetensorError

    from distilbench.training import checkpoint

    spec = spec_of(tmp_path, prepared_folder)
    training = RungTraining(spec, "cpu")
    training.advance()

    def full(*_: object, **__: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", full)
        with pytest.raises(StorageGone, match=r"rung-2.safetensors: No space left on device; .* make room") as raised:
            training.advance()
    assert not isinstance(raised.value, DiskFull) and training.failed == ""
    assert json.loads((spec.folder / RUNGS).read_text())["failed"] == ""
    assert not list(spec.folder.glob(".*"))
    assert_same(train(spec), whole("mcr2"))


def falling(monkeypatch: pytest.MonkeyPatch, objectives: list[float]) -> None:
    """Dev objectives as if they were these, one rung after the other."""
    left = iter(objectives)
    monkeypatch.setattr(module, "dev_report", lambda *_: (next(left), {"dev_score": 1.0}, ""))


def test_the_student_is_taken_from_its_best_rung(
    tmp_path: Path, prepared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    falling(monkeypatch, [1.0, 5.0, 2.0])
    spec = spec_of(tmp_path, prepared_folder)
    training = RungTraining(spec, "cpu")
    training.advance()
    training.advance()
    at_best = weights(training)
    training.advance()
    assert training.done and [r.eligible for r in training.rungs] == [True, True, True]
    assert any(not torch.equal(p, at_best[name]) for name, p in weights(training).items())
    again = RungTraining(spec, "cpu")  # a job of another process finishes it
    again.take_best()
    assert all(torch.equal(p, at_best[name]) for name, p in weights(again).items())


def test_a_head_that_is_still_trained_is_no_result(
    tmp_path: Path, prepared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    falling(monkeypatch, [50.0, 5.0, 4.0])  # first the compression head, which is no student
    params = {"steps": 6, "distil_epochs": 1.0, "distil_batch_size": 16, "distil_lr": 0.01}
    training = train(spec_of(tmp_path, prepared_folder, "mcr2_distil", **params))
    assert [r.eligible for r in training.rungs] == [False, True, True]
    result = module.result_rung(training.rungs)
    assert result is not None and result.objective == 5.0
