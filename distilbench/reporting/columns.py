"""The score columns of a leaderboard: what each is called, and how it is read from a record.

A value is missing (None) where a record lacks one of the sets that it is a mean of: no two rows show means over other sets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from distilbench.progress.tally import finite
from distilbench.records import Score, ScoreRecord, selection_groups
from distilbench.selection import TITLES, Part, Selection

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


class Mean(NamedTuple):
    """Several scores with their weights; each is the first of its `keys` that a record has."""

    keys: tuple[tuple[Key, ...], ...]
    weights: tuple[float, ...]


class Column(NamedTuple):
    """One score column: `mean` is what its values are of. `dev`: of a dev split."""

    key: str
    group: str
    title: str
    help: str
    mean: Mean
    dev: bool = False


Scores = Mapping[Key, Score]


def scores_of(record: ScoreRecord) -> Scores:
    """The scores of a record by what they are of; the subsets of sets are left out."""
    return {(s.task, s.set, s.split, s.metric): s for s in record.scores if s.variant == "all"}


def value_of(column: Column, scores: Scores) -> Value:
    """Read the column's value: a weighted mean. The interval takes sets as independent: their squares add up."""
    values = [next((scores[key] for key in keys if key in scores), None) for keys in column.mean.keys]
    parts = [(weight, s) for weight, s in zip(column.mean.weights, values, strict=True) if s is not None]
    if not parts or len(parts) < len(values) or any(finite(s.value) is None for _, s in parts):
        return Value(None)
    mean = math.fsum(weight * s.value for weight, s in parts)
    ends = [(weight, s.value, s.low, s.high) for weight, s in parts if s.low is not None and s.high is not None]
    if len(ends) < len(parts):
        return Value(mean)
    down = math.sqrt(math.fsum((weight * (value - low)) ** 2 for weight, value, low, _ in ends))
    up = math.sqrt(math.fsum((weight * (high - value)) ** 2 for weight, value, _, high in ends))
    return Value(mean, mean - down, mean + up)


def columns_of(records: Sequence[ScoreRecord], selection: Selection) -> tuple[Column, ...]:
    """The columns that some record has a score of; first those of what students are selected by, on test and on dev."""
    present = dict.fromkeys(key for record in records for key in scores_of(record))
    columns = [_selected(present, selection)]
    dev = _dev(present, selection)
    if dev.mean.keys:
        columns.append(dev)
    sts = [key for key in present if (key[0], key[2], key[3]) == ("sts", "test", "spearman")]
    if sts and selection.kinds != ("sts",):
        columns.append(_average(STS_AVERAGE, "sts", sts))
    columns += [Column(f"sts:{key[1]}", *_titles("sts", key), _mean_of([(key,)])) for key in sts]
    for task in TASKS:
        columns += () if task == "sts" else _of_task(task, list(present))
    return tuple(columns)


def _selected(present: Iterable[Key], selection: Selection) -> Column:
    mean = _mean_over([(part.weight, _tested(present, part)) for part in selection.parts])
    sets = ", ".join(dict.fromkeys(keys[0][1] for keys in mean.keys)) or "no set"
    return Column(TEST, "Test", selection.title, f"{selection.title} x 100 on the test sets: {sets}", mean)


def _dev(present: Iterable[Key], selection: Selection) -> Column:
    """What was measured of every student; without that, the mean over the dev sets of each part."""
    metric = selection.parts[0].metric if len(selection.parts) == 1 else "mix"
    whole: Key = ("selection", str(selection), "dev", metric)
    mean = _mean_of([(whole,)])
    if whole not in present:
        mean = _mean_over([(part.weight, _on_dev(present, part)) for part in selection.parts])
    names = ", ".join(keys[0][1] for keys in mean.keys if keys[0] != whole)
    of_sets = f" ({names})" if names else ""
    told = f"{selection.title} x 100 on dev{of_sets}. Used to select the student: not a result"
    return Column(DEV, "Selection", "Dev", told, mean, dev=True)


def _tested(present: Iterable[Key], part: Part) -> list[tuple[Key, ...]]:
    """The test scores of a part."""
    return [(key,) for key in present if (key[0], key[2], key[3]) == (part.kind, "test", part.metric)]


def _on_dev(present: Iterable[Key], part: Part) -> list[tuple[Key, ...]]:
    names = [name for task, name, split, m in present if (task, split, m) == (part.kind, "dev", part.metric)]
    return [((part.kind, n, "dev", part.metric),) for n in (selection_groups(names) if part.kind == "sts" else names)]


def _mean_over(parts: Sequence[tuple[float, Sequence[tuple[Key, ...]]]]) -> Mean:
    """The weighted mean of the means of several parts; nothing where a part has no set."""
    if not all(keys for _, keys in parts):
        return Mean((), ())
    weights = [weight / len(keys) for weight, keys in parts for _ in keys]
    return Mean(tuple(key for _, keys in parts for key in keys), tuple(weights))


def _mean_of(keys: Sequence[tuple[Key, ...]]) -> Mean:
    return _mean_over([(1.0, keys)])


def _of_task(task: str, present: Sequence[Key]) -> Iterator[Column]:
    """A task's columns: of a set without a test score in any record those of its dev split."""
    tested = {name for t, name, split, _ in present if (t, split) == (task, "test")}
    names = dict.fromkeys(name for t, name, _, _ in present if t == task)
    metrics = TASKS[task][1]
    if task == "classification" and len(names) > 1 and tested == names.keys():
        yield _average(f"{task}_average", task, [(task, name, "test", metrics[0]) for name in names])
    for name in names:
        split = "test" if name in tested else "dev"
        for metric in metrics:
            key = task, name, split, metric
            if key in present:
                column = f"{metric.replace('@', '')}:{name}" if task == "retrieval" else f"{task}:{name}:{metric}"
                suffix = ":dev" if split == "dev" else ""
                yield Column(column + suffix, *_titles(task, key), _mean_of([(key,)]), dev=split == "dev")


def _average(key: str, task: str, keys: Sequence[Key]) -> Column:
    group, (metric, *_) = TASKS[task]
    told = f"Mean {TITLES[metric]} x 100 over {', '.join(key[1] for key in keys)}"
    return Column(key, group, "Average", told, _mean_of([(key,) for key in keys]))


def _titles(task: str, key: Key) -> tuple[str, str, str]:
    """The group, title and help of the column of one score."""
    (group, metrics), (_, name, split, metric) = TASKS[task], key
    split_note = f" ({split})" if split == "dev" or task.startswith("pair") else ""
    no_test = "" if split == "test" else ". No row has a test score of this set"
    told = f"{name} {split}, {group.removeprefix('Test ')}, {TITLES[metric]} x 100{no_test}"
    if len(metrics) == 1:  # one column a set: the group is the task
        return group, f"{name}{split_note}", told
    return f"{group}, {name}{split_note}" + (", exact" if task == "retrieval" else ""), TITLES[metric], told
