"""Triplets of a data folder: an anchor, a sentence that it entails, one that contradicts it.

nli/triplets.tsv[.gz]                    anchor positive negative [source]
"""

from __future__ import annotations

from pathlib import Path

from distilbench.data.corpus import CorpusBuilder
from distilbench.data.readers import column_names, either, read_tsv, sentence
from distilbench.data.sampling import fixed_sample
from distilbench.errors import InputError

COLUMNS = ("anchor", "positive", "negative")
TRAIN_SOURCES = ("train", "train_part")
"""Endings of the `source` of triplets to train on: the others were made of NLI dev and test files."""


def triplets_file(root: Path) -> Path | None:
    """The triplets of a data folder, None where it has none."""
    return either(root / "nli", "triplets.tsv")


def add_triplets_of_folder(root: Path, limit: int | None, evaluation: set[str], builder: CorpusBuilder) -> None:
    """Train on at most `limit` triplets of `root`, none with a sentence of `evaluation`; None: on all."""
    path = triplets_file(root)
    if path is None:
        raise InputError(
            f"--data {root}: the method learns from triplets; expected nli/triplets.tsv or nli/triplets.tsv.gz"
        )
    has_source = "source" in column_names(path)
    total, train = 0, list[tuple[str, str, str]]()
    for row, (anchor, positive, negative, *source) in read_tsv(path, (*COLUMNS, *(["source"] if has_source else []))):
        total += 1
        if not has_source or source[0].endswith(TRAIN_SOURCES):
            one, two = sentence(path, row, "anchor", anchor), sentence(path, row, "positive", positive)
            train.append((one, two, sentence(path, row, "negative", negative)))
    clean = [t for t in train if len(set(t)) == 3 and not evaluation.intersection(t)]
    if not clean:
        raise InputError(
            f"{path}: none of its {total} triplets can be trained on; expected three different sentences that no dev or "
            f"test set asks about" + (f", and a source ending in {' or '.join(TRAIN_SOURCES)}" if has_source else "")
        )
    used = fixed_sample(clean, limit)
    builder.train_triplets([t[0] for t in used], [t[1] for t in used], [t[2] for t in used])
    builder.found.append(
        f"nli/{path.name}: {total} triplets, {len(train)} of training files; training on {len(used)} of {len(clean)}, "
        f"{len(train) - len(clean)} left out (equal sentences, or text that a dev or test set asks about)"
    )
