"""What kept predictions say of the measure that students are selected by: of dev for `apart`, of test for `ties`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from distilbench.errors import InputError
from distilbench.evaluation.bootstrap import Items
from distilbench.evaluation.predictions import Predictions, predictions_path
from distilbench.evaluation.sts import spearman
from distilbench.records import ScoreRecord
from distilbench.selection import Part, Selection

TOLERANCE = 1e-3
"""How far (x 100) what kept items give may be from the record: they are kept in float32, with seven digits."""
_PREFIXES = {
    "sts": "sts/",
    "retrieval": "retrieval/",
    "classification": "classification/",
    "pairs": "pair-probe/",
    "fidelity": "fidelity/",
}

Split = Literal["dev", "test"]


def kept_items(
    record: ScoreRecord, selection: Selection, split: Split, value: float | None, folders: Iterable[Path]
) -> Mapping[str, Items] | None:
    """The first kept items of a record that give its own score `value`; None where there are none."""
    for folder in folders:
        try:
            predictions = Predictions.load(predictions_path(folder, record.record_id))
        except InputError:
            continue
        items = items_of(predictions, selection, split)
        if items and value is not None and abs(whole(items) - value) < TOLERANCE:
            return items
    return None


def items_of(predictions: Predictions, selection: Selection, split: Split) -> dict[str, Items]:
    """What is kept of every set of the selection, with its weight; empty where a part has nothing."""
    dev = split == "dev"
    values = predictions.dev_item if dev else predictions.item
    similarities = predictions.dev_similarity if dev else predictions.similarity
    golds = predictions.dev_gold if dev else predictions.gold
    found: dict[str, Items] = {}
    for part in selection.parts:
        names = [name for name in (*values, *similarities) if _belongs(name, part, dev)]
        if not names:
            return {}
        for name in names:
            weight = part.weight / len(names)
            ranked = name in similarities
            found[name] = Items(weight, similarities[name], golds[name]) if ranked else Items(weight, values[name])
    return found


def _belongs(name: str, part: Part, dev: bool) -> bool:
    """Whether a set is one of the part's; STS groups have bare names, those of dev also measured ones."""
    if part.kind == "sts" and not dev:
        return "/" not in name
    if not name.startswith(_PREFIXES[part.kind]):
        return False
    return part.kind != "retrieval" or name.endswith(f"/{part.metric}")


def whole(items: Mapping[str, Items]) -> float:
    """The score x 100 that they give."""
    return math.fsum(i.weight * _figure(i) for i in items.values())


def _figure(items: Items) -> float:
    value_P = np.asarray(items.value_P, dtype=np.float64)
    return 100 * float(value_P.mean()) if items.gold_P is None else spearman(value_P, np.asarray(items.gold_P))


def same_items(one: Mapping[str, Items], other: Mapping[str, Items]) -> bool:
    """Whether both are of the same sets and pairs."""
    if one.keys() != other.keys():
        return False
    pairs = ((i, other[name]) for name, i in one.items())
    return all(
        len(a.value_P) == len(b.value_P)
        and (a.gold_P is None or (b.gold_P is not None and np.array_equal(a.gold_P, b.gold_P)))
        for a, b in pairs
    )
