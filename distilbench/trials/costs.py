"""What each kind of student of a search costs to keep and to embed with, as `trials.cost_bench` measured it.

A kind is a student with the hyper-parameters that its cost depends on (`Method.costly`).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from distilbench.codes import FAISS_PEER
from distilbench.methods import get_method
from distilbench.records import EncoderCost
from distilbench.storage.files import write_json
from distilbench.trials.scoring import TEACHER

FILE = "costs.json"
"""In a run's prepared folder: the cost of each kind."""
COSTS: TypeAdapter[dict[str, EncoderCost]] = TypeAdapter(dict[str, EncoderCost])


def kind_key(method: str, params: Mapping[str, Any]) -> str:
    """Name what the cost of a student with these hyper-parameters is kept under; the teacher has none."""
    if method in (TEACHER, FAISS_PEER):
        return TEACHER
    costly = {name: params[name] for name in get_method(method).costly if params.get(name) is not None}
    return json.dumps([method, costly], sort_keys=True)


def write_costs(prepared_folder: Path, costs: Mapping[str, EncoderCost]) -> None:
    """Keep the costs beside what trials read."""
    write_json(prepared_folder / FILE, COSTS.dump_python(dict(costs), mode="json"))


def read_costs(prepared_folder: Path) -> dict[str, EncoderCost]:
    """Read the costs of a run's kinds of students; {} where none were measured."""
    file = prepared_folder / FILE
    return _read(file, file.stat().st_mtime_ns) if file.exists() else {}


@functools.lru_cache(maxsize=1)
def _read(file: Path, written: int) -> dict[str, EncoderCost]:
    return COSTS.validate_json(file.read_bytes())


def cost_metrics(cost: EncoderCost) -> dict[str, float]:
    """Name what a trial's last rung has of a cost."""
    return {"latency_ms": cost.latency_ms, "single_ms": cost.p50_ms, "model_bytes": float(cost.bytes_on_disk)}


def cost_objectives(cost: EncoderCost) -> dict[str, float]:
    """Name what a student has in the objectives that follow from its cost."""
    return {"latency": cost.latency_ms, "model_bytes": float(cost.bytes_on_disk)}
