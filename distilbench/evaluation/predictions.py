"""What a row said of every test and dev item, kept beside its record: what a paired bootstrap resamples.

One file a record, `RUN/predictions/ID.npz`, of plain arrays. 15,000 STS pairs and 5,000 queries take 0.28 MB. Students are
chosen by the dev items, and by no test item.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import StsSet
from distilbench.errors import InputError
from distilbench.evaluation.bootstrap import Items
from distilbench.storage.files import atomic_path

FIRST = "test/first/"


@dataclass(frozen=True, eq=False)
class Predictions:
    """By "TASK/SET/METRIC" what was said of the items of each set.

    STS groups ("sts/STS12/spearman", subsets in the corpus's order) and held-out sentences have cosines with gold scores; the
    others a value for each item, whose mean is the score: 1 for a sentence put into its class. Cosines are float64, as they
    were scored, so that they give the record's very score: those of a sentence with itself differ by 1e-16, and as float32,
    tied, they moved Spearman by 0.1 in a set of 40 pairs.

    `first` has by the name of a retrieval test set the positions of each query's first 10 documents, best first, Q x R (-1:
    nothing was found). Files of earlier versions have none.
    """

    test: Mapping[str, Items] = field(default_factory=dict)
    dev: Mapping[str, Items] = field(default_factory=dict)
    first: Mapping[str, NDArray[np.integer]] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write the file whole, or not at all."""
        arrays = dict(self._arrays())
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    def _arrays(self) -> Iterator[tuple[str, NDArray[Any]]]:
        for split, of_split in (("test", self.test), ("dev", self.dev)):
            for name, items in of_split.items():
                yield f"{split}/value/{name}", items.value_P
                if items.gold_P is not None:
                    yield f"{split}/gold/{name}", items.gold_P
        for name, first_QR in self.first.items():
            yield f"{FIRST}{name}", first_QR.astype(np.int32)

    @staticmethod
    def load(path: Path) -> Predictions:
        """What `save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as archive:
                arrays = {key: _numbers(archive[key], 2 if key.startswith(FIRST) else 1) for key in archive.files}
            first = {key.removeprefix(FIRST): array for key, array in arrays.items() if key.startswith(FIRST)}
            found = Predictions(_items(arrays, "test"), _items(arrays, "dev"), first)
            if strange := arrays.keys() - dict(found._arrays()).keys():
                raise ValueError(f"{min(strange)}: expected values, gold scores of these, and first documents")
        except Exception as error:  # whatever NumPy raises of a damaged archive, or of a file that is none
            raise InputError(f"{path}: not a file of predictions ({type(error).__name__}: {error})") from None
        return found


def _items(arrays: Mapping[str, NDArray[Any]], split: str) -> dict[str, Items]:
    found = {}
    for key, value_P in arrays.items():
        if key.startswith(f"{split}/value/"):
            gold_P = arrays.get(key.replace("/value/", "/gold/", 1))
            if gold_P is not None and len(gold_P) != len(value_P):
                raise ValueError(f"{key}: {len(value_P)} values and {len(gold_P)} gold scores, expected one of each")
            found[key.removeprefix(f"{split}/value/")] = Items(value_P, gold_P)
    return found


def _numbers(array: NDArray[Any], axes: int) -> NDArray[Any]:
    kinds = "iuf" if axes == 1 else "i"
    if array.ndim != axes or not array.size or array.dtype.kind not in kinds or not np.isfinite(array).all():
        raise ValueError(f"shape {array.shape}, type {array.dtype}: expected finite numbers along {axes} axes")
    return array


def sts_items(sets: Sequence[StsSet], similarities: Sequence[NDArray[np.float64]], split: str) -> dict[str, Items]:
    """The cosines and gold scores of every STS group of a split."""
    groups: dict[str, list[int]] = {}
    for i, s in enumerate(sets):
        if s.split == split:
            groups.setdefault(f"sts/{s.group}/spearman", []).append(i)
    return {
        name: Items(np.concatenate([similarities[i] for i in m]), np.concatenate([sets[i].score_P for i in m]))
        for name, m in groups.items()
    }


def value_items(values_P: NDArray[Any]) -> Items:
    """Items with a value each, whose mean counts, in the precision that is kept."""
    return Items(np.asarray(values_P, dtype=np.float32))


def predictions_path(run: Path, record_id: str) -> Path:
    """Where the predictions of a record of `run` are kept."""
    name = f"{record_id[:24]}.npz"
    if any(c in name for c in "/\\\0"):
        raise InputError(f"record {record_id!r}: expected an id that can be a file name")
    return run / "predictions" / name
