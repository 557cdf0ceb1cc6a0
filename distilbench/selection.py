"""What students are selected by (`--select`): one measure of the dev sets, or a weighted mix of several.

    sts                     Spearman, the mean over the STS dev sets
    retrieval               nDCG@10, the mean over the retrieval dev sets; or another of its metrics by name, such as mrr@10
    fidelity                how much of the teacher's geometry is kept on held-out sentences, without a label
    retrieval=0.7,sts=0.3   a mix
    retrieval,documents=teacher   of the student's queries among documents that the teacher embeds

`evaluation.selection` computes it of an encoder's vectors; a leaderboard takes the same measure of the test sets.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from distilbench.choices import TaskKind
from distilbench.errors import InputError

Kind = Literal["sts", "retrieval", "fidelity"]
KINDS: tuple[Kind, ...] = get_args(Kind)
RETRIEVAL_METRICS = ("ndcg@10", "mrr@10", "map@100", "recall@1", "recall@10", "recall@100")
METRICS: dict[Kind, str] = {"sts": "spearman", "retrieval": RETRIEVAL_METRICS[0], "fidelity": "fidelity"}
"""The metric that a kind's name alone stands for, as in the records."""
TITLES = {
    "spearman": "Spearman",
    "ndcg@10": "nDCG@10",
    "mrr@10": "MRR@10",
    "map@100": "MAP@100",
    "recall@1": "Recall@1",
    "recall@10": "Recall@10",
    "recall@100": "Recall@100",
    "accuracy": "Accuracy",
    "fidelity": "Fidelity",
    "overlap@10": "Overlap@10",
    "pearson": "Pearson",
    "f1": "F1",
    "mix": "Mix",
}
"""How each metric is called where people read it.

`overlap@10` is the share of the teacher's first ten neighbours that are kept, `fidelity` the mean of that and Spearman's
correlation with its cosines, `mix` of several measures, with weights.
"""


@dataclass(frozen=True)
class Part:
    """One measure, and its share of the whole."""

    kind: Kind
    metric: str
    weight: float = 1.0

    @property
    def name(self) -> str:
        """How it is written: `retrieval`, or `mrr@10`."""
        return self.kind if self.metric == METRICS[self.kind] else self.metric

    @property
    def title(self) -> str:
        """What it is called on a page."""
        return "STS average" if self.kind == "sts" else TITLES[self.metric]


@dataclass(frozen=True)
class Selection:
    """A measure or a mix of several, whose weights sum to 1."""

    parts: tuple[Part, ...]
    asked: bool = field(default=False, compare=False)
    """Whether it was asked for, instead of taken since the data has it."""
    documents: Literal["student", "teacher"] = "student"
    """Who embeds the documents that a student's queries search."""

    @staticmethod
    def parse(text: str) -> Selection:
        """What is written as `--select`; an InputError if a name is not known or there twice, or a weight is not above 0."""
        named: dict[str, Part] = {}
        items = [item.strip() for item in text.split(",") if item.strip()]
        by_teacher = BY_TEACHER in items
        items = [item for item in items if item != BY_TEACHER]
        weighted = [item for item in items if "=" in item]
        if not items or (weighted and len(weighted) < len(items)):
            raise InputError(f"--select {text}: expected {EXPECTED}")
        for item in items:
            name, _, weight = item.partition("=")
            part = _part(text, name.strip().lower(), _weight(text, weight.strip()) if "=" in item else 1.0)
            if part.name in named:
                raise InputError(f"--select {text}: {part.name} is there twice; expected each measure once")
            named[part.name] = part
        if by_teacher and any(part.kind == "sts" for part in named.values()):
            raise InputError(f"--select {text}: sts has no documents; expected retrieval or fidelity with {BY_TEACHER}")
        total = math.fsum(part.weight for part in named.values())
        parts = tuple(replace(part, weight=part.weight / total) for part in named.values())
        return Selection(parts, asked=True, documents="teacher" if by_teacher else "student")

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of sets that it needs."""
        return tuple(dict.fromkeys(part.kind for part in self.parts))

    @property
    def tasks(self) -> tuple[TaskKind, ...]:
        """The kinds of labelled sets that it needs."""
        return tuple(kind for kind in self.kinds if kind != "fidelity")

    @property
    def by_teacher(self) -> bool:
        """Whether the documents that a student's queries search are the teacher's."""
        return self.documents == "teacher"

    @property
    def measure(self) -> Selection:
        """The same, whoever embeds the documents."""
        return replace(self, documents="student")

    @property
    def title(self) -> str:
        """What it is called on a page: `nDCG@10`, `0.7 nDCG@10 + 0.3 Spearman`, or `mean of nDCG@10 and Spearman`."""
        titles = [part.title for part in self.parts]
        if len(titles) == 1:
            return titles[0]
        if len({round(part.weight, 6) for part in self.parts}) == 1:
            return f"mean of {', '.join(titles[:-1])} and {titles[-1]}"
        return " + ".join(f"{part.weight:.2g} {part.title}" for part in self.parts)

    def __str__(self) -> str:
        single = [self.parts[0].name] if len(self.parts) == 1 else []
        items = single or [f"{part.name}={part.weight:.6g}" for part in self.parts]
        return ",".join([*items, *([BY_TEACHER] if self.by_teacher else [])])


def _part(text: str, name: str, weight: float) -> Part:
    for kind in KINDS:
        if name == kind:
            return Part(kind, METRICS[kind], weight)
    if name in RETRIEVAL_METRICS:
        return Part("retrieval", name, weight)
    raise InputError(f"--select {text}: {name!r} is no measure; expected {EXPECTED}")


def _weight(text: str, value: str) -> float:
    with contextlib.suppress(ValueError):
        if math.isfinite(weight := float(value)) and weight > 0:
            return weight
    raise InputError(f"--select {text}: the weight {value!r} is no number above 0; expected {EXPECTED}")


BY_TEACHER = "documents=teacher"
"""Written beside a measure: the student's queries search documents that the teacher embeds."""
EXPECTED = (
    f"one of {', '.join((*KINDS, *RETRIEVAL_METRICS))}, or several with their weights, such as retrieval=0.7,sts=0.3; with "
    f"{BY_TEACHER} beside it for queries that search the teacher's documents"
)
BY_RETRIEVAL = Selection((Part("retrieval", METRICS["retrieval"]),))
STS = Selection((Part("sts", METRICS["sts"]),))
"""What runs without another one were selected by."""
