"""Sentence classification sets of a data folder, with the splits of SentEval's protocol (`FORMATS`); and any other NAME with
sc/NAME.{train,dev,test}.tsv, of which dev is optional.

Every file may be gzipped. A label is any text; a set's classes are the labels of its training rows, sorted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from distilbench.data.corpus import ClassificationSet, CorpusBuilder
from distilbench.data.readers import either, files_of, one_of, read_tsv, sentence
from distilbench.data.splits import SPLITS, split_files
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


_PAIR = ("sentence1", "sentence2")
FORMATS: Mapping[str, _Format] = {
    **{name: _Format(f"sc/{name}.tsv", (WHOLE,)) for name in ("MR", "CR", "SUBJ", "MPQA")},
    **{name: _Format(f"sc/{name}.{{}}.tsv", ("train", "dev", "test")) for name in ("SST2", "SST5")},
    "TREC": _Format("sc/TREC.{}.tsv", ("train", "test")),
    "MRPC": _Format("sc/MRPC.{}.tsv", ("train", "test"), _PAIR),
    "SICK-E": _Format("sts/SICK.{}.tsv", ("train", "dev", "test"), _PAIR, "entailment"),
}


def read_classification(root: Path, builder: CorpusBuilder) -> None:
    """Add every set of `root` that is there as a whole; what is missing of the others is told."""
    for name, form in {**FORMATS, **_own_formats(root)}.items():
        whole = either(root, form.file) if form.splits == (WHOLE,) else None
        files = {WHOLE: whole} if whole else split_files(root, form.file) if "{}" in form.file else {}
        if absent := [form.file.format(split) for split in form.splits if split not in files]:
            builder.missing += absent
        else:
            _add_set(name, form, {split: files[split] for split in form.splits}, builder)


def _own_formats(root: Path) -> dict[str, _Format]:
    """The sets of a folder that nobody else knows: those of `sc/` that have a training file."""
    named = {path.name.removesuffix(".gz").removesuffix(".train.tsv") for path in files_of(root / "sc", "*.train.tsv")}
    formats = {}
    for name in sorted(named - FORMATS.keys()):
        file = f"sc/{name}.{{}}.tsv"
        splits = [split for split in SPLITS if split != "dev" or split in split_files(root, file)]
        formats[name] = _Format(file, tuple(splits))
    return formats


def _add_set(name: str, form: _Format, files: Mapping[str, Path], builder: CorpusBuilder) -> None:
    splits = {split: _examples(path, form) for split, path in files.items()}
    training = next(iter(files))
    counts = Counter(label for *_, label in splits[training])
    _check_classes(files[training], counts, folded="dev" not in splits)
    classes = tuple(sorted(counts))
    for split, examples in splits.items():
        if not examples:
            raise InputError(f"{files[split]}: no rows; expected the {split} set of {name}")
        for row, _, label in examples:
            one_of(files[split], row, form.label, label, classes)
    rows = [(split or "train", texts, label) for split, examples in splits.items() for _, texts, label in examples]
    columns = tuple(builder.rows(column) for column in zip(*(texts for _, texts, _ in rows), strict=True))
    class_N = np.array([classes.index(label) for *_, label in rows], dtype=np.int64)
    split_N = np.array([split for split, *_ in rows])
    builder.classification.append(ClassificationSet(name, classes, columns, class_N, split_N))
    sizes = (f"{len(examples):,} {split or 'sentences (cross-validated)'}" for split, examples in splits.items())
    builder.found.append(f"{name}: {', '.join(sizes)}, {len(classes)} classes")


def _examples(path: Path, form: _Format) -> list[tuple[int, tuple[str, ...], str]]:
    """The row in the file, the sentence or the pair, and the label as it is written, of each."""
    examples = []
    for row, fields in read_tsv(path, (*form.texts, form.label)):
        texts = tuple(sentence(path, row, c, value) for c, value in zip(form.texts, fields, strict=False))
        label = fields[-1].strip()
        if not label:
            raise InputError(f"{path}, row {row}: column {form.label!r} is empty; expected a label")
        examples.append((row, texts, label))
    return examples


def _check_classes(path: Path, counts: Counter[str], *, folded: bool) -> None:
    if len(counts) < 2:
        raise InputError(f"{path}: {counts.total()} rows with {len(counts)} distinct labels; expected at least 2")
    label, fewest = counts.most_common()[-1]
    if folded and fewest < FOLDS:
        raise InputError(f"{path}: label {label!r} is of {fewest} rows; expected at least {FOLDS}, one for each fold")
