"""A real Prometheus reads a Ray that has a sweep, and answers what the Grafana board asks."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from importlib import resources
from typing import Any

import pytest
import yaml
from watched import Told, record, report, tally_of

from distilbench.prepare.progress import _Gauges
from distilbench.progress.ray_metrics import RayMetrics

PROGRAM = shutil.which("prometheus")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(PROGRAM is None, reason="prometheus is not installed")]

BOARD = json.loads((resources.files("distilbench.progress") / "grafana.json").read_text())
TARGETS = [(panel["title"], target) for panel in BOARD["panels"] for target in panel["targets"]]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory, cluster: None) -> Iterator[str]:
    """Address of a Prometheus that reads the metrics port of this session's Ray every second, while a sweep runs there."""
    import ray

    folder = tmp_path_factory.mktemp("prometheus")
    (node,) = ray.nodes()
    target = f"{node['NodeManagerAddress']}:{node['MetricsExportPort']}"
    scrape = [{"job_name": "ray", "static_configs": [{"targets": [target]}]}]
    (folder / "prometheus.yml").write_text(
        yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": scrape})
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [str(PROGRAM), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log.txt").open("wb") as log:
        server = subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=log, stderr=log)
    watcher = Told(RayMetrics(tally_of(folder / "board-run", deadline=5e9)))
    watcher.stage("search")
    for number in (0, 1):
        watcher.started(number, {"output_dim": 32})
    watcher.progressed(0, report(120, rung=1, objective=-0.75, dev_score=79.25))
    watcher.finished(record(3, objective=1.5))
    gauges = _Gauges("encode", 100, "sentences")
    gauges.set(25, 5.0)
    try:
        deadline = time.monotonic() + 60
        while not values(f"http://{address}", 'ray_distilbench_trial_dev{run="board-run"}'):
            assert server.poll() is None, (folder / "log.txt").read_text()
            assert time.monotonic() < deadline, "Prometheus has nothing of the sweep"
            gauges.set(25, 5.0)
            time.sleep(1)
        yield f"http://{address}"
    finally:
        watcher.close()
        server.kill()
        server.wait()


def ask(address: str, what: str, **given: str) -> Any:
    try:
        answer = urllib.request.urlopen(f"{address}/api/v1/{what}?{urllib.parse.urlencode(given)}", timeout=10)
    except OSError:
        return []
    told = json.load(answer)
    assert told["status"] == "success"
    return told["data"]


def values(address: str, query: str) -> list[tuple[dict[str, str], float]]:
    found = ask(address, "query", query=query)
    return [(r["metric"], float(r["value"][1])) for r in found["result"]] if found else []


@pytest.mark.timeout(180)
def test_it_answers_every_query_of_the_board(prometheus: str) -> None:
    empty = []
    for title, target in TARGETS:
        for choice in ("board-run", ".*"):
            query = target["expr"].replace("$run", choice).replace("$method", ".*")
            assert "$" not in query
            found = values(prometheus, query)
            if not found:
                empty.append((title, query))
            for metric, _ in found:
                assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= metric.keys(), title
    assert empty == []


@pytest.mark.timeout(180)
def test_it_has_the_values_of_the_sweep(prometheus: str) -> None:
    of = '{run="board-run",method="mcr2"}'
    assert [v for _, v in values(prometheus, f"ray_distilbench_sweep_wanted_trials{of}")] == [24]
    steps = {m["trial"]: v for m, v in values(prometheus, f"ray_distilbench_trial_step{of}")}
    assert steps == {"0": 120, "1": 0}
    assert [(m["group"], v) for m, v in values(prometheus, f"ray_distilbench_sweep_best_dev{of}")] == [
        ("128 bytes", 81.5)
    ]
    (stage,) = values(prometheus, f"ray_distilbench_sweep_stage{of} == 1")
    assert stage[0]["stage"] == "search"


@pytest.mark.timeout(180)
def test_it_answers_what_the_boards_lists_are_made_of(prometheus: str) -> None:
    for variable in BOARD["templating"]["list"][1:]:
        (asked,) = re.findall(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
        found = ask(prometheus, f"label/{asked[1]}/values", **{"match[]": asked[0]})
        assert {"run": "board-run", "method": "mcr2"}[variable["name"]] in found
