"""A sweep on the port that Prometheus reads."""

from __future__ import annotations

import re
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from watched import failed, heard, record, report, tally_of

from distilbench.progress import metrics as module
from distilbench.progress.metrics import GAUGES, SweepMetrics, sweep_values

RUN = "prüf-läufe"
"""Ray takes tags in ASCII only."""


def tell(watcher: Any) -> None:
    watcher.stage("search")
    for number in (0, 1):
        watcher.started(number, {"output_dim": 32})
    watcher.progressed(0, report(120, rung=1, objective=-0.75, dev_score=79.25))
    watcher.progressed(1, report(20, loss=float("nan")))
    watcher.finished(record(3, objective=1.5))
    watcher.finished(failed(2, "loss is nan"))


def exposed() -> dict[str, dict[str, float]]:
    """Gauges on the metrics port by name, then by the value of their own tag, "" without one."""
    import ray

    (node,) = ray.nodes()
    address = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    found: dict[str, dict[str, float]] = {}
    for line in urllib.request.urlopen(address, timeout=10).read().decode().splitlines():
        if line.startswith("ray_distilbench_sweep") and "xfcf-l" in line:
            own = re.search(r'\b(?:stage|state|group)="([^"]*)"', line)
            name = line.split("{")[0].removeprefix("ray_distilbench_sweep_")
            found.setdefault(name, {})[own[1] if own else ""] = float(line.split()[-1])
    return found


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_rays_metrics_have_the_sweep(tmp_path: Path, cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0.5)
    watcher = heard(SweepMetrics(tally_of(tmp_path / RUN)))
    tell(watcher)
    deadline = time.monotonic() + 90
    while "running_trials" not in (found := exposed()):
        assert time.monotonic() < deadline
        time.sleep(1)
    assert found["stage"] == {"search": 1} and found["running_trials"] == {"": 2}
    assert found["finished_trials"] == {"COMPLETE": 1, "PRUNED": 0, "FAIL": 1}
    assert found["wanted_trials"] == {"": 24} and found["best_dev"] == {"128 bytes": 81.5}
    assert found["steps_per_second"] == {"": 20}
    watcher.close()


def test_every_gauge_is_set_with_its_own_tags(tmp_path: Path) -> None:
    tally = tally_of(tmp_path / RUN, deadline=5e9)
    tell(tally)
    values = sweep_values(tally)
    assert {name for name, _, _ in values} == set(GAUGES)
    for name, tags, _ in values:
        assert tuple(tags) == ("run", "method", *GAUGES[name][1]) and all(tag.isascii() for tag in tags.values())
