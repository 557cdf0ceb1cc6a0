"""What the tally knows of a sweep: counts, the best of each number of bytes, and what is still to come."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from watched import failed, record, report, tally_of

from distilbench.machine import process_mark
from distilbench.progress import tally as module
from distilbench.progress.tally import Progress, best_of


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    own = Clock()
    monkeypatch.setattr(module, "time", own)
    return own


def test_trials_go_from_running_to_their_state(tmp_path: Path, clock: Clock) -> None:
    tally = tally_of(tmp_path, earlier=(record(0), record(0, confirms=True)))
    tally.stage("search")
    for number in (1, 2, 3):
        tally.started(number, {"output_dim": 64, "lr": 0.1})
    tally.progressed(2, report(30, loss=math.nan))
    tally.finished(record(1, state="PRUNED", step=50))
    tally.finished(failed(3, "loss is nan"))
    found = tally.progress()
    assert found.counts == {"COMPLETE": 1, "PRUNED": 1, "FAIL": 1}
    (running,) = found.running
    assert (running.number, running.dim, running.step, running.total_steps) == (2, 64, 30, 450)
    assert running.loss is None and running.dev is None
    assert (found.stage, found.wanted, found.pid) == ("search", 24, os.getpid())
    assert Progress.model_validate_json(found.model_dump_json()) == found


def test_a_trial_that_waits_runs_no_longer(tmp_path: Path, clock: Clock) -> None:
    tally = tally_of(tmp_path, trials=3)
    tally.stage("search")
    tally.started(0, {"output_dim": 64})
    clock.now += 10
    tally.progressed(0, report(50, rung=1, speed=5.0))
    tally.waiting(0)
    assert tally.progress().running == []
    tally.started(0, {"output_dim": 64})
    (running,) = tally.progress().running
    assert (running.number, running.step, running.rung, running.dim) == (0, 50, 1, 64)
    clock.now += 10
    tally.progressed(0, report(100, rung=1, speed=5.0))
    tally.waiting(0)
    tally.finished(record(0, state="PRUNED", step=100))
    assert tally.progress().counts["PRUNED"] == 1


def test_the_best_is_complete_and_the_earlier_of_equals() -> None:
    trials = [
        record(5, objective=-0.5),
        record(3, objective=-0.5),
        record(1, objective=9.0, state="PRUNED"),
        record(2, objective=None),
        record(6, objective=-2.0, dim=8),
        record(7, objective=-1.0, dim=8),
    ]
    assert {dim: r.number for dim, r in best_of(trials).items()} == {("", 32): 7, ("", 128): 3}
    assert list(best_of(trials)) == [("", 32), ("", 128)]


def test_time_left_is_what_remains_at_the_rate_so_far(tmp_path: Path, clock: Clock) -> None:
    tally = tally_of(tmp_path, trials=3)
    assert tally.progress().seconds_left is None
    tally.started(0, {})
    assert tally.progress().seconds_left is None
    clock.now += 10
    tally.progressed(0, report(100))
    # a 4.5th of a trial in 10 s; the rest of it, and two that have not begun
    assert tally.progress().seconds_left == pytest.approx(125)
    clock.now += 35
    tally.finished(record(0))
    assert tally.progress().seconds_left == pytest.approx(90)
    tally.stage("confirm")
    assert tally.progress().seconds_left is None


def test_early_stopping_is_in_the_time_left_and_trials_of_before_are_not(tmp_path: Path, clock: Clock) -> None:
    tally = tally_of(tmp_path, trials=8, earlier=(record(0), record(1)))
    for number in (2, 3):
        tally.started(number, {})
    clock.now += 30
    tally.finished(record(2, step=50, state="PRUNED"))
    tally.progressed(3, report(225))
    assert tally.progress().seconds_left == pytest.approx(4.5 * 30 / 1.5)


def test_a_process_is_told_from_one_that_ended() -> None:
    mark = process_mark(os.getpid())
    assert mark and mark == process_mark(os.getpid())
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert process_mark(child.pid) not in (None, mark)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, but its parent has not asked for it
    assert process_mark(child.pid) is None
    child.wait()
    child.stdin and child.stdin.close()
    assert process_mark(child.pid) is None
