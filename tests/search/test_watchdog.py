"""The watchdog ends a process that hangs anywhere, says where, and leaves one that works alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from distilbench.heartbeat import beat, subscribe, unsubscribe
from distilbench.trials.watchdog import Watchdog

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
