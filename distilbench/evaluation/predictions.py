"""What a row said of every test item, kept beside its record: what a paired bootstrap resamples.

One file a record, `RUN/predictions/ID.npz`, of plain arrays. 15,000 STS pairs and 5,000 queries take 0.29 MB. The pairs of
the dev sets lie there too, under names of their own: students are chosen by those, and by no test item.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import StsSet
from distilbench.errors import InputError
from distilbench.storage.files import atomic_path

if TYPE_CHECKING:
    from distilbench.evaluation.selection import Measured

KINDS = ("similarity", "gold", "subset", "reciprocal_rank", "item", "dev_similarity", "dev_gold", "dev_item")
UNREADABLE = (
    *(OSError, ValueError, TypeError, LookupError, AttributeError, EOFError, MemoryError, RuntimeError),
    *(BadZipFile, zlib.error),
)
"""What NumPy raises of a damaged archive, or of a file that is none."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """What was said of every STS test group (P pairs, its subsets in the corpus's order) and every retrieval test set.

    `subset[group]` numbers each pair's subset by that order, as the subsets' scores in the record are ordered.
    `reciprocal_rank[set]` is 1 / rank of each query's first relevant document, 0 beyond rank 10: their mean is MRR@10.

    Similarities are float64, as they were scored, so that they give the record's very score: the cosines of a sentence
    with itself differ by 1e-16, and as float32, tied, they moved Spearman by 0.1 in a set of 40 pairs.
    """

    similarity: Mapping[str, NDArray[np.float64]]
    gold: Mapping[str, NDArray[np.float64]]
    subset: Mapping[str, NDArray[np.int16]]
    reciprocal_rank: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    item: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """By "TASK/SET/METRIC" the value of each test item, whose mean is that score: 1 for a sentence put into its class."""
    dev_similarity: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    """The cosines of every STS dev group, as `similarity`; empty in files of earlier versions, as is `dev_gold`."""
    dev_gold: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    dev_item: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """As `item`, of what students are selected by, where that is not STS; its cosines stand among `dev_similarity`."""

    def save(self, path: Path) -> None:
        """Write the file whole, or not at all."""
        arrays = {f"{kind}/{name}": array for kind in KINDS for name, array in getattr(self, kind).items()}
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    @staticmethod
    def load(path: Path) -> Predictions:
        """What `save` wrote."""
        arrays_by_kind: dict[str, dict[str, NDArray[Any]]] = {kind: {} for kind in KINDS}
        try:
            with np.load(path, allow_pickle=False) as arrays:
                for key in arrays.files:
                    kind, _, name = key.partition("/")
                    arrays_by_kind[kind][name] = _numbers(arrays[key])
        except UNREADABLE as error:
            raise InputError(f"{path}: not a file of predictions ({type(error).__name__}: {error})") from None
        for kinds in (KINDS[:3], KINDS[5:7]):
            lengths = [{name: len(array) for name, array in arrays_by_kind[kind].items()} for kind in kinds]
            if any(of_kind != lengths[0] for of_kind in lengths):
                raise InputError(f"{path}: expected {', '.join(kinds)} of the same pairs, got {lengths}")
        return Predictions(**arrays_by_kind)


def _numbers(array: NDArray[Any]) -> NDArray[Any]:
    if array.ndim != 1 or not len(array) or array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        raise ValueError(f"shape {array.shape}, type {array.dtype}: expected a row of finite numbers")
    return array


def sts_predictions(
    sets: Sequence[StsSet],
    similarities: Sequence[NDArray[np.float64]],
    reciprocal_rank: Mapping[str, NDArray[Any]],
    item: Mapping[str, NDArray[Any]] | None = None,
) -> Predictions:
    """The sets, with the cosines of each one's pairs; the retrieval test sets', and those of `item`."""
    members: dict[str, dict[str, list[int]]] = {"dev": {}, "test": {}}
    for i, s in enumerate(sets):
        members[s.split].setdefault(s.group, []).append(i)
    test, dev = members["test"], members["dev"]
    numbers = {g: itertools.chain(*([k] * len(sets[i].score_P) for k, i in enumerate(m))) for g, m in test.items()}
    return Predictions(
        {g: np.concatenate([similarities[i] for i in m]) for g, m in test.items()},
        {g: np.concatenate([sets[i].score_P for i in m]) for g, m in test.items()},
        {g: np.fromiter(n, dtype=np.int16) for g, n in numbers.items()},
        {name: np.asarray(r, dtype=np.float32) for name, r in reciprocal_rank.items()},
        {name: np.asarray(values, dtype=np.float32) for name, values in (item or {}).items()},
        {g: np.concatenate([similarities[i] for i in m]) for g, m in dev.items()},
        {g: np.concatenate([sets[i].score_P for i in m]) for g, m in dev.items()},
    )


def with_selection(predictions: Predictions, dev: Sequence[Measured], tested: Sequence[Measured]) -> Predictions:
    """The predictions with what a selection measured of the dev sets, and of held-out test sentences."""
    return replace(
        predictions,
        item={**predictions.item, **_items(tested)},
        similarity={**predictions.similarity, **_pairs(tested, "similarity")},
        gold={**predictions.gold, **_pairs(tested, "gold")},
        subset={
            **predictions.subset,
            **{name: np.zeros(len(gold_P), dtype=np.int16) for name, gold_P in _pairs(tested, "gold").items()},
        },
        dev_similarity={**predictions.dev_similarity, **_pairs(dev, "similarity")},
        dev_gold={**predictions.dev_gold, **_pairs(dev, "gold")},
        dev_item=_items(dev),
    )


def _items(measured: Sequence[Measured]) -> dict[str, NDArray[np.float32]]:
    return {m.name: m.item.astype(np.float32) for m in measured if m.item is not None}


def _pairs(measured: Sequence[Measured], side: str) -> dict[str, NDArray[np.float64]]:
    return {m.name: getattr(m, side) for m in measured if m.gold is not None}


def predictions_path(run: Path, record_id: str) -> Path:
    """Where the predictions of a record of `run` are kept."""
    name = f"{record_id[:24]}.npz"
    if any(c in name for c in "/\\\0"):
        raise InputError(f"record {record_id!r}: expected an id that can be a file name")
    return run / "predictions" / name
