"""What each kind of student of a search costs to keep and to embed with, measured before any trial.

A kind is a student with the hyper-parameters that its cost depends on (`Method.costly`). Of each an untrained student is
made, saved as a trained one would be, and timed. A head on the teacher takes as long as the teacher, whose vectors it reads.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from distilbench.codes import FAISS_PEER
from distilbench.encoders.encoder import EncoderSpec
from distilbench.methods import get_method
from distilbench.records import EncoderCost
from distilbench.storage.store import ArtifactStore
from distilbench.trials.rung_training import build_method
from distilbench.trials.scoring import BASELINES, TEACHER

if TYPE_CHECKING:
    from distilbench.evaluation.cost import CostBench
    from distilbench.methods.method import Method
    from distilbench.prepare.prepared import Prepared

FLOAT32 = 4
UNTRAINED: dict[str, Any] = {"projection_start": "random", "map_start": "random", "bits": None, "codebooks": 0}
"""Hyper-parameters that take long to start from, and change nothing of what a student costs."""


def kind_key(method: str, params: Mapping[str, Any]) -> str:
    """Name what the cost of a student with these hyper-parameters is kept under; the teacher has none."""
    if method in (TEACHER, FAISS_PEER):
        return TEACHER
    costly = {name: params[name] for name in get_method(method).costly if params.get(name) is not None}
    return json.dumps([method, costly], sort_keys=True)


def cost_metrics(cost: EncoderCost) -> dict[str, float]:
    """The metrics that a trial's last rung has of a cost."""
    return {"latency_ms": cost.latency_ms, "single_ms": cost.p50_ms, "model_bytes": float(cost.bytes_on_disk)}


def with_baselines(
    students: Iterable[tuple[str, dict[str, Any]]], dimensions: Iterable[int], width: int
) -> list[tuple[str, dict[str, Any]]]:
    """The baselines at those of the dimensions that a teacher of this width has, and the students."""
    known = [d for d in dimensions if d <= width]
    return [*((name, {"output_dim": d}) for name in BASELINES for d in known), *students]


def measure_costs(
    students: Iterable[tuple[str, dict[str, Any]]],
    prepared: Prepared,
    sentences: Sequence[str],
    store: ArtifactStore,
    console: Console,
) -> dict[str, EncoderCost]:
    """Measure the teacher, where it is an encoder, and each kind among `students` (methods with hyper-parameters).

    `sentences` are the corpus's, by row. What is read is a sample of what students are selected by: its queries, where it has
    queries, since somebody waits for these. Costs are by their `kind_key`.
    """
    from distilbench.evaluation.cost import CostBench

    asked = prepared.selection.asked_rows
    bench = CostBench([sentences[int(row)] for row in (asked if len(asked) else prepared.selection.rows)], store)
    costs: dict[str, EncoderCost] = {}
    if prepared.teacher.vectors is None:
        costs[TEACHER] = bench.cost(prepared.teacher)
    for key, (name, params) in {kind_key(*student): student for student in students}.items():
        fields = get_method(name).params_type.model_fields
        cheap = {field: value for field, value in UNTRAINED.items() if field in fields}
        method = build_method(name, {**params, **cheap}, prepared, 0, "cpu").eval()
        if method.trains_encoder:
            costs[key] = _of_student(method, bench)
        elif TEACHER in costs:
            costs[key] = _with_head(costs[TEACHER], method)
    for key, cost in costs.items():
        if key == TEACHER or cost.latency_ms != costs.get(TEACHER, cost).latency_ms:  # a head's is the teacher's
            console.print(_line(key, cost), markup=False, highlight=False)
    return costs


def _line(key: str, cost: EncoderCost) -> str:
    from distilbench.evaluation.cost import KNOWN_TO

    name = key
    if key != TEACHER:
        method, costly = json.loads(key)
        name = ", ".join([method, *(f"{what} {value}" for what, value in costly.items())])
    tokens = "" if cost.tokenising is None else f" ({cost.tokenising:.0%} of it the tokenizer's)"
    wide = cost.spread is not None and cost.spread >= KNOWN_TO
    spread = f" (times are known to {cost.spread:.0%} alone)" if wide else ""
    return (
        f"{name}: {cost.latency_ms:.3g} ms a sentence in batches{tokens}, {cost.p50_ms:.3g} ms on its own, "
        f"{cost.bytes_on_disk / 1e6:,.1f} MB{spread}"
    )


def _of_student(method: Method, bench: CostBench) -> EncoderCost:
    from distilbench.evaluation.cost import shape_of

    with tempfile.TemporaryDirectory(prefix="distilbench-") as name:
        folder = Path(name) / "student"
        method.export(folder)
        return bench.cost(EncoderSpec(str(folder)), shape_of(folder))


def _with_head(teacher: EncoderCost, method: Method) -> EncoderCost:
    """The teacher's cost, and the bytes of the layers after it."""
    head = getattr(method, "head", method)
    count = sum(p.numel() for p in head.parameters()) + sum(b.numel() for b in head.buffers())
    return teacher.model_copy(
        update={
            "bytes_on_disk": teacher.bytes_on_disk + FLOAT32 * count,
            "parameters_without_embeddings": teacher.parameters_without_embeddings + count,
        }
    )
