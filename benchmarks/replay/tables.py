"""Tables of recorded trials: one Parquet file for a search space, a row for each setting and its values at every rung."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from distilbench.codes import CompetitionKey, competition_key
from distilbench.errors import InputError
from distilbench.methods import get_method
from distilbench.records import TrialRecord
from distilbench.search.space import SearchSpace
from distilbench.search.space_files import load_space, read_yaml

SCHEMA = pa.schema(
    [
        ("number", pa.int32()),
        ("seed", pa.int32()),
        ("state", pa.string()),
        ("reason", pa.string()),
        ("method", pa.string()),
        ("dim", pa.int32()),
        ("bytes", pa.int32()),
        ("steps", pa.int32()),
        ("params", pa.string()),
        ("rung", pa.list_(pa.int16())),
        ("step", pa.list_(pa.int32())),
        ("objective", pa.list_(pa.float32())),
        ("quality", pa.list_(pa.float32())),
        ("eligible", pa.list_(pa.bool_())),
        ("seconds", pa.list_(pa.float32())),
    ]
)
"""`params`: the searched ones as JSON; `objective` relative to PCA, `quality` the dev score itself; `seconds` of training."""


@dataclass
class Recorded:
    """One setting and what its training reported. The lists have an entry for each rung, the start (rung 0) included."""

    params: dict[str, Any]
    """All hyper-parameters."""
    searched: dict[str, Any]
    """Those that are searched."""
    rungs: list[dict[str, Any]]
    """As a worker reports them: rung, step, objective (None where it is not finite), eligible, metrics."""
    failed: str = ""
    """Why it came to no end."""
    group: CompetitionKey = field(init=False)

    def __post_init__(self) -> None:
        self.group = competition_key(self.params)

    @property
    def value(self) -> float:
        """The objective of its result: of the best rung at which the student had its final form; NaN where it has none."""
        last = self.rungs[-1:] if not self.failed else []
        return self.judged if any(r["eligible"] for r in self.rungs) else _highest(last)

    @property
    def judged(self) -> float:
        """The same of the rungs at which the student had its final form alone."""
        return _highest([r for r in self.rungs if r["eligible"]])


def _highest(rungs: Sequence[dict[str, Any]]) -> float:
    return max((float(v) for r in rungs if (v := r["objective"]) is not None), default=float("nan"))


@dataclass
class Table:
    """The recorded trials of a search space."""

    name: str
    space: SearchSpace
    settings: list[Recorded]

    @property
    def groups(self) -> list[CompetitionKey]:
        """What its trials compete within, with a setting that came to its end."""
        return sorted({s.group for s in self.settings if np.isfinite(s.value)})

    def values(self, group: CompetitionKey) -> list[float]:
        """The results of a group's settings, the best first."""
        return sorted((s.value for s in self.settings if s.group == group and np.isfinite(s.value)), reverse=True)


def write_table(path: Path, records: Sequence[TrialRecord], space_text: str, native: int, source: str) -> Table:
    """Write the records of a run, or of several over the same space, as a table.

    Raises:
        InputError: there are none.
    """
    if not records:
        raise InputError(f"{path}: no trials to write")
    space = _space(space_text, native)
    rows = [_row(record, space) for record in records]
    told = {"space": space_text, "native": str(native), "source": source}
    table = pa.Table.from_pylist(rows, schema=SCHEMA).replace_schema_metadata(told)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd", compression_level=19)
    return read_table(path)


def read_table(path: Path) -> Table:
    """Read a table.

    Raises:
        InputError: it is none.
    """
    try:
        read = pq.read_table(path)
        told = {key.decode(): value.decode() for key, value in (read.schema.metadata or {}).items()}
        space = _space(told["space"], int(told["native"]))
    except (OSError, KeyError, pa.ArrowInvalid) as error:
        raise InputError(f"{path}: no table of recorded trials: {error}") from None
    return Table(path.stem, space, [_recorded(row, space) for row in read.to_pylist()])


def _space(text: str, native: int) -> SearchSpace:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "space.yaml"
        file.write_text(text)
        content = read_yaml(file)
        method = content["method"]
        content.pop("paper_steps", None)  # tables of earlier versions have keys that are no more
        for entry in (content["budget"], *content["parameters"].values()):
            for key in ("paper", "resource", "fidelity"):
                entry.pop(key, None)
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        return load_space(file, method, get_method(method).params_type, native)


def _row(record: TrialRecord, space: SearchSpace) -> dict[str, Any]:
    values = {**space.fixed, **space.defaults, **record.params}
    active = {n: record.params[n] for n, r in space.parameters.items() if r.active(values)}
    return {
        "number": record.number,
        "seed": record.seed,
        "state": record.state,
        "reason": record.reason,
        "method": record.method,
        "dim": record.dim,
        "bytes": competition_key(record.params).bytes,
        "steps": max((rung.step for rung in record.rungs), default=0),
        "params": json.dumps(active),
        "rung": [rung.rung for rung in record.rungs],
        "step": [rung.step for rung in record.rungs],
        "objective": [rung.objective for rung in record.rungs],
        "quality": [rung.metrics.get("dev_quality", rung.dev) for rung in record.rungs],
        "eligible": [
            rung.rung == record.rungs[-1].rung if rung.eligible is None else rung.eligible for rung in record.rungs
        ],
        "seconds": [rung.metrics.get("rung_seconds") for rung in record.rungs],
    }


def _recorded(row: dict[str, Any], space: SearchSpace) -> Recorded:
    searched = json.loads(row["params"])
    rungs = [
        {
            "rung": rung,
            "step": step,
            "objective": None if objective is None or not np.isfinite(objective) else objective,
            "eligible": eligible,
            "metrics": {"dev_quality": quality},
        }
        for rung, step, objective, quality, eligible in zip(
            row["rung"], row["step"], row["objective"], row["quality"], row["eligible"], strict=True
        )
    ]
    failed = row["reason"] if row["state"] == "FAIL" else ""
    return Recorded({**space.fixed, **space.defaults, **searched}, searched, rungs, failed)
