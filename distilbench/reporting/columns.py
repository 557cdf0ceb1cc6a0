"""The score columns of a leaderboard: what each is called, and how it is read from a record.

A value is missing (None) where a record lacks one of the sets that it is a mean of: no two rows show means over other sets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from distilbench.progress.tally import finite
from distilbench.records import Score, ScoreRecord, selection_groups
from distilbench.selection import TITLES, Selection

TEST, DEV, STS_AVERAGE = "test", "dev", "sts_average"
"""The keys of the test and dev scores of what students are selected by, and of the mean over STS sets beside them."""
_PAIRS = ("pearson", "spearman", "accuracy", "f1")
_RETRIEVAL = ("mrr@10", "ndcg@10", "recall@100")
TASKS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "sts": ("Test STS", ("spearman",)),
    "classification": ("Classification", ("accuracy",)),
    "retrieval": ("Retrieval", _RETRIEVAL),
    "asymmetric": ("Asymmetric retrieval", _RETRIEVAL),
    "pairs": ("Pairs", _PAIRS),
    "pair-probe": ("Pair probe", _PAIRS),
    "fidelity": ("Fidelity", ("overlap@10", "spearman")),
}
"""By task the title of its columns, and the metrics that are columns: a metric named here is on every page and export."""
HEADLINES = ("mrr@10",)
"""Retrieval metrics whose mean over the sets leads on the page and is in the terminal; that of others is in reports alone."""

Key = tuple[str, str, str, str]
"""Task, set, split and metric of a score."""


class Value(NamedTuple):
    """A score x 100 and the ends of its bootstrap interval."""

    value: float | None
    low: float | None = None
    high: float | None = None


class Column(NamedTuple):
    """One score column: the mean over the scores `keys` with their `weights`. `dev`: of a dev split."""

    key: str
    group: str
    title: str
    help: str
    keys: tuple[Key, ...]
    weights: tuple[float, ...]
    dev: bool = False


Scores = Mapping[Key, Score]


def scores_of(record: ScoreRecord) -> Scores:
    """The scores of a record by what they are of; the subsets of sets are left out."""
    return {(s.task, s.set, s.split, s.metric): s for s in record.scores if s.variant == "all"}


def value_of(column: Column, scores: Scores) -> Value:
    """Read the column's value: a weighted mean."""
    parts = [(weight, scores[key]) for weight, key in zip(column.weights, column.keys, strict=True) if key in scores]
    return mean_of(parts) if len(parts) == len(column.keys) else Value(None)


def mean_of(parts: Sequence[tuple[float, Score | Value]]) -> Value:
    """The weighted mean of scores; its interval takes sets as independent."""
    known = [(weight, value, s.low, s.high) for weight, s in parts if (value := finite(s.value)) is not None]
    if not parts or len(known) < len(parts):
        return Value(None)
    mean = math.fsum(weight * value for weight, value, *_ in known)
    ends = [(w, value, low, high) for w, value, low, high in known if low is not None and high is not None]
    if len(ends) < len(parts):
        return Value(mean)
    down = math.sqrt(math.fsum((weight * (value - low)) ** 2 for weight, value, low, _ in ends))
    up = math.sqrt(math.fsum((weight * (high - value)) ** 2 for weight, value, _, high in ends))
    return Value(mean, mean - down, mean + up)


def columns_of(records: Sequence[ScoreRecord], selection: Selection) -> tuple[Column, ...]:
    """The columns that some record has a score of; first those of what students are selected by, on test and on dev."""
    present = list(dict.fromkeys(key for record in records for key in scores_of(record)))
    columns = [_selected(present, selection)]
    dev = _dev(present, selection)
    columns += [dev] if dev.keys else []
    sts = [key for key in present if (key[0], key[2], key[3]) == ("sts", "test", "spearman")]
    if sts and selection.kinds != ("sts",):
        columns.append(_average(STS_AVERAGE, sts))
    columns += [_single(f"sts:{key[1]}", key) for key in sts]
    for task in TASKS:
        columns += () if task == "sts" else _of_task(task, present)
    return tuple(columns)


def _selected(present: Iterable[Key], selection: Selection) -> Column:
    keys, weights = _mean_over(present, selection, "test")
    sets = ", ".join(dict.fromkeys(key[1] for key in keys)) or "no set"
    told = f"{selection.title} x 100 on the test sets: {sets}"
    return Column(TEST, "Test", selection.title, told, keys, weights)


def _dev(present: Sequence[Key], selection: Selection) -> Column:
    """What was measured of every student; without that, the mean over the dev sets of each part."""
    metric = selection.parts[0].metric if len(selection.parts) == 1 else "mix"
    whole: Key = ("selection", str(selection.measure), "dev", metric)
    keys, weights = ((whole,), (1.0,)) if whole in present else _mean_over(present, selection, "dev")
    names = ", ".join(key[1] for key in keys if key != whole)
    of_sets = f" ({names})" if names else ""
    told = f"{selection.title} x 100 on dev{of_sets}. Used to select the student: not a result"
    return Column(DEV, "Selection", "Dev", told, keys, weights, dev=True)


def _mean_over(present: Iterable[Key], selection: Selection, split: str) -> tuple[tuple[Key, ...], tuple[float, ...]]:
    """The scores of a split that a selection is the mean of, with their weights; nothing where a part has no set."""
    keys: list[Key] = []
    weights: list[float] = []
    for part in selection.parts:
        of_part = _averaged(present, part.kind, split, part.metric)
        if not of_part:
            return (), ()
        keys += of_part
        weights += [part.weight / len(of_part)] * len(of_part)
    return tuple(keys), tuple(weights)


def _averaged(present: Iterable[Key], task: str, split: str, metric: str) -> list[Key]:
    """The scores of a task's sets that a mean is of: of STS on dev those that select."""
    names = [name for t, name, s, m in present if (t, s, m) == (task, split, metric)]
    names = selection_groups(names) if (task, split) == ("sts", "dev") else names
    return [(task, name, split, metric) for name in names]


def dev_columns(records: Iterable[ScoreRecord], metrics: Mapping[str, str]) -> tuple[Column, ...]:
    """By task, with the metric that counts there, the mean over the dev sets that some record has a score of."""
    present = list(dict.fromkeys(key for record in records for key in scores_of(record)))
    columns = []
    for task, metric in metrics.items():
        if keys := tuple(_averaged(present, task, "dev", metric)):
            columns.append(Column(f"dev:{task}", "Selection", "Dev", "", keys, (1 / len(keys),) * len(keys), dev=True))
    return tuple(columns)


def _of_task(task: str, present: Sequence[Key]) -> Iterator[Column]:
    """A task's columns: of a set without a test score in any record those of its dev split."""
    tested = {name for t, name, split, _ in present if (t, split) == (task, "test")}
    names = dict.fromkeys(name for t, name, _, _ in present if t == task)
    metrics = TASKS[task][1]
    if task == "classification" and len(names) > 1 and tested == names.keys():
        yield _average(f"{task}_average", [(task, name, "test", metrics[0]) for name in names])
    for name in names:
        split = "test" if name in tested else "dev"
        for metric in metrics:
            if (task, name, split, metric) in present:
                column = f"{metric.replace('@', '')}:{name}" if task == "retrieval" else f"{task}:{name}:{metric}"
                yield _single(column + (":dev" if split == "dev" else ""), (task, name, split, metric))


def _average(column: str, keys: Sequence[Key]) -> Column:
    group, (metric, *_) = TASKS[keys[0][0]]
    told = f"Mean {TITLES[metric]} x 100 over {', '.join(key[1] for key in keys)}"
    return Column(column, group, "Average", told, tuple(keys), (1 / len(keys),) * len(keys))


def _single(column: str, key: Key) -> Column:
    task, name, split, metric = key
    group, metrics = TASKS[task]
    split_note = f" ({split})" if split == "dev" or task.startswith("pair") else ""
    no_test = "" if split == "test" else ". No row has a test score of this set"
    told = f"{name} {split}, {group.removeprefix('Test ')}, {TITLES[metric]} x 100{no_test}"
    title = TITLES[metric]
    _, _, source = name.partition(", ") if task == "fidelity" else ("", "", "")
    if source:  # of the held-out text, such as a language
        group, title = f"{TITLES[metric]} by source", source
    elif len(metrics) == 1:  # one column a set: the group is the task
        title = f"{name}{split_note}"
    else:
        group = f"{group}, {name}{split_note}" + (", exact" if task == "retrieval" else "")
    return Column(column, group, title, told, (key,), (1.0,), dev=split == "dev")
