"""A sweep on the port that Prometheus reads, and the dashboard that draws it."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from watched import Told, failed, record, report, tally_of

from distilbench.prepare.progress import GAUGES as PREPARE
from distilbench.progress.ray_metrics import GAUGES as SWEEP
from distilbench.progress.ray_metrics import RayMetrics, sweep_values


def dashboard() -> dict[str, Any]:
    return json.loads((resources.files("distilbench.progress") / "grafana.json").read_text())


def tell(watcher: Any) -> None:
    watcher.stage("search")
    for number in (0, 1):
        watcher.started(number, {"output_dim": 32})
    watcher.progressed(0, report(120, rung=1, objective=-0.75, dev_score=79.25))
    watcher.progressed(1, report(20, loss=float("nan")))
    watcher.finished(record(3, objective=1.5))
    watcher.finished(failed(2, "loss is nan"))


def exposed() -> dict[str, dict[str, float]]:
    """Gauges on the metrics port by name, then by the value of the tag that is not "run" or "method", "" without one."""
    import ray

    (node,) = ray.nodes()
    address = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    found: dict[str, dict[str, float]] = {}
    for line in urllib.request.urlopen(address, timeout=10).read().decode().splitlines():
        if line.startswith(("ray_distilbench_sweep", "ray_distilbench_trial")) and 'run="my-run"' in line:
            assert 'method="mcr2"' in line
            own = re.search(r'\b(?:trial|stage|state|group)="([^"]*)"', line)
            found.setdefault(line.split("{")[0], {})[own[1] if own else ""] = float(line.split()[-1])
    return found


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_rays_metrics_have_the_sweep_and_only_its_running_trials(tmp_path: Path, cluster: None) -> None:
    watcher = Told(RayMetrics(tally_of(tmp_path / "my-run")))

    def wait_for(wanted: Any) -> dict[str, dict[str, float]]:
        deadline = time.monotonic() + 60
        while not wanted(found := exposed()):
            assert time.monotonic() < deadline, found
            time.sleep(1)
        return found

    tell(watcher)
    found = wait_for(lambda f: f.get("ray_distilbench_trial_step", {}).get("0") == 120)
    assert found["ray_distilbench_sweep_stage"] == {
        "starting": 0, "search": 1, "confirm": 0, "score": 0, "done": 0,
    }  # fmt: skip
    assert found["ray_distilbench_sweep_finished_trials"] == {"COMPLETE": 1, "PRUNED": 0, "FAIL": 1}
    assert found["ray_distilbench_sweep_running_trials"] == {"": 2}
    assert found["ray_distilbench_sweep_wanted_trials"] == {"": 24}
    assert found["ray_distilbench_sweep_best_dev"] == {"128 bytes": 81.5}
    assert found["ray_distilbench_trial_step"] == {"0": 120, "1": 20}
    assert found["ray_distilbench_trial_loss"] == {"0": 0.25}
    assert found["ray_distilbench_trial_dev"] == {"0": 79.25}
    assert found["ray_distilbench_trial_objective"] == {"0": -0.75}
    assert found["ray_distilbench_sweep_steps_per_second"] == {"": 20}
    # A finished trial's gauges go; the sweep's stay, though nothing more is reported.
    watcher.finished(record(0))
    ended = time.monotonic()
    found = wait_for(lambda f: "0" not in f.get("ray_distilbench_trial_step", {}))
    while time.monotonic() < ended + 35:
        found = exposed()
        time.sleep(1)
    assert found["ray_distilbench_trial_step"] == {"1": 20} and found["ray_distilbench_sweep_stage"]["search"] == 1
    watcher.close()


def test_without_ray_it_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    metrics = RayMetrics(tally_of(tmp_path))
    watcher = Told(metrics)
    tell(watcher)
    watcher.close()
    assert metrics.gauges == {}


def test_every_gauge_is_set_with_its_own_tags(tmp_path: Path) -> None:
    tally = tally_of(tmp_path, deadline=5e9)
    tell(tally)
    values = sweep_values(tally)
    assert {v.name for v in values} == set(SWEEP)
    for value in values:
        assert tuple(value.tags) == SWEEP[value.name][1]


def test_the_dashboard_draws_every_metric_and_no_other() -> None:
    drawn = [t["expr"] for panel in dashboard()["panels"] for t in panel["targets"]]
    named = {name for expr in drawn for name in re.findall(r"\bray_(distilbench_\w+)", expr)}
    assert named == {*SWEEP, *PREPARE}


def test_the_dashboard_names_tags_that_its_metrics_have() -> None:
    tags = {name: set(of) for name, (_, of) in SWEEP.items()} | {name: {"stage", "unit"} for name in PREPARE}
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            legend = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            for name, filters in re.findall(r"ray_(\w+)(?:{([^}]*)})?", target["expr"]):
                assert legend | set(re.findall(r"(\w+)=", filters)) <= tags[name], panel["title"]
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(ids) == len(set(ids))
