"""Selection sets on disk: row numbers and the teacher's cosines as arrays, and what is needed to read them again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distilbench.data.corpus import ClassificationSet, PairSplit, PairTask
from distilbench.evaluation.selection import (
    DevSet,
    HeldOutSets,
    LabelledSets,
    PairTaskSets,
    SearchSet,
    SearchSets,
    SelectionSets,
    SetsOfKind,
    StsSets,
)
from distilbench.selection import Selection

Keep = Callable[[str, NDArray[Any]], object]
Take = Callable[[str], NDArray[Any]]


def described_sets(sets: SelectionSets, keep: Keep) -> dict[str, Any]:
    """What `sets_of` needs beside the arrays that are given to `keep`, JSON-able."""
    selection, described = sets.selection, [described_kind(of_kind, keep) for of_kind in sets.sets]
    return {"select": str(selection), "asked": selection.asked, "sets": described}


def sets_of(described: dict[str, Any], take: Take) -> SelectionSets:
    """The sets that were described, with the arrays that `take` gives."""
    selection = replace(Selection.parse(described["select"]), asked=described["asked"])
    return SelectionSets(selection, tuple(kind_of(one, take) for one in described["sets"]))


def described_kind(sets: SetsOfKind, keep: Keep) -> dict[str, Any]:
    """What `kind_of` needs beside the arrays that are given to `keep`, JSON-able."""
    kind = sets.kind
    if isinstance(sets, StsSets):
        for i, s in enumerate(sets.sets):
            keep(f"sts-{i}-rows", np.stack([s.left_P, s.right_P]))
            keep(f"sts-{i}-score", s.score_P)
        return {"kind": kind, "names": [s.name for s in sets.sets]}
    if isinstance(sets, SearchSets):
        for i, search in enumerate(sets.sets):
            keep(f"retrieval-{i}-queries", search.queries)
            keep(f"retrieval-{i}-documents", search.documents)
            keep(f"retrieval-{i}-counts", np.array([len(found) for found in search.relevant], dtype=np.int64))
            keep(f"retrieval-{i}-relevant", np.concatenate(search.relevant))
            if search.grades is not None:
                keep(f"retrieval-{i}-grades", np.concatenate(search.grades))
        return {"kind": kind, "names": [[s.name, s.grades is not None] for s in sets.sets]}
    if isinstance(sets, HeldOutSets):
        keep("fidelity-rows", sets.rows_N)
        keep("fidelity-near", sets.near_NK)
        keep("fidelity-pairs", np.stack([sets.left_P, sets.right_P]))
        keep("fidelity-cosine", sets.cosine_P)
        return {"kind": kind}
    if isinstance(sets, LabelledSets):
        for i, labelled in enumerate(sets.sets):
            keep(f"classification-{i}-texts", np.stack(labelled.texts))
            keep(f"classification-{i}-classes", labelled.class_N)
            keep(f"classification-{i}-train", labelled.split_N == "train")
        return {"kind": kind, "names": [[s.name, list(s.classes)] for s in sets.sets]}
    for i, task in enumerate(sets.tasks):
        for name, split in task.splits.items():
            keep(f"pairs-{i}-{name}-rows", np.stack([split.left_P, split.right_P]))
            keep(f"pairs-{i}-{name}-target", split.target_P)
    return {"kind": kind, "tasks": [{**vars(task), "splits": sorted(task.splits)} for task in sets.tasks]}


def kind_of(described: dict[str, Any], take: Take) -> SetsOfKind:
    """The sets of one kind that were described, with the arrays that `take` gives."""
    kind = described["kind"]
    if kind == "sts":
        numbered = enumerate(described["names"])
        return StsSets(tuple(_dev_set(take, i, name) for i, name in numbered))
    if kind == "retrieval":
        return SearchSets(tuple(_search(take, i, name, graded) for i, (name, graded) in enumerate(described["names"])))
    if kind == "fidelity":
        left_P, right_P = take("fidelity-pairs")
        return HeldOutSets(take("fidelity-rows"), take("fidelity-near"), left_P, right_P, take("fidelity-cosine"))
    if kind == "classification":
        return LabelledSets(tuple(_labelled(take, i, *named) for i, named in enumerate(described["names"])))
    return PairTaskSets(tuple(_pair_task(take, i, task) for i, task in enumerate(described["tasks"])))


def _dev_set(take: Take, i: int, name: str) -> DevSet:
    left_P, right_P = take(f"sts-{i}-rows")
    return DevSet(name, left_P, right_P, take(f"sts-{i}-score"))


def _search(take: Take, i: int, name: str, graded: bool) -> SearchSet:
    ends = np.cumsum(take(f"retrieval-{i}-counts"))[:-1]
    relevant = tuple(np.split(take(f"retrieval-{i}-relevant"), ends))
    grades = tuple(np.split(take(f"retrieval-{i}-grades"), ends)) if graded else None
    return SearchSet(name, take(f"retrieval-{i}-queries"), take(f"retrieval-{i}-documents"), relevant, grades)


def _labelled(take: Take, i: int, name: str, classes: list[str]) -> ClassificationSet:
    split_N = np.where(take(f"classification-{i}-train"), "train", "dev")
    texts, class_N = tuple(take(f"classification-{i}-texts")), take(f"classification-{i}-classes")
    return ClassificationSet(name, tuple(classes), texts, class_N, split_N)


def _pair_task(take: Take, i: int, described: dict[str, Any]) -> PairTask:
    splits = {}
    for name in described["splits"]:
        left_P, right_P = take(f"pairs-{i}-{name}-rows")
        splits[name] = PairSplit(left_P, right_P, take(f"pairs-{i}-{name}-target"))
    return PairTask(**{**described, "classes": tuple(described["classes"]), "splits": splits})
