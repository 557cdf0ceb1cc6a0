"""A sweep's study in optuna-dashboard, as docs/clusters.md starts it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from distilbench.search.study import open_study, sqlite_url

pytest.importorskip("optuna_dashboard", reason="optuna-dashboard is not installed (extra: dashboard)")


@pytest.mark.timeout(120)
def test_it_shows_a_sweeps_study(tmp_path: Path) -> None:
    study = open_study(sqlite_url(tmp_path / "study.db"), "my-run")
    study.enqueue_trial({"lr": 0.25})
    trial = study.ask()
    trial.suggest_float("lr", 0.1, 1.0)
    study.tell(trial, 1.5)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = shutil.which("optuna-dashboard", path=str(Path(sys.executable).parent))
    assert program
    server = subprocess.Popen(
        [program, "sqlite:///study.db", "--port", str(port)],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        studies = json.loads(get(f"http://127.0.0.1:{port}/api/studies"))["study_summaries"]
        assert [s["study_name"] for s in studies] == ["my-run"]
        shown = json.loads(get(f"http://127.0.0.1:{port}/api/studies/{studies[0]['study_id']}?after=0"))
        assert shown["trials"][0]["values"] == [1.5] and shown["trials"][0]["params"][0]["name"] == "lr"
        assert "<title>" in get(f"http://127.0.0.1:{port}/dashboard/")
    finally:
        server.kill()
        server.wait()


def get(address: str) -> str:
    deadline = time.monotonic() + 60
    while True:
        try:
            return urllib.request.urlopen(address, timeout=10).read().decode()
        except OSError:
            assert time.monotonic() < deadline, "it does not answer"
            time.sleep(0.2)
