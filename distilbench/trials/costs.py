"""What each kind of student of a search costs to keep and to embed with: measured before any trial (`trials.cost_bench`).

A kind is a student with the hyper-parameters that its cost depends on (`Method.costly`).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter

from distilbench.codes import FAISS_PEER
from distilbench.methods import get_method
from distilbench.records import EncoderCost
from distilbench.trials.scoring import TEACHER

FILE = "costs.json"
"""In a run's prepared folder: the cost of each kind."""


class StudentCost(BaseModel):
    """`latency_ms` is of a sentence in batches of 32, on one thread, its tokenizer included."""

    model_config = ConfigDict(frozen=True)

    latency_ms: float
    cost: EncoderCost

    def metrics(self) -> dict[str, float]:
        """What a trial's last rung has of it."""
        return {
            "latency_ms": self.latency_ms,
            "single_ms": self.cost.p50_ms,
            "model_bytes": float(self.cost.bytes_on_disk),
        }

    def objectives(self) -> dict[str, float]:
        """What a student has in the objectives of that name."""
        return {"latency": self.latency_ms, "model_bytes": float(self.cost.bytes_on_disk)}


COSTS: TypeAdapter[dict[str, StudentCost]] = TypeAdapter(dict[str, StudentCost])


def kind_key(method: str, params: Mapping[str, Any]) -> str:
    """What the cost of a student with these hyper-parameters is kept under; the teacher has none."""
    if method in (TEACHER, FAISS_PEER):
        return TEACHER
    costly = {name: params[name] for name in get_method(method).costly if params.get(name) is not None}
    return json.dumps([method, costly], sort_keys=True)


def read_costs(prepared_folder: Path) -> dict[str, StudentCost]:
    """The costs of a run's kinds of students; {} where none were measured."""
    file = prepared_folder / FILE
    return _read(file, file.stat().st_mtime_ns) if file.exists() else {}


@functools.lru_cache(maxsize=1)
def _read(file: Path, written: int) -> dict[str, StudentCost]:
    return COSTS.validate_json(file.read_bytes())
