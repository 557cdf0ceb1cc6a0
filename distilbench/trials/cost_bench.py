"""Measures what each kind of student of a search costs, once: what the store has is not measured again.

Of each kind a student is made, untrained, saved as a trained one would be, and timed (`evaluation.latency`). Students whose
saved files have the same shapes have the same cost, whatever method trains them. A head on the teacher takes as long as the
teacher, whose vectors it reads.
"""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from distilbench.encoders.encoder import EncoderSpec
from distilbench.evaluation import latency
from distilbench.evaluation.cost import encoder_size
from distilbench.methods import get_method
from distilbench.methods.method import Method
from distilbench.prepare.prepared import Prepared
from distilbench.records import EncoderCost
from distilbench.storage.files import file_sha256, fingerprint, write_json
from distilbench.storage.store import ArtifactStore
from distilbench.trials.costs import COSTS, FILE, StudentCost, kind_key
from distilbench.trials.rung_training import build_method
from distilbench.trials.scoring import TEACHER

STEP_VERSION = 2
FLOAT32 = 4
UNTRAINED: dict[str, Any] = {"projection_start": "random", "map_start": "random", "bits": None, "codebooks": 0}
"""Hyper-parameters that take long to start from, and change nothing of what a student costs."""


class Kind(NamedTuple):
    """A method with hyper-parameters of which one student of the kind is made; `key` is what costs are kept under."""

    key: str
    method: str
    params: dict[str, Any]


def kind_of(method: str, params: Mapping[str, Any]) -> Kind:
    """The kind of a student with these hyper-parameters."""
    return Kind(kind_key(method, params), method, dict(params))


def measure_costs(
    kinds: Sequence[Kind],
    prepared: Prepared,
    sentences: Sequence[str],
    folder: Path,
    store: ArtifactStore,
    console: Console,
) -> dict[str, StudentCost]:
    """The cost of the teacher, where it is an encoder, and of each kind; kept in `folder`, the run's prepared one.

    `sentences` are the corpus's, by row. Nothing is measured of which the store has the cost.
    """
    rows = prepared.selection.rows
    chosen = rows[np.linspace(0, len(rows) - 1, min(latency.SENTENCES, len(rows))).astype(np.int64)]
    bench = _Bench([sentences[int(row)] for row in chosen], store)
    costs: dict[str, StudentCost] = {}
    if prepared.teacher.vectors is None:
        costs[TEACHER] = bench.of_encoder(prepared.teacher)
    for kind in {kind.key: kind for kind in kinds}.values():
        method = _untrained(kind, prepared)
        if method.trains_encoder:
            costs[kind.key] = bench.of_student(method)
        elif TEACHER in costs:
            costs[kind.key] = _with_head(costs[TEACHER], method)
    for key, cost in costs.items():
        if key == TEACHER or cost.latency_ms != costs.get(TEACHER, cost).latency_ms:  # a head's is the teacher's
            console.print(_told(key, cost), markup=False, highlight=False)
    write_json(folder / FILE, COSTS.dump_python(costs, mode="json"))
    return costs


def _told(key: str, cost: StudentCost) -> str:
    name = key
    if key != TEACHER:
        method, costly = json.loads(key)
        name = ", ".join([method, *(f"{what} {value}" for what, value in costly.items())])
    return (
        f"{name}: {cost.latency_ms:.3g} ms a sentence in batches, {cost.cost.p50_ms:.3g} ms on its own, "
        f"{cost.cost.bytes_on_disk / 1e6:,.1f} MB"
    )


def _untrained(kind: Kind, prepared: Prepared) -> Method:
    fields = get_method(kind.method).params_type.model_fields
    cheap = {name: value for name, value in UNTRAINED.items() if name in fields}
    return build_method(kind.method, {**kind.params, **cheap}, prepared, 0, "cpu").eval()


def _with_head(teacher: StudentCost, method: Method) -> StudentCost:
    """The teacher's cost, and the bytes of the layers after it."""
    head = getattr(method, "head", method)
    count = sum(p.numel() for p in head.parameters()) + sum(b.numel() for b in head.buffers())
    cost = teacher.cost
    more = {
        "bytes_on_disk": cost.bytes_on_disk + FLOAT32 * count,
        "parameters_without_embeddings": cost.parameters_without_embeddings + count,
    }
    return teacher.model_copy(update={"cost": cost.model_copy(update=more)})


class _Bench:
    """Measures encoders on the same sentences, each shape once."""

    def __init__(self, texts: Sequence[str], store: ArtifactStore) -> None:
        self.texts, self.store = texts, store
        self.machine = latency.this_processor()
        parts = {"machine": self.machine, "step_version": STEP_VERSION}

        def make(folder: Path, missing: list[str]) -> None:
            write_json(folder / FILE, {"seconds": latency.calm_reference_s()})

        calm = store.build("reference", parts, [FILE], make)
        self.reference_s = float(json.loads((calm / FILE).read_text())["seconds"])

    def of_student(self, method: Method) -> StudentCost:
        """Of a student as it is saved."""
        with tempfile.TemporaryDirectory(prefix="distilbench-") as name:
            folder = Path(name) / "student"
            method.export(folder)
            return self._measured(EncoderSpec(str(folder)), shape_of(folder))

    def of_encoder(self, spec: EncoderSpec) -> StudentCost:
        """Of an encoder as it is."""
        return self._measured(spec, spec.identity())

    def _measured(self, spec: EncoderSpec, what: Any) -> StudentCost:
        parts = {
            "machine": self.machine,
            "texts": fingerprint(list(self.texts)),
            "prompt": spec.prompt_before() or "",
            "encoder": what,
            "step_version": STEP_VERSION,
        }

        def make(to: Path, missing: list[str]) -> None:
            model = latency.load_on_cpu(spec)
            size = encoder_size(spec, model)
            took = latency.time_encoder(model, spec.prompt_before(), self.texts, self.reference_s)
            cost = EncoderCost(
                parameters_without_embeddings=size.parameters_without_embeddings,
                bytes_on_disk=size.bytes_on_disk,
                sentences_per_second_1=1000 / took.p50_ms,
                sentences_per_second_32=1000 / took.batched_ms,
                p50_ms=took.p50_ms,
                p95_ms=took.p95_ms,
                threads=1,
                device="cpu",
                timed_1=took.timed_single,
                timed_32=took.timed_batched,
            )
            write_json(to / FILE, StudentCost(latency_ms=took.batched_ms, cost=cost).model_dump(mode="json"))

        built = self.store.build("cost", parts, [FILE], make)
        return StudentCost.model_validate_json((built / FILE).read_bytes())


def shape_of(folder: Path) -> dict[str, Any]:
    """What decides the cost of a saved encoder: its files, of weights the shapes and types alone."""
    shape: dict[str, Any] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = str(path.relative_to(folder))
        if path.suffix == ".safetensors":
            shape[name] = _tensors(path)
        elif path.name == "tokenizer.json":
            shape[name] = file_sha256(path)
        elif path.suffix == ".json":
            shape[name] = path.stat().st_size
    return shape


def _tensors(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    return {name: [value["dtype"], value["shape"]] for name, value in header.items() if name != "__metadata__"}
