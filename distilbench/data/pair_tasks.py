"""Labelled pair tasks of a data folder, by name: which files they are in, and how these write their labels (`FORMATS`).

A file's split has any of its usual names (`splits`); test is optional, and every file may be gzipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from distilbench.data.about import PairTaskFormat, about
from distilbench.data.corpus import CorpusBuilder, PairSplit, PairTask
from distilbench.data.readers import finite_number, one_of, read_tsv, sentence
from distilbench.data.sampling import fixed_sample
from distilbench.data.splits import SPLITS, split_in
from distilbench.errors import InputError

LabelledPair = tuple[str, str, float]
"""Two sentences, and their score or the number of their class."""
NLI_CLASSES = ("entailment", "neutral", "contradiction")
NO_GOLD_LABEL = "-"
"""The label that SNLI and MNLI write if annotators disagreed."""


def _scored(name: str, low: float) -> PairTaskFormat:
    columns = ("sentence1", "sentence2", "score")
    return PairTaskFormat(kind="regression", columns=columns, files=f"sts/{name}.{{}}.tsv", low=low, high=5.0)


def _binary(files: str, columns: tuple[str, str, str], classes: tuple[str, str], **more: Any) -> PairTaskFormat:
    # Class 1 is the one of belonging together in every binary task, so that a cosine can be compared with it.
    return PairTaskFormat(kind="binary", columns=columns, files=files, classes=classes, **more)


def _nli(train: str, dev: str, test: str) -> PairTaskFormat:
    # The whole of a training file where it is there, else the part of it.
    files = {"train": (f"nli/{train}.train.tsv", f"nli/{train}.train_part.tsv"), "dev": (dev,), "test": (test,)}
    columns = ("premise", "hypothesis", "gold_label")
    return PairTaskFormat(kind="three-class", columns=columns, files=files, classes=NLI_CLASSES)


_ENTAILED = ("not_entailment", "entailment")
FORMATS: Mapping[str, PairTaskFormat] = {
    "STSB": _scored("STSB", 0.0),
    "SICK": _scored("SICK", 1.0),
    "MRPC": _binary(
        "glue/MRPC.{}.tsv", ("sentence1", "sentence2", "label"), ("different", "equivalent"), labels=("0", "1")
    ),
    "QQP": _binary(
        "quora/pairs.tsv",
        ("question1", "question2", "is_duplicate"),
        ("different", "duplicate"),
        labels=("0", "1"),
        split_column="split",
    ),
    "RTE": _binary("glue/RTE.{}.tsv", ("sentence1", "sentence2", "label"), _ENTAILED),
    "QNLI": _binary("glue/QNLI.{}.tsv", ("question", "sentence", "label"), _ENTAILED),
    "MNLI": _nli("mnli", "nli/mnli.dev_matched.tsv", "nli/mnli.dev_mismatched*.tsv"),
    "SNLI": _nli("snli", "nli/snli.dev.tsv", "nli/snli.test.tsv"),
}


def formats_of(root: Path) -> Mapping[str, PairTaskFormat]:
    """The pair tasks that a data folder can have: those that everybody knows, and those of its `about.json`."""
    return {**FORMATS, **about(root).pair_tasks}


@dataclass
class LabelledSplit:
    """One split as its file (relative to the folder) has it; `skipped` pairs have no agreed label."""

    file: str
    pairs: list[LabelledPair] = field(default_factory=list)
    skipped: int = 0


@dataclass(frozen=True)
class LabelledPairs:
    """A task as read from a folder; `training` are the train pairs that are no pairs of its dev or test set."""

    name: str
    form: PairTaskFormat
    splits: Mapping[str, LabelledSplit]
    training: Sequence[LabelledPair]

    @property
    def evaluation(self) -> set[str]:
        """The sentences that its dev and test sets ask about."""
        return {text for name in self.splits if name != "train" for p in self.splits[name].pairs for text in p[:2]}


def read_pair_task(root: Path, name: str) -> LabelledPairs:
    """The task `name`, one of `formats_of` the folder."""
    form = formats_of(root)[name]
    splits: dict[str, LabelledSplit] = {}
    for split in SPLITS:
        path = form.path(root, split)
        if path is not None and not (form.split_column and splits):
            splits |= _read(root, path, form, split)
    for split in ("train", "dev"):
        if split not in splits:
            raise InputError(f"--data {root}: pair task {name} has no {split} set; expected {form.expected(split)}")
    held_out = {frozenset(p[:2]) for split, labelled in splits.items() if split != "train" for p in labelled.pairs}
    training = [p for p in splits["train"].pairs if frozenset(p[:2]) not in held_out]
    for split, labelled in splits.items():
        pairs = training if split == "train" else labelled.pairs
        distinct = len({target for *_, target in pairs})
        if distinct < 2:
            note = " that are not in its dev or test set" if split == "train" else ""
            raise InputError(
                f"{root / labelled.file}: {len(pairs)} {split} pairs of {name}{note}, with {distinct} distinct labels; "
                f"expected at least 2 of each"
            )
    return LabelledPairs(name, form, splits, training)


def _read(root: Path, path: Path, form: PairTaskFormat, split: str) -> dict[str, LabelledSplit]:
    """The splits in one file: `split`, or those that its split column names."""
    file, splits = path.relative_to(root).as_posix(), dict[str, LabelledSplit]()
    columns = [*form.columns, form.split_column] if form.split_column else form.columns
    if not form.split_column:
        splits[split] = LabelledSplit(file)
    for row, (one, two, label, *named) in read_tsv(path, columns):
        name = split_in(path, row, form.split_column, named[0]) if named else split
        chosen = splits.setdefault(name, LabelledSplit(file))
        if form.kind == "three-class" and label == NO_GOLD_LABEL:
            chosen.skipped += 1
            continue
        left, right = sentence(path, row, form.columns[0], one), sentence(path, row, form.columns[1], two)
        chosen.pairs.append((left, right, _target(path, row, form, label)))
    return splits


def _target(path: Path, row: int, form: PairTaskFormat, label: str) -> float:
    column = form.columns[2]
    if labels := form.labels or form.classes:
        return float(labels.index(one_of(path, row, column, label, labels)))
    score = finite_number(path, row, column, label)
    if not form.low <= score <= form.high:
        raise InputError(f"{path}, row {row}: column {column!r} is {label!r}; expected {form.low:g} to {form.high:g}")
    return score


def add_pair_tasks(
    tasks: Iterable[LabelledPairs], limit: int | None, evaluation: set[str], builder: CorpusBuilder
) -> None:
    """Add the tasks, with at most `limit` training pairs each (None: all).

    The sentences of these pairs may be trained on without their label too, unless `evaluation` has them.
    """
    text = builder.sentences
    # STS-B was drawn from the STS sets of other years: who trains on it should know how much of them it has seen.
    sts_pairs = {
        frozenset((text[one], text[two]))
        for sts in builder.sts
        for one, two in zip(sts.left_P.tolist(), sts.right_P.tolist(), strict=True)
    }
    for task in tasks:
        form, splits = task.form, dict[str, PairSplit]()
        for name, split in task.splits.items():
            pairs = fixed_sample(task.training, limit) if name == "train" else split.pairs
            left, right = builder.rows([p[0] for p in pairs]), builder.rows([p[1] for p in pairs])
            splits[name] = PairSplit(left, right, np.array([p[2] for p in pairs], dtype=np.float64))
            note = f"; {split.skipped} without an agreed label skipped" if split.skipped else ""
            if name == "train":
                builder.train_on([side for p in pairs for side in p[:2] if side not in evaluation])
                dropped = len(split.pairs) - len(task.training)
                note += (
                    f"; training on {len(pairs)} of {len(task.training)}, {dropped} left out (in its dev or test set)"
                )
                if in_sts := sum(frozenset(p[:2]) in sts_pairs for p in pairs):
                    note += f"; {in_sts} are pairs of STS dev or test sets"
            builder.found.append(f"{split.file}: {len(split.pairs)} pairs ({task.name}, {name}){note}")
        if "test" not in splits:
            builder.missing.append(f"pair task {task.name}, test ({form.expected('test')})")
        builder.pair_tasks.append(PairTask(task.name, form.kind, form.classes, form.low, form.high, splits))
