"""What a kind of student costs: what decides it, and that it is measured once."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from distilbench.evaluation import cost
from distilbench.prepare.prepared import Prepared
from distilbench.records import EncoderCost
from distilbench.storage.store import ArtifactStore
from distilbench.trials.costs import cost_metrics, kind_key, measure_costs
from distilbench.trials.scoring import TEACHER

TRAINED: dict[str, Any] = {"lr": 0.01, "batch_size": 16, "output_dim": 8}


STUDENTS: list[tuple[str, dict[str, Any]]] = [
    ("hpd", TRAINED),
    ("contrastive", TRAINED),
    ("hpd", {**TRAINED, "output_dim": 4}),
    ("pca", {"output_dim": 8}),
    ("hpd", {**TRAINED, "table": "int8"}),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ArtifactStore:
    return ArtifactStore(tmp_path_factory.mktemp("costs"))


@pytest.fixture(scope="module")
def costs(store: ArtifactStore, static: Prepared, sentences: list[str]) -> dict[str, EncoderCost]:
    return measure_costs(STUDENTS, static, sentences, store, Console(quiet=True))


def test_a_kind_is_what_its_cost_depends_on() -> None:
    assert kind_key("hpd", TRAINED) == kind_key("hpd", {**TRAINED, "lr": 0.5, "student": None})
    assert kind_key("hpd", TRAINED) != kind_key("hpd", {**TRAINED, "student": "static"})
    assert kind_key("teacher", {}) == kind_key("faiss", {}) == TEACHER


def test_every_kind_has_its_cost(costs: dict[str, EncoderCost]) -> None:
    kinds = [kind_key(*student) for student in STUDENTS]
    assert set(costs) == {TEACHER, *kinds}
    hpd, contrastive, narrow, pca, int8 = (costs[kind] for kind in kinds)
    assert hpd == contrastive, "the files have the same shapes, so it was measured once"
    assert pca.latency_ms == costs[TEACHER].latency_ms and pca.bytes_on_disk > costs[TEACHER].bytes_on_disk
    assert narrow.bytes_on_disk < hpd.bytes_on_disk > int8.bytes_on_disk
    assert all(cost.latency_ms > 0 and cost.p95_ms >= cost.p50_ms > 0 for cost in costs.values())
    assert cost_metrics(hpd)["model_bytes"] == hpd.bytes_on_disk


def test_what_was_measured_is_found_again(
    costs: dict[str, EncoderCost],
    store: ArtifactStore,
    static: Prepared,
    sentences: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cost, "time_encoder", None)
    assert measure_costs(STUDENTS, static, sentences, store, Console(quiet=True)) == costs
