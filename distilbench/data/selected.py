"""The measure that students are selected by on a corpus: the one asked for, or the best that the data can serve.

Labelled dev sets come first: STS, then retrieval. Without any, sentences of the user's own text are held out (`fidelity`):
as many to select by as to report, and none of them is trained on.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from distilbench.data.corpus import Corpus, HeldOut, RetrievalSet, Rows
from distilbench.errors import InputError
from distilbench.selection import METRICS, Kind, Part, Selection

HELD_OUT = 2_000
"""Sentences held out for each of dev and test, at most a tenth of the training sentences."""
LEAST_HELD_OUT = 20
"""The fewest of which the first ten neighbours say something."""
EXPECTED: dict[Kind, str] = {
    "sts": "an STS dev set, such as sts/NAME.dev.tsv",
    "retrieval": "queries and judgements of a dev split (docs/data.md), or pairs to make them from",
    "fidelity": f"at least {10 * LEAST_HELD_OUT} sentences to train on",
}
_BECAUSE: dict[Kind, str] = {
    "sts": "the data has an STS dev set",
    "retrieval": "the data has no STS dev set, and a retrieval dev set",
    "fidelity": "the data has no labelled dev set of STS or retrieval",
}


def with_selection(corpus: Corpus, asked: Selection | None, where: str = "--select") -> tuple[Corpus, str]:
    """The corpus with what students are selected by, with sentences held out where that needs some; and why it is that:
    `where` says who asked."""
    if asked is not None:
        for kind in asked.kinds:
            if not has(corpus, kind):
                needed = "text to hold out" if kind == "fidelity" else f"{kind} set to select by"
                lacking = f"the data of {corpus.name} has no {needed}"
                raise InputError(f"{where} {asked}: {lacking}; expected {EXPECTED[kind]}")
        selection, why = asked, f"as {where} says"
    else:
        defaults: tuple[Kind, ...] = ("sts", "retrieval", "fidelity")
        served = [kind for kind in defaults if has(corpus, kind)]
        if not served:
            raise InputError(
                f"{corpus.name}: nothing to select students by; expected {', or '.join(EXPECTED[k] for k in defaults)}"
            )
        selection, why = Selection((Part(served[0], METRICS[served[0]]),)), _BECAUSE[served[0]]
    corpus = replace(corpus, selection=selection)
    if "retrieval" in selection.kinds:
        corpus = with_retrieval_tests(corpus)
    return (with_held_out(corpus) if "fidelity" in selection.kinds else corpus), why


def has(corpus: Corpus, kind: Kind) -> bool:
    """True if the corpus can serve a selection of that kind."""
    if kind == "sts":
        return any(s.split == "dev" for s in corpus.sts)
    if kind == "retrieval":
        return any(s.split == "dev" for s in corpus.retrieval)
    return len(_free(corpus)) >= 10 * LEAST_HELD_OUT


def with_retrieval_tests(corpus: Corpus) -> Corpus:
    """The corpus with every other query of a retrieval dev set kept for the report, where the set has no test queries."""
    tested = {s.name for s in corpus.retrieval if s.split == "test"}
    sets, lines = list[RetrievalSet](), list[str]()
    for s in corpus.retrieval:
        if s.split == "test" or s.name in tested or len(s.queries) < 2:
            sets.append(s)
            continue
        every = np.arange(len(s.queries))
        sets += [replace(s.of_queries(every[::2]), split="dev"), replace(s.of_queries(every[1::2]), split="test")]
        lines.append(
            f"{s.name} retrieval has no test queries: {len(s.queries) // 2:,} of its dev queries are kept for that"
        )
    return replace(corpus, retrieval=tuple(sets), found=(*corpus.found, *lines))


def with_held_out(corpus: Corpus) -> Corpus:
    """The corpus with some training sentences held out: no method reads them, nor the pairs and triplets that have one."""
    free = _free(corpus)
    count = min(HELD_OUT, len(free) // 10)
    drawn = np.random.default_rng(0).choice(free, 2 * count, replace=False)
    held = (HeldOut("dev", np.sort(drawn[:count])), HeldOut("test", np.sort(drawn[count:])))
    told = f"held out of the training text: {count:,} sentences to select by, {count:,} to report"
    return replace(corpus.without_training(drawn), held_out=held, found=(*corpus.found, told))


def _free(corpus: Corpus) -> Rows:
    """The training rows that no pair task learns from."""
    sides = [side for task in corpus.pair_tasks for side in task.columns]
    return np.setdiff1d(corpus.train, np.concatenate(sides)) if sides else corpus.train
