"""The values that trials are given: settings to try first, students and sizes in equal shares."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from distilbench.encoders.student import aliases
from distilbench.errors import InputError
from distilbench.search.space import SearchSpace
from distilbench.search.study import best_per_group, finished_trials, load_study, trial_params
from distilbench.storage.files import bound_config

WARM_START = "warm_start.json"
"""In a run's folder: the settings of an earlier search that it was given, since what is suggested depends on them."""


def starts_for(
    space: SearchSpace,
    trials: int,
    user_settings: Sequence[dict[str, Any]] = (),
    *,
    share_dimensions: bool = True,
) -> list[dict[str, Any]]:
    """The values that every trial is given.

    First the settings of the command (`user_settings`), then those of the space, then students and output dimensions, so that
    each has its share, and once each where nothing else is searched. Where trials compete within bytes, the settings of the
    command are followed by a trial of each number of bytes. With `share_dimensions` False (several objectives, of which the
    size is one) the sampler chooses all other dimensions, and students take turns at the numbers of bytes.
    """
    requested, own = _everywhere(space, user_settings), _everywhere(space, space.enqueue)
    students = space.students if "student" in space.parameters else []
    named: list[dict[str, Any]] = [{"student": student} for student in students] or [{}]
    sized: list[dict[str, Any]] = [{}]
    if "output_dim" in space.parameters:
        sizes = space.code_settings.values()
        if share_dimensions or space.is_grid:
            sized = [{"output_dim": d} for d in space.dimensions]
            codes = [{**student, **code} for code in sizes for student in named]
        else:
            codes = [{**student, **code} for student, code in zip(itertools.cycle(named), sizes, strict=False)]
        own = _each_size_first(space, own, requested, codes, of_each_student=share_dimensions)
    starts = [*requested, *own]
    pairs = [{**student, **d} for d in sized for student in named]
    if space.is_grid:
        return [*starts, *(pair for pair in pairs if pair not in starts)][:trials]
    if pairs == [{}]:
        return starts[:trials]
    share = [sum(all(start[k] == v for k, v in pair.items()) for start in starts) for pair in pairs]
    while len(starts) < trials:
        fewest = share.index(min(share))
        starts.append(dict(pairs[fewest]))
        share[fewest] += 1
    return starts[:trials]


def _everywhere(space: SearchSpace, settings: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each setting for every student that is searched and can have it (where it names one also for the same start with
    fewer tokens), and at every output dimension that is searched, unless it names one."""
    starts = []
    for setting in settings:
        found = [dict(setting)]
        if "student" in space.parameters:
            asked = [student for student in space.students if setting.get("student", student) in aliases(student)]
            named = [{**setting, "student": student} for student in asked]
            found = [s for s in named if s == setting or all(space.searched(n, s)[1].holds(v) for n, v in s.items())]
        if "output_dim" in space.parameters and "output_dim" not in setting:
            found = [{"output_dim": d, **one} for one in found for d in space.dimensions]
        starts += found
    return starts


def _each_size_first(
    space: SearchSpace,
    starts: list[dict[str, Any]],
    before: list[dict[str, Any]],
    codes: list[dict[str, Any]],
    of_each_student: bool,
) -> list[dict[str, Any]]:
    """`starts`, those first that begin a number of bytes which none `before` has (of a student, if `of_each_student`); then
    those of `codes` whose bytes no start has."""

    def size(start: Mapping[str, Any]) -> tuple[Any, int | None]:
        return of_each_student and start.get("student"), space.bytes_of(start)

    begun = {size(start) for start in before}
    first: list[dict[str, Any]] = []
    rest: list[dict[str, Any]] = []
    for start in starts:
        (rest if size(start)[1] is None or size(start) in begun else first).append(start)
        begun.add(size(start))
    return [*first, *(start for start in codes if size(start) not in begun), *rest]


def saved_settings(run: Path) -> list[dict[str, Any]]:
    """The settings of an earlier search that a run was given; [] where it was given none."""
    file = run / WARM_START
    return list(json.loads(file.read_text())) if file.exists() else []


def best_settings(source: Path, space: SearchSpace) -> list[dict[str, Any]]:
    """The settings of the best trial of each group of the run in `source`, as far as the space has them."""
    bound = bound_config(source)
    if bound is None or "method" not in bound:
        raise InputError(f"--warm-start {source}: no sweep's config.json in it; expected the folder of a sweep")
    if bound["method"] != space.method:
        raise InputError(f"--warm-start {source}: a sweep of {bound['method']}; expected one of {space.method}")
    best = best_per_group(finished_trials(load_study(source)))
    return [s for ranked in best.values() if (s := params_within(trial_params(ranked[0]), space))]


def params_within(params: dict[str, Any], space: SearchSpace) -> dict[str, Any]:
    """The parameters of a trial that the space searches, with values that it allows."""
    drawn = {**space.fixed, **space.defaults, **params}
    given = {name: space.searched(name, drawn)[1] for name in space.parameters if name in params}
    return {name: params[name] for name, r in given.items() if r.active(drawn) and r.holds(params[name])}
