"""What a kind of student costs: what decides it, and that it is measured once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from distilbench.evaluation import cost
from distilbench.prepare.prepared import Prepared
from distilbench.storage.store import ArtifactStore
from distilbench.trials.cost_bench import Kind, kind_of, measure_costs
from distilbench.trials.costs import cost_metrics, kind_key, read_costs, write_costs
from distilbench.trials.scoring import TEACHER

TRAINED: dict[str, Any] = {"lr": 0.01, "batch_size": 16, "output_dim": 8}


@pytest.fixture(scope="module")
def measured(
    tmp_path_factory: pytest.TempPathFactory, static: Prepared, sentences: list[str]
) -> tuple[Path, Path, list[Kind]]:
    """A folder with costs, the store that they are in, and the kinds."""
    root = tmp_path_factory.mktemp("costs")
    pca = kind_of("pca", {"output_dim": 8})
    kinds = [
        kind_of("hpd", TRAINED),
        kind_of("contrastive", TRAINED),
        kind_of("hpd", {**TRAINED, "output_dim": 4}),
        pca,
    ]
    kinds.append(kind_of("hpd", {**TRAINED, "table": "int8"}))
    write_costs(root, measure_costs(kinds, static, sentences, ArtifactStore(root / "store"), Console(quiet=True)))
    return root, root / "store", kinds


def test_a_kind_is_what_its_cost_depends_on() -> None:
    assert kind_key("hpd", TRAINED) == kind_key("hpd", {**TRAINED, "lr": 0.5, "student": None})
    assert kind_key("hpd", TRAINED) != kind_key("hpd", {**TRAINED, "student": "static"})
    assert kind_key("teacher", {}) == kind_key("faiss", {}) == TEACHER


def test_every_kind_has_its_cost(measured: tuple[Path, Path, list[Kind]]) -> None:
    root, _, kinds = measured
    costs = read_costs(root)
    assert set(costs) == {TEACHER, *(kind.key for kind in kinds)}
    hpd, contrastive, narrow, pca, int8 = (costs[kind.key] for kind in kinds)
    assert hpd == contrastive, "the files have the same shapes, so it was measured once"
    assert pca.latency_ms == costs[TEACHER].latency_ms and pca.bytes_on_disk > costs[TEACHER].bytes_on_disk
    assert narrow.bytes_on_disk < hpd.bytes_on_disk > int8.bytes_on_disk
    assert all(cost.latency_ms > 0 and cost.p95_ms >= cost.p50_ms > 0 for cost in costs.values())
    assert cost_metrics(hpd)["model_bytes"] == hpd.bytes_on_disk


def test_what_was_measured_is_found_again(
    measured: tuple[Path, Path, list[Kind]],
    static: Prepared,
    sentences: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root, store, kinds = measured
    monkeypatch.setattr(cost, "time_encoder", None)
    again = measure_costs(kinds, static, sentences, ArtifactStore(store), Console(quiet=True))
    assert again == read_costs(root)
