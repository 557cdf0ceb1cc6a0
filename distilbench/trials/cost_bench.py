"""Measures what each kind of student of a search costs, before any trial.

For each kind an untrained student is made, saved as a trained one would be, and timed. A head on the teacher takes as long as
the teacher, whose vectors it reads.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from distilbench.encoders.encoder import EncoderSpec
from distilbench.evaluation.cost import CostBench, shape_of
from distilbench.methods import get_method
from distilbench.methods.method import Method
from distilbench.prepare.prepared import Prepared
from distilbench.records import EncoderCost
from distilbench.storage.store import ArtifactStore
from distilbench.trials.costs import kind_key
from distilbench.trials.rung_training import build_method
from distilbench.trials.scoring import TEACHER

FLOAT32 = 4
UNTRAINED: dict[str, Any] = {"projection_start": "random", "map_start": "random", "bits": None, "codebooks": 0}
"""Hyper-parameters that take long to start from, and change nothing of what a student costs."""


class Kind(NamedTuple):
    """A method with hyper-parameters of which one student of the kind is made; `key` is what costs are kept under."""

    key: str
    method: str
    params: dict[str, Any]


def kind_of(method: str, params: Mapping[str, Any]) -> Kind:
    """Name the kind of a student with these hyper-parameters."""
    return Kind(kind_key(method, params), method, dict(params))


def measure_costs(
    kinds: Sequence[Kind], prepared: Prepared, sentences: Sequence[str], store: ArtifactStore, console: Console
) -> dict[str, EncoderCost]:
    """Measure the teacher, where it is an encoder, and each kind. `sentences` are the corpus's, by row."""
    bench = CostBench([sentences[int(row)] for row in prepared.selection.rows], store)
    costs: dict[str, EncoderCost] = {}
    if prepared.teacher.vectors is None:
        costs[TEACHER] = bench.cost(prepared.teacher)
    for kind in {kind.key: kind for kind in kinds}.values():
        method = _untrained(kind, prepared)
        if method.trains_encoder:
            costs[kind.key] = _of_student(method, bench)
        elif TEACHER in costs:
            costs[kind.key] = _with_head(costs[TEACHER], method)
    for key, cost in costs.items():
        if key == TEACHER or cost.latency_ms != costs.get(TEACHER, cost).latency_ms:  # a head's is the teacher's
            console.print(_line(key, cost), markup=False, highlight=False)
    return costs


def _line(key: str, cost: EncoderCost) -> str:
    name = key
    if key != TEACHER:
        method, costly = json.loads(key)
        name = ", ".join([method, *(f"{what} {value}" for what, value in costly.items())])
    return (
        f"{name}: {cost.latency_ms:.3g} ms a sentence in batches, {cost.p50_ms:.3g} ms on its own, "
        f"{cost.bytes_on_disk / 1e6:,.1f} MB"
    )


def _untrained(kind: Kind, prepared: Prepared) -> Method:
    fields = get_method(kind.method).params_type.model_fields
    cheap = {name: value for name, value in UNTRAINED.items() if name in fields}
    return build_method(kind.method, {**kind.params, **cheap}, prepared, 0, "cpu").eval()


def _of_student(method: Method, bench: CostBench) -> EncoderCost:
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
