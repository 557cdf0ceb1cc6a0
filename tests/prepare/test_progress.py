"""What a user sees of a stage: lines in a log, and gauges on the port that Ray's dashboard reads."""

from __future__ import annotations

import time
import urllib.request

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


def test_what_takes_seconds_has_a_rate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module, "LINE_EVERY_S", 0.01)
    with progress("Encoders", 3, "encoders") as advance:
        advance(1)
        time.sleep(1.25)
        advance(1)
    rate = capsys.readouterr().out.split("2 of 3 encoders, ")[1].split("/s, ")[0]
    assert 0 < float(rate) <= 0.8


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_rays_metrics_have_the_stage(cluster: None) -> None:
    import ray

    with progress("Stage under test", 50, "pairs") as advance:
        time.sleep(0.1)
        advance(20)
        (node,) = ray.nodes()
        address = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
        found: dict[str, float] = {}
        deadline = time.monotonic() + 60
        while len(found) < 4 and time.monotonic() < deadline:
            text = urllib.request.urlopen(address, timeout=10).read().decode()
            mine = [line for line in text.splitlines() if "distilbench_prepare" in line and "Stage under test" in line]
            found = {line.split("{")[0].split("distilbench_prepare_")[1]: float(line.split()[-1]) for line in mine}
            time.sleep(1)
    assert found["done"] == 20 and found["total"] == 50
    assert 10 < found["per_second"] < 250 and found["seconds_left"] == pytest.approx(30 / found["per_second"], rel=1e-3)
