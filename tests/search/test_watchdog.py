"""A process that hangs is ended by its watchdog, which says where; a worker that hangs between slices, by the driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray import tune

from distilbench.heartbeat import beat, subscribe, unsubscribe
from distilbench.search.trial import Supervisor, hang_log
from distilbench.trials.watchdog import MARK, Watchdog

HEAD = """
import hashlib, os, signal, sys, time
from pathlib import Path
from distilbench.trials import watchdog
from distilbench.trials.watchdog import Watchdog
log = Path(sys.argv[1])

def stuck():
    {stuck}

with Watchdog(log, {limit}) as dog:
    {before}
    stuck()
print("alive")
"""

HANGS = {
    "python": "time.sleep(60)",
    "the interpreter's lock held": "hashlib.pbkdf2_hmac and sum(range(10**11))",
}


def start(log: Path, stuck: str, limit: float = 1.0, before: str = "pass") -> subprocess.Popen[str]:
    script = HEAD.format(stuck=stuck, limit=limit, before=before)
    command = [sys.executable, "-c", script, str(log)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("hang", HANGS)
def test_a_hanging_process_ends_and_says_where(tmp_path: Path, hang: str) -> None:
    log = tmp_path / "logs" / "h.txt"
    for times in (1, 2):
        process = start(log, HANGS[hang])
        out = process.communicate(timeout=20)[0]
        assert process.returncode != 0 and "alive" not in out
        assert Watchdog(log, 1.0).hangs() == times
    assert "in stuck" in log.read_text()


def test_what_the_work_says_of_itself_is_progress(tmp_path: Path) -> None:
    heard: list[str] = []
    dog, outer = Watchdog(tmp_path / "h.txt"), subscribe(lambda: heard.append("outer"))
    dog.alive = lambda: heard.append("dog")  # type: ignore[method-assign]
    with dog:
        beat()
    beat()
    unsubscribe(outer)
    beat()
    assert heard == ["dog", "dog", "outer"]


def test_a_run_whose_folder_is_gone_gets_no_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from distilbench.storage import retry

    monkeypatch.setattr(retry, "LIMIT_S", 0.1)
    with pytest.raises(retry.StorageGone), Watchdog(tmp_path / "gone" / "logs" / "h.txt", 9):
        pass
    assert not (tmp_path / "gone").exists()


def freezing() -> type[tune.Trainable]:
    """A class of its own for each call: Ray sends it as it is, the workers cannot import this file."""

    class Freezing(tune.Trainable):
        """The first worker of trial 0 is stopped a moment after it has reported."""

        def setup(self, config: dict[str, Any]) -> None:
            self.flag = Path(config["run"]) / "froze"

        def step(self) -> dict[str, Any]:
            if self.config["number"] == 0 and not self.flag.exists() and self.iteration == 1:
                self.flag.touch()
                threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGSTOP)).start()
            time.sleep(0.2)
            return {"done": self.iteration >= 3}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            """Nothing to keep."""

        def load_checkpoint(self, checkpoint: Any) -> None:
            """Nothing was kept."""

    return Freezing


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_frozen_worker_is_replaced(tmp_path: Path, cluster: None) -> None:
    tuner = tune.Tuner(
        tune.with_resources(freezing(), {"cpu": 1}),
        param_space={"run": str(tmp_path), "number": tune.grid_search([0, 1])},
        run_config=tune.RunConfig(
            name="t",
            storage_path=str(tmp_path / "tune"),
            failure_config=tune.FailureConfig(max_failures=1),
            callbacks=[Supervisor(tmp_path, lambda trial_id: None, 5.0)],
            verbose=0,
        ),
    )
    results = tuner.fit()
    assert [result.error for result in results] == [None, None]
    assert (tmp_path / "froze").exists()
    assert hang_log(tmp_path, 0).read_text().count(MARK) == 1
    assert not hang_log(tmp_path, 1).exists()


class Watched:
    """One trial that is at work, and a clock."""

    def __init__(self, run: Path) -> None:
        self.time = 0.0
        self.begun: list[str] = []
        self.supervisor = Supervisor(run, self.begun.append, 10.0, clock=lambda: self.time)
        self.log = hang_log(run, 7)
        no_worker = SimpleNamespace(ray_actor=None)
        self.trial = SimpleNamespace(trial_id="a", config={"number": 7}, temporary_state=no_worker)
        self.supervisor.on_trial_start(0, [], self.trial)

    def wait(self, seconds: float, look_every: float = 0.5) -> None:
        end = self.time + seconds
        while self.time < end:
            self.time += look_every
            self.supervisor.on_step_begin(0, [])


def test_it_counts_the_time_since_the_last_report(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.wait(9)
    watched.supervisor.on_trial_result(0, [], watched.trial, {})
    watched.wait(9)
    assert not watched.log.exists()
    watched.wait(2)
    assert watched.log.read_text().count(MARK) == 1
    watched.wait(30)
    assert watched.log.read_text().count(MARK) == 1  # nothing is expected of it until it starts again


def test_the_drivers_own_waiting_does_not_count(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.wait(1000, look_every=200)
    assert not watched.log.exists()
