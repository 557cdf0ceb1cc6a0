"""A corpus with copies of its training sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from distilbench.data.corpus import Corpus
from distilbench.prepare.augment.operation import same
from distilbench.prepare.augment.recipes import AugmentSettings
from distilbench.prepare.augment.recipes import operations as chosen_operations


def augmented_corpus(corpus: Corpus, operations: Sequence[str], seed: int) -> Corpus:
    """`corpus` and one changed copy of each training sentence for each of `operations`, made in this process.

    The copies come after the sentences of `corpus`, which keep their rows; the copies' rows are `augmented` and in no
    set. A copy is dropped where it is unchanged, a copy already made, or a sentence of `corpus`, such as an evaluation
    sentence; spaces and case do not tell it from one of those. A line of `found` has the numbers.

    Raises:
        InputError: an operation is not known, or what it needs is not installed.
    """
    chosen = chosen_operations(AugmentSettings(operations=tuple(operations)))
    if not chosen:
        return corpus
    for operation in chosen:
        operation.check()
    there = {same(sentence) for sentence in corpus.sentences}
    train = [corpus.sentences[row] for row in corpus.train.tolist()]
    copies: dict[str, None] = {}
    for operation in chosen:
        made = operation.load()(train, seed)
        copies |= dict.fromkeys(copy for copy in made if same(copy) and same(copy) not in there)
    rows = np.arange(len(corpus.sentences), len(corpus.sentences) + len(copies), dtype=np.int64)
    dropped = len(train) * len(chosen) - len(copies)
    found = (
        f"augmentation {','.join(operation.name for operation in chosen)}: {len(copies):,} sentences from "
        f"{len(train):,} ({dropped:,} unchanged or already there)"
    )
    return replace(
        corpus,
        sentences=(*corpus.sentences, *copies),
        augmented=np.concatenate([corpus.augmented, rows]),
        found=(*corpus.found, found),
    )
