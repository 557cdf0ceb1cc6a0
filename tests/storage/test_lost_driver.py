"""A sweep whose driver's machine is lost, and which another one ends; without Ray: trials and jobs run here, one by one,
on what is told of as another node."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from driver import kill_copy
from rich.console import Console

from distilbench.cluster import run_copy
from distilbench.cluster.driver_files import DriverFiles
from distilbench.cluster.resources import TrialResources
from distilbench.commands import method_sweep
from distilbench.commands import sweep as sweeps
from distilbench.prepare import stage
from distilbench.records import ScoreRecord, TrialRecord, read_records
from distilbench.reporting.page import LivePage
from distilbench.search.run_trials import _Recorder, write_missing_records
from distilbench.settings.sweep import SweepSettings
from distilbench.storage.folder_copy import FolderCopy
from distilbench.storage.remote import Remote, files_in
from distilbench.trials import rows as leaderboard
from distilbench.trials.jobs import Job, Outcome, _collect, finish
from distilbench.trials.rung_training import known_rungs
from distilbench.trials.scoring import Encoded

pytestmark = pytest.mark.slow

SPACE = """
method: hpd
budget: {trials: 5, steps: 18, rungs: 3, eta: 3, confirm: {seeds: 2}}
parameters:
  lr: {low: 0.0001, high: 0.01, log: true}
  output_dim: {choices: [4, 8]}
fixed: {batch_size: 16, epochs: 100}
"""


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the code catches it."""


def elsewhere() -> DriverFiles | None:
    """What a worker on another node than the driver's is given."""
    files = run_copy.driver_files()
    return files and replace(files, node="the driver's")


class Node:
    """Where trials and jobs run."""

    def __init__(self) -> None:
        self.kill_at: Callable[[int, int], bool] = lambda trial, report: False

    def trials(self, study: Any, search: Any, at: Any, tally: Any) -> None:
        """As `run_trials`, one report after the other."""
        from distilbench.search.searcher import RungScheduler, StudySearcher
        from distilbench.search.trial import TrialTrainable

        run = at.run
        write_missing_records(run, study, search)
        recorder = _Recorder(run, study, search, tally)
        searcher = StudySearcher(study, search, 1, recorder, at.deadline)
        config = {"run": str(run.resolve()), "prepared": str(at.prepared.resolve()), "method": search.space.method}
        config |= {"seed": 0, "cpus": 1, "gpus": 0, "costs": {}, "deadline": math.inf}
        config |= {"budget": search.space.budget.model_dump()}
        config |= {"files": elsewhere()}
        worker: Any = None
        for name in map(str, range(99)):
            suggested = searcher.suggest(name)
            if not isinstance(suggested, dict):
                assert suggested == searcher.FINISHED
                return
            if worker is None:
                worker = TrialTrainable({**config, **suggested})
            else:
                worker.reset_config({**config, **suggested})
            told = type("TuneTrial", (), {"trial_id": name})()
            for report in range(9):
                result = worker.step()
                if self.kill_at(suggested["number"], report):
                    raise Killed
                if result["done"] or RungScheduler(searcher).on_trial_result(None, told, result) == "STOP":
                    searcher.on_trial_complete(name, result)
                    break

    def jobs(
        self,
        jobs: Sequence[Job],
        prepared: Path,
        corpus: Any,
        resources: Any,
        on_outcome: Callable[[Outcome], None],
        deadline: float = math.inf,
    ) -> list[Job]:
        """As `finish_jobs`."""
        for job in jobs:
            _collect(job)
            outcome = Outcome(job, "", tuple(known_rungs(job.folder)))
            if Encoded.load(job.folder) is None:
                with ONE_DISK:
                    outcome = finish(job, prepared, corpus, TrialResources(1, 0, 1, ""), elsewhere())
                    _collect(job)
            on_outcome(outcome)
        return []


ONE_DISK = threading.RLock()
"""The node has the driver's disk here: while it makes a student and deletes its own, the run is not copied."""


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    push = FolderCopy.push

    def push_alone(copy: FolderCopy) -> None:
        with ONE_DISK:
            push(copy)

    monkeypatch.setattr(FolderCopy, "push", push_alone)
    own = Node()
    resources = TrialResources(1, 0, 1, "one at a time")
    monkeypatch.setattr(sweeps, "on_cluster", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(method_sweep, "trial_resources", lambda *_: resources)
    monkeypatch.setattr(method_sweep, "wait_for_idle", lambda resources: None)
    monkeypatch.setattr(method_sweep, "run_trials", own.trials)
    monkeypatch.setattr(leaderboard, "finish_jobs", own.jobs)
    monkeypatch.setattr(stage, "CorpusEncoding", functools.partial(stage.CorpusEncoding, in_process=True))
    monkeypatch.setattr(LivePage, "_write", lambda self: None)  # its plots take most of such a sweep's time
    monkeypatch.setattr(run_copy, "DEAD_S", 2.0)
    monkeypatch.setattr(run_copy, "LOOK_S", 0.2)
    monkeypatch.setattr(run_copy, "BEAT_S", 0.5)
    monkeypatch.setattr(run_copy, "EVERY_S", 0.2)
    return own


class Machine:
    """A driver's machine: all that it has is below `root`."""

    def __init__(self, root: Path, data: Path, encoder: Path, storage: Remote | None) -> None:
        root.mkdir(parents=True)
        self.root = root
        shutil.copytree(data, root / "data")
        shutil.copytree(encoder, root / "encoder")
        (root / "space.yaml").write_text(SPACE)
        self.run = root / "runs" / "r"
        self.common: dict[str, Any] = {
            "data": str(root / "data"),
            "teacher": str(root / "encoder"),
            "student": "layers:0,2",
            "runs": root / "runs",
            "store": root / "store",
            "name": "r",
            "quantise": ("none",),
            "storage": storage.uri if storage else None,
        }
        self.console = Console(record=True, file=(root / "log.txt").open("w"), soft_wrap=True)

    def sweep(self, **more: Any) -> Path:
        given = {"method": ("hpd",), "space": self.root / "space.yaml", **self.common, **more}
        return sweeps.sweep(SweepSettings(**given), self.console)

    def told(self) -> dict[str, Any]:
        """What does not depend on the clock."""
        found: dict[str, Any] = {}
        for name in ("trials.jsonl", "confirmations.jsonl"):
            for record in read_records(self.run / name):
                key = f"{name} {record.number} {record.seed}"
                assert isinstance(record, TrialRecord) and key not in found
                found[key] = record.model_dump(exclude={"provenance"})
                for rung in found[key]["rungs"]:
                    del rung["metrics"]["rung_seconds"], rung["metrics"]["peak_mb"]
        for score in read_records(self.run / "scores.jsonl"):
            assert isinstance(score, ScoreRecord)
            found[score.record_id] = [s.model_dump() for s in score.scores]
        return found


def plain_page(reports: Path, corpus: Any, run: Path, records: Any, *more: Any, **folders: Any) -> Path:
    """A report without figures."""
    page = reports / run.name / "index.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(f"{len(records)} records")
    return page


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "publish", plain_page)


@pytest.fixture(scope="module")
def whole_told() -> dict[str, Any]:
    """Of a sweep that nothing interrupted, once it has run."""
    return {}


@pytest.fixture
def whole(
    node: Node,
    plain: None,
    data_folder: Path,
    encoder_folder: Path,
    whole_told: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Any]:
    if not whole_told:
        machine = Machine(tmp_path / "whole", data_folder, encoder_folder, None)
        machine.sweep()
        whole_told |= machine.told()
    return whole_told


def lose(machine: Machine, act: Callable[[], object], patch: pytest.MonkeyPatch) -> None:
    """`act` is killed; nothing is written to the storage afterwards, and the machine is gone."""
    with patch.context() as during:
        during.setattr(run_copy.RunCopy, "end", lambda copy, whole: kill_copy(copy))
        with pytest.raises(Killed):
            act()
    shutil.rmtree(machine.root)


def test_a_lost_driver_changes_nothing(
    node: Node,
    whole: dict[str, Any],
    s3: Remote,
    tmp_path: Path,
    data_folder: Path,
    encoder_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, waited = s3 / "runs" / "r", []

    def kill(trial: int, report: int) -> bool:
        if (trial, report) == (3, 0):
            for _ in range(200):  # the copy of the study comes a little later
                if (run.read("trials.jsonl") or b"").count(b"\n") >= 2:
                    break
                time.sleep(0.05)
            waited.append("search")
            return True
        return False

    node.kill_at = kill
    one = Machine(tmp_path / "one", data_folder, encoder_folder, s3)
    lose(one, one.sweep, monkeypatch)
    assert waited and any(n.startswith("trials/") for n in run.list())
    node.kill_at = lambda trial, report: False

    two = Machine(tmp_path / "two", data_folder, encoder_folder, s3)
    page = two.sweep()
    said = two.console.export_text()
    assert "is gone; this one goes on" in said and "the run is fetched" in said and ": 0 of " in said
    assert two.told() == whole
    # In the storage there is the same: whoever comes next finds it all, and nothing of the search but what is chosen.
    copied = files_in(two.run)
    there = run.list()
    for name, path in copied.items():
        if run_copy.copied(name) and not name.endswith(".db"):
            assert there[name].size == path.stat().st_size, name
    left = {n.split("/")[1] for n in there if n.startswith("trials/")}
    chosen = json.loads((two.run / "confirmed.json").read_text())
    assert left == {f"{item['trial']:05d}" for own in chosen.values() for item in own}
    assert not [n for n in there if n.endswith(("vectors.npy", "encoded.json"))]
    assert (s3 / "reports" / "r").read("index.html") == page.read_bytes()

    # Repeated on a third machine, it has nothing to do.
    three = Machine(tmp_path / "three", data_folder, encoder_folder, s3)
    monkeypatch.setattr(method_sweep, "run_trials", lambda *_, **__: None)
    monkeypatch.setattr(node, "jobs", None)
    three.sweep()
    assert three.told() == whole and "waiting" not in three.console.export_text()
