"""Sets that students are judged on, and labelled pairs, as JSON with their arrays apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import PairSplit, PairTask, RetrievalSet, StsSet
from distilbench.evaluation.selection import HeldOutSet, SelectionSets
from distilbench.selection import Part, Selection

Keep = Callable[[str, NDArray[Any]], object]
Take = Callable[[str], NDArray[Any]]

_SETS = (StsSet, RetrievalSet, HeldOutSet, PairSplit, PairTask)
CLASSES = {c.__name__: c for c in (*_SETS, SelectionSets, Selection, Part)}
"""The data classes that are written, of arrays, tuples, mappings and plain values."""


def to_json(value: Any, keep: Keep, name: str) -> Any:
    """What `from_json` reads again; every array goes to `keep` under a name that begins with `name`."""
    if isinstance(value, np.ndarray):
        keep(name, value)
        return {"array": name}
    if isinstance(value, tuple) and value and all(isinstance(part, np.ndarray) for part in value):
        keep(name, np.concatenate(value))
        keep(f"{name}-counts", np.array([len(part) for part in value], dtype=np.int64))
        return {"arrays": name}
    if isinstance(value, tuple):
        return [to_json(part, keep, f"{name}-{i}") for i, part in enumerate(value)]
    if isinstance(value, Mapping):
        return {"mapping": {key: to_json(part, keep, f"{name}-{key}") for key, part in value.items()}}
    if type(value).__name__ in CLASSES:
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {"class": type(value).__name__} | {f: to_json(part, keep, f"{name}-{f}") for f, part in fields.items()}
    return value


def from_json(described: Any, take: Take) -> Any:
    """The value that was described, with the arrays that `take` gives."""
    if isinstance(described, list):
        return tuple(from_json(part, take) for part in described)
    if not isinstance(described, dict):
        return described
    if "array" in described:
        return take(described["array"])
    if "arrays" in described:
        ends = np.cumsum(take(f"{described['arrays']}-counts"))[:-1]
        return tuple(np.split(take(described["arrays"]), ends))
    if "mapping" in described:
        return {key: from_json(part, take) for key, part in described["mapping"].items()}
    return CLASSES[described["class"]](**{f: from_json(part, take) for f, part in described.items() if f != "class"})
