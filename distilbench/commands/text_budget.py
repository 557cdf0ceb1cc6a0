"""How much text a sweep reads within a time budget: as much as the teacher encodes in a part of it."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import numpy as np
from rich.console import Console

from distilbench.data.corpus import Corpus
from distilbench.encoders.encoder import default_device
from distilbench.machine import torch_threads
from distilbench.prepare.encode import CorpusEncoding
from distilbench.progress.console import duration
from distilbench.settings.sweep import SweepSettings

SHARE = 0.2
"""The part of the budget in which the teacher encodes."""
LEAST = {"max_sentences": 2_000, "max_pairs": 1_000, "max_documents": 1_000}
"""Options that limit text, with the fewest that a budget brings them down to."""
KEY = "text_within_budget"
"""In a run's config.json: the limits that its budget brought."""
SAMPLE = 2_048
"""Sentences at most on which the teacher's rate is measured."""


def _searched(corpus: Corpus) -> list[tuple[int, int]]:
    """Of each retrieval set, whatever its splits, how many documents it has, and how many of them answer a query."""
    answers: dict[str, set[int]] = {}
    documents: dict[str, set[int]] = {}
    for task in corpus.retrieval:
        documents.setdefault(task.name, set()).update(task.documents.tolist())
        answers.setdefault(task.name, set()).update(task.documents[np.concatenate(task.relevant)].tolist())
    return [(len(documents[name]), len(found)) for name, found in answers.items()]


def _kept(sets: Sequence[tuple[int, int]], most: int) -> list[int]:
    """At most so many documents of each set are read: a sample for each split, and what answers the queries of both."""
    return [min(count, most + answers) for count, answers in sets]


def limits_within_budget(settings: SweepSettings, corpus: Corpus, console: Console) -> dict[str, int]:
    """Lower limits of text, by option, of which the teacher encodes all in `SHARE` of the time budget; {} where all that
    `corpus` has can be, and on a GPU or a cluster, which encode it in minutes.

    Training text goes first, then documents. An option that the user gave stays as it is.
    """
    free = {name: least for name, least in LEAST.items() if name not in settings.model_fields_set}
    if settings.time_budget is None or settings.given is not None or not free:
        return {}
    if settings.address not in (None, "local") or settings.grow_to or default_device() != "cpu":
        return {}
    encoding = CorpusEncoding(
        settings.teacher_encoder, settings.artifacts, "Teacher", backend=settings.backend, in_process=True
    )
    total = len(corpus.sentences)
    new = encoding.unknown(corpus.text)
    if not new:
        return {}
    places = np.random.default_rng(0).permutation(total)[:SAMPLE]
    with torch_threads(settings.cpus, most=True):
        rate = encoding.rate([corpus.sentences[int(place)] for place in places])
    allowed = total - new + int(rate * SHARE * settings.time_budget)
    if total <= allowed:
        return {}
    rest, sets = len(corpus.scored_rows), _searched(corpus)
    pairs = max(map(len, (corpus.pairs_P2, corpus.judged_P2, corpus.triplets_T3)))
    used = {
        "max_sentences": len(corpus.train),
        "max_pairs": pairs,
        "max_documents": max((count for count, _ in sets), default=0),
    }
    used = {name: min(getattr(settings, name) or count, count) for name, count in used.items()}
    texts = max(0, allowed - rest)
    most = {"max_sentences": texts // 2 if pairs else texts, "max_pairs": texts // 4}
    if allowed < rest and sets and "max_documents" in free:
        counts = range(LEAST["max_documents"], used["max_documents"] + 1)
        others = rest - sum(_kept(sets, used["max_documents"]))
        fitting = bisect.bisect_right(counts, allowed - others, key=lambda most: sum(_kept(sets, most)))
        most["max_documents"] = counts[fitting - 1] if fitting else LEAST["max_documents"]
        rest = others + sum(_kept(sets, most["max_documents"]))
    lower = {name: max(free[name], value) for name, value in most.items() if name in free}
    lower = {name: value for name, value in lower.items() if value < used[name]}
    if rest > allowed:
        console.print(
            f"The sets to score on have {rest:,} texts, which take the teacher {duration(rest / rate)} of --time-budget "
            f"{duration(settings.time_budget)}; fewer sets, or --tasks, leave more of it to students.",
            markup=False,
        )
    if not lower:
        return {}
    told = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in lower.items())
    console.print(
        f"{told}: within --time-budget {duration(settings.time_budget)}, since the teacher encodes {rate:.3g} sentences a "
        f"second, and {new:,} are new to it. What you give yourself stays.",
        markup=False,
    )
    return lower
