"""Sentence classification sets of a data folder, with the splits of SentEval's protocol.

MR, CR, SUBJ, MPQA       sc/NAME.tsv                   text label                       cross-validated
SST2, SST5               sc/NAME.{train,dev,test}.tsv  text label
TREC                     sc/TREC.{train,test}.tsv      text label
MRPC                     sc/MRPC.{train,test}.tsv      sentence1 sentence2 label
SICK-E                   sts/SICK.{train,dev,test}.tsv sentence1 sentence2 entailment

Every file may be gzipped. A label is any text; a set's classes are the labels of its training rows, sorted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from distilbench.data.corpus import CorpusBuilder
from distilbench.data.tables import either
from distilbench.data.tsv import read_tsv, sentence
from distilbench.errors import InputError

FOLDS = 10
WHOLE = ""
"""The split of a set that is cross-validated."""


@dataclass(frozen=True)
class _Format:
    """`file` has the split in place of {}; a pair has two columns of text."""

    file: str
    splits: tuple[str, ...]
    texts: tuple[str, ...] = ("text",)
    label: str = "label"


def _single(name: str) -> _Format:
    return _Format(f"sc/{name}.tsv", (WHOLE,))


_PAIR = ("sentence1", "sentence2")
FORMATS: Mapping[str, _Format] = {
    **{name: _single(name) for name in ("MR", "CR", "SUBJ", "MPQA")},
    **{name: _Format(f"sc/{name}.{{}}.tsv", ("train", "dev", "test")) for name in ("SST2", "SST5")},
    "TREC": _Format("sc/TREC.{}.tsv", ("train", "test")),
    "MRPC": _Format("sc/MRPC.{}.tsv", ("train", "test"), _PAIR),
    "SICK-E": _Format("sts/SICK.{}.tsv", ("train", "dev", "test"), _PAIR, "entailment"),
}


def read_classification(root: Path, builder: CorpusBuilder) -> None:
    """Add every set of `root` that is there as a whole; what is missing of the others is told.

    Raises:
        InputError: a file is malformed (file, row and value are named), has one class, a class that training lacks, or a
            class with fewer rows than there are folds.
    """
    for name, form in FORMATS.items():
        files = {split: either(root, form.file.format(split)) for split in form.splits}
        absent = [form.file.format(split) for split, path in files.items() if path is None]
        if absent:
            builder.missing += absent
            continue
        rows = [(split, path, *row) for split, path in files.items() if path for row in _rows(path, form)]
        first = form.splits[0]
        counts = Counter(label for split, _, _, _, label in rows if split == first)
        path = files[first]
        assert path is not None
        _check_classes(path, counts, folded=len(form.splits) < 3)
        classes = tuple(sorted(counts))
        for _, where, row, _, label in rows:
            if label not in counts:
                raise InputError(
                    f"{where}, row {row}: column {form.label!r} is {label!r}; expected one of {path.name}'s labels, "
                    f"{', '.join(classes)}"
                )
        columns = zip(*(texts for _, _, _, texts, _ in rows), strict=True)
        builder.add_classification(
            name, classes, list(columns), [classes.index(r[4]) for r in rows], [r[0] or "train" for r in rows]
        )
        sizes = Counter(split for split, *_ in rows)
        told = ", ".join(f"{n:,} {split or 'sentences (cross-validated)'}" for split, n in sizes.items())
        builder.found.append(f"{name}: {told}, {len(classes)} classes")


def _rows(path: Path, form: _Format) -> list[tuple[int, tuple[str, ...], str]]:
    """Row number, texts and label."""
    found = []
    for row, fields in read_tsv(path, (*form.texts, form.label)):
        texts = tuple(sentence(path, row, c, value) for c, value in zip(form.texts, fields, strict=False))
        label = fields[-1].strip()
        if not label:
            raise InputError(f"{path}, row {row}: column {form.label!r} is empty; expected a label")
        found.append((row, texts, label))
    return found


def _check_classes(path: Path, counts: Counter[str], *, folded: bool) -> None:
    if len(counts) < 2:
        raise InputError(f"{path}: {counts.total()} rows with {len(counts)} distinct labels; expected at least 2")
    label, fewest = counts.most_common()[-1]
    if folded and fewest < FOLDS:
        raise InputError(f"{path}: label {label!r} is of {fewest} rows; expected at least {FOLDS}, one for each fold")
