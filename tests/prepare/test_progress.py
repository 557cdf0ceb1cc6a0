"""What a user sees of a stage: lines in a log, and gauges on the port that Ray's dashboard reads."""

from __future__ import annotations

import time

import pytest

from distilbench.prepare import progress as module
from distilbench.prepare.progress import progress


def test_a_log_gets_lines_with_rate_and_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "LINE_EVERY_S", 0.01)
    with progress("Teacher encoding", 400, "sentences") as advance:
        time.sleep(0.4)  # workers start
        advance(100)
        time.sleep(0.1)
        advance(100)
    out = " ".join(capsys.readouterr().out.split())
    assert "Teacher encoding: 100 of 400 sentences, " in out and "Teacher encoding: 200 of 400 sentences, " in out
    rate, left = out.split("200 of 400 sentences, ")[1].split(" s left")[0].split("/s, ")
    assert 500 < float(rate.replace(",", "")) < 1050 and abs(float(left)) <= 1
    assert "200/400" in out
