"""What the figures of one search share: its completed trials, and the hyper-parameters that differ between them.

Objectives of different output dimensions do not compare, so trials are in groups, one for each method and dimension; where
they are trained for a code, one for each method and number of bytes per vector.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from distilbench.codes import stored_bytes
from distilbench.progress.tally import finite
from distilbench.records import ScoreRecord, TrialRecord
from distilbench.reporting.table import unique_trials
from distilbench.reporting.ticks import logarithmic

GROUPED = "output_dim"
"""The hyper-parameter that a group of one dimension has in common, so that it is none to compare within one."""
_ABSENT = object()
_LARGEST = 1e100
_DEPTH, _SHORTER = 4, 3
T = TypeVar("T")
Within = Literal["output dimension", "number of bytes"]


class Parameter(NamedTuple):
    """A searched hyper-parameter. `values` are parallel to the trials, None where a trial does not have it.

    Of one with `categories` (texts, switches, mixtures) a value is the category's position; of numbers there are none.
    `log`: the numbers are for a logarithmic axis (`ticks.logarithmic`).
    """

    name: str
    values: tuple[float | None, ...]
    categories: tuple[str, ...]
    log: bool


class Searched(NamedTuple):
    """Completed trials in order of number; `group` is each one's position in `groups`, `objective` is parallel too.

    `parameters` have at least two values, in the order of the first trial. One that depends on another (`when:`) has its
    default where it was not searched, as the trial had. `total`: trials of the search in any state. `within`: what the
    trials of a group have in common.
    """

    trials: tuple[TrialRecord, ...]
    objective: tuple[float, ...]
    group: tuple[int, ...]
    groups: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    total: int
    within: Within = "output dimension"


def searched_trials(records: Iterable[TrialRecord | ScoreRecord]) -> Searched:
    """The search of one run. Trainings that confirm a trial are no part of it; nor are score records.

    Raises:
        ValueError: trials of more than one run.
    """
    trials_of_search = search_trials(records)
    complete = [(t, value) for t in trials_of_search if t.state == "COMPLETE" and (value := _objective(t)) is not None]
    trials = [t for t, _ in complete]
    group, groups = trial_groups(trials)
    within = groups_within(trials)
    shared = GROUPED if within == "output dimension" else None
    names = dict.fromkeys(name for t in trials for name in t.params if name != shared)
    varied = [_parameter(name, [t.params.get(name, _ABSENT) for t in trials]) for name in names]
    return Searched(
        trials=tuple(trials),
        objective=tuple(value for _, value in complete),
        group=tuple(group),
        groups=tuple(groups),
        parameters=tuple(p for p in varied if p is not None),
        total=len(trials_of_search),
        within=within,
    )


def search_trials(records: Iterable[TrialRecord | ScoreRecord]) -> list[TrialRecord]:
    """The trials of the one run that is given, in order of number, without those that confirm another.

    Raises:
        ValueError: trials of more than one run.
    """
    trials = [t for t in unique_trials(records) if not t.confirms]
    runs = sorted({t.run for t in trials})
    if len(runs) > 1:
        raise ValueError(f"trials of {len(runs)} runs ({', '.join(runs[:3])}), expected those of one")
    return trials


def trial_groups(trials: Sequence[TrialRecord]) -> tuple[list[int], list[str]]:
    """Each trial's group, and what the groups are called, by method and rising dimension or bytes."""

    def key(t: TrialRecord) -> tuple[str, str, int]:
        return t.method, *t.group

    keys = sorted({key(t) for t in trials})
    place = {key: i for i, key in enumerate(keys)}
    several = len({method for method, *_ in keys}) > 1
    names = [
        (f"{method}, " if several else "") + (f"{student}, " if student else "") + f"{size:,} bytes"
        for method, student, size in keys
    ]
    return [place[key(t)] for t in trials], names


def groups_within(trials: Iterable[TrialRecord]) -> Within:
    """What the trials of a group have in common."""
    return "number of bytes" if any(stored_bytes(t.params) is not None for t in trials) else "output dimension"


def axis_start(objectives: Iterable[Sequence[float]]) -> float | None:
    """Where an axis of objectives starts so that trials that diverged leave room for the others; None: at the lowest.

    For each group: `_DEPTH` times the way from its best to its median, below the median; the lowest of these. Only where this
    makes the axis `_SHORTER` times shorter.
    """
    ranked = [sorted(group) for group in objectives if group]
    if not ranked:
        return None
    low, high = min(group[0] for group in ranked), max(group[-1] for group in ranked)
    start = min(group[len(group) // 2] - _DEPTH * (group[-1] - group[len(group) // 2]) for group in ranked)
    return start if high > start and high - low > _SHORTER * (high - start) else None


def every_kth(items: Sequence[T], most: int) -> Sequence[T]:
    """At most `most` of the items: every k-th from the first on."""
    return items[:: max(1, -(-len(items) // most))]


def _objective(trial: TrialRecord) -> float | None:
    return None if trial.objective is None else _number(trial.objective)


def _parameter(name: str, raw: Sequence[Any]) -> Parameter | None:
    """None where there are not two values."""
    present = [value for value in raw if value is not _ABSENT]
    if all(value == present[0] for value in present):
        return None
    if all(_is_number(value) for value in present):
        values = [None if value is _ABSENT else _number(value) for value in raw]
        numbers = [value for value in values if value is not None]
        return Parameter(name, tuple(values), (), logarithmic(numbers)) if len(set(numbers)) > 1 else None
    texts = [None if value is _ABSENT else _text(value) for value in raw]
    categories = sorted({text for text in texts if text is not None})
    place = {text: float(i) for i, text in enumerate(categories)}
    if len(categories) < 2:
        return None
    return Parameter(name, tuple(None if t is None else place[t] for t in texts), tuple(categories), False)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: int | float) -> float | None:
    """None for what no axis can place: NaN, infinity, 1e100 and more; 0 for what is below 1e-100."""
    try:
        number = finite(float(value))
    except OverflowError:  # a whole number of hundreds of digits
        return None
    if number is None or abs(number) >= _LARGEST:
        return None
    return number if abs(number) >= 1 / _LARGEST else 0.0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
