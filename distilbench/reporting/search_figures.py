"""The figures of one search: its trials as Optuna studies in memory, drawn by `optuna.visualization`."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import optuna
import pandas as pd
import plotly.graph_objects as go
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.trial import TrialState, create_trial

from distilbench.choices import QUALITY
from distilbench.progress.tally import finite
from distilbench.records import ScoreRecord, TrialRecord
from distilbench.reporting.drawing import LIGHT, Plot, doubling_ticks, frame, plain, plot_of, span
from distilbench.reporting.run_facts import unique_trials
from distilbench.search.objectives import COSTS, directions

LEAST_TRIALS = 10
"""Completed trials that importance needs."""
MOST_MARKS = 1000
"""Points of a figure's trace: a browser draws so many without a pause."""
MOST_TRIALS = 1000
"""Read for importance, spread over the search: Optuna copies all trials for each parameter."""
MOST_CURVES = 150
MOST_SIZES = len(LIGHT.hues)
DIVERGED = "Of the lowest tenth some may lie below the axis."


def search_plots(records: Iterable[TrialRecord | ScoreRecord]) -> tuple[dict[str, Plot], list[str]]:
    """The figures of one run's search by name, and why those that one may expect are not there.

    Trainings that confirm a trial with another seed are no part of it.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    trials = [t for t in unique_trials(records) if not t.confirms]
    complete = [t for t in trials if _objective(t) is not None]
    if not complete:
        return {}, []
    plots = [_history(complete), *_front(complete), _curves(trials)]
    absent = []
    if len(complete) < LEAST_TRIALS:
        absent = [f"The importance of hyper-parameters needs {LEAST_TRIALS} completed trials; here: {len(complete)}."]
    elif importance := _importance(complete):
        plots.append(importance)
    else:
        absent = ["Hyper-parameter importance was not computed: every trial has the same settings or objective."]
    return {plot.name: plot for plot in plots}, absent


def _history(complete: Sequence[TrialRecord]) -> Plot:
    """One study for each size of a vector: objectives of different sizes do not compare."""
    names = _size_names(complete)
    counted = Counter(names)
    sizes = [name for name, _ in counted.most_common(MOST_SIZES)]
    studies = []
    for size in sorted(sizes, key=names.index):
        study = optuna.create_study(study_name=plain(size), direction="maximize")
        own = [t for t, name in zip(complete, names, strict=True) if name == size]
        study.add_trials([create_trial(value=_objective(t)) for t in own])
        studies.append(study)
    figure = optuna.visualization.plot_optimization_history(studies)
    for place, study in enumerate(studies):
        marks, best = figure.data[3 * place : 3 * place + 2]
        marks.update(marker={"color": LIGHT.hues[place], "size": 6, "opacity": 0.5}, showlegend=False)
        best.update(line={"color": LIGHT.hues[place], "width": 2.2, "shape": "hv"}, name=study.study_name)
    figure.data = [trace for n, trace in enumerate(figure.data) if n % 3 < 2]
    frame(figure, "Completed trials of the size, in order", "Dev objective (selection)")
    figure.update_yaxes(range=span(sorted(_objective(t) or 0.0 for t in complete), ()))
    part = f" The {MOST_SIZES} sizes with the most trials are drawn." if len(counted) > MOST_SIZES else ""
    caption = f"Dev objective of the completed trials of each size, and the best so far. {DIVERGED}{part}"
    return plot_of("history", "What the search found", caption, _thinned(figure))


def _curves(trials: Sequence[TrialRecord]) -> Plot:
    """The rungs of the trials, those that were stopped in grey; of many some, and the best of each size."""
    drawable = [t for t in trials if t.state != "FAIL" and any(finite(rung.objective) is not None for rung in t.rungs)]
    names = _size_names(drawable)
    best = {name: t.number for t, name in sorted(zip(drawable, names, strict=True), key=lambda pair: _last(pair[0]))}
    strong, some = set(best.values()), _some(len(drawable), MOST_CURVES)
    drawn = [t for place, t in enumerate(drawable) if place in some or t.number in strong]
    study = optuna.create_study(direction="maximize")
    for t in drawn:
        values = {rung.step: v for rung in t.rungs if (v := finite(rung.objective)) is not None}
        study.add_trial(create_trial(state=TrialState.PRUNED, intermediate_values=values))
    figure = optuna.visualization.plot_intermediate_values(study)
    for t, trace in zip(drawn, figure.data, strict=True):
        colour = LIGHT.muted if t.state == "PRUNED" else LIGHT.hues[0]
        width, opacity = (2.6, 1.0) if t.number in strong else (0.8, 0.45)
        trace.update(name=f"Trial {t.number}", line={"color": colour, "width": width}, marker={"size": 4})
        trace.update(opacity=opacity)
    frame(figure, "Optimiser steps of the trial", "Dev objective (selection)")
    heights = sorted(v for trial in study.trials for v in trial.intermediate_values.values())
    figure.update_yaxes(range=span(heights, ()))
    part = f" Drawn: {len(drawn):,} of {len(drawable):,} trials." if len(drawn) < len(drawable) else ""
    caption = "Dev objective of the trials at each rung; grey ones were stopped. Strong: the best of each size."
    return plot_of("curves", "Learning curves", f"{caption} {DIVERGED}{part}", figure)


def _front(complete: Sequence[TrialRecord]) -> list[Plot]:
    """The front of a search with several objectives; none where all trials are equal in all but one."""
    valued = [t for t in complete if len(t.values) > 1]
    names = [name for name in (QUALITY, *COSTS) if all(finite(t.values.get(name)) is not None for t in valued)]
    names = [name for name in names if len({t.values[name] for t in valued}) > 1]
    if len(names) < 2 or QUALITY not in names:
        return []
    cost = next(name for name in names if name != QUALITY)
    study = optuna.create_study(directions=directions(names))
    study.add_trials([create_trial(values=[t.values[name] for name in names]) for t in valued])
    places = names.index(cost), names.index(QUALITY)
    titles = [COSTS[cost].capitalize(), "Dev quality (selection)"]
    figure = optuna.visualization.plot_pareto_front(
        study, target_names=titles, targets=lambda t: [t.values[p] for p in places]
    )
    others, front = figure.data
    others.marker = {"color": LIGHT.muted, "size": 6, "opacity": 0.5}
    front.marker = {"color": LIGHT.hues[0], "size": 11}
    frame(figure)
    if cost == "bytes":
        doubling_ticks(figure, [int(t.values[cost]) for t in valued])
    caption = (
        f"Completed trials: dev quality (selection) against {COSTS[cost]}. Large marks are the front over "
        f"{' and '.join(names)}: no other trial is at least as good in all of them, and better in one."
    )
    return [plot_of("front", "The front of the search", caption, _thinned(figure))]


def _importance(complete: Sequence[TrialRecord]) -> Plot | None:
    """None where all settings or all ranks are the same."""
    # The share of the trials of its size that each is at least as good as, in percent.
    objectives = pd.Series([_objective(t) for t in complete], dtype=float)
    shares = objectives.groupby(_size_names(complete)).rank(method="max", pct=True)
    ranks = [100 * float(share) for share in shares]
    places = sorted(_some(len(complete), MOST_TRIALS))
    settings = [{plain(name, 24): value for name, value in complete[place].params.items()} for place in places]
    parameters = _parameters(settings)
    if not parameters or len({ranks[place] for place in places}) < 2:
        return None
    study = optuna.create_study(direction="maximize")
    for place, values in zip(places, settings, strict=True):
        own = {name: distribution for name, distribution in parameters.items() if name in values}
        numbers = {name: isinstance(distribution, FloatDistribution) for name, distribution in own.items()}
        params = {name: float(values[name]) if numbers[name] else _text(values[name]) for name in own}
        study.add_trial(create_trial(params=params, distributions=own, value=ranks[place]))
    figure = optuna.visualization.plot_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    figure.update_traces(marker={"color": LIGHT.hues[0]}, hoverinfo="skip", hovertemplate=None)
    frame(figure, "Importance", "")
    figure.update_xaxes(showgrid=True, range=[0, 1.15 * max(figure.data[0].x)])
    caption = (
        f"PED-ANOVA of {len(places):,} completed trials: how much each hyper-parameter decides whether a trial is "
        "among the best tenth of those of as many bytes."
    )
    return plot_of("importance", "Which hyper-parameters matter", caption, figure)


def _parameters(settings: Sequence[dict[str, Any]]) -> dict[str, BaseDistribution]:
    """A distribution for each hyper-parameter that differs: the range or the choices of what the trials had."""
    found: dict[str, BaseDistribution] = {}
    for name in dict.fromkeys(name for values in settings for name in values):
        present = [values[name] for values in settings if name in values]
        if all(isinstance(v, int | float) and not isinstance(v, bool) and abs(v) < 1e100 for v in present):
            rising = sorted(map(float, present))
            low, middle, high = rising[0], rising[len(rising) // 2], rising[-1]
            if low < high:
                found[name] = FloatDistribution(low, high, log=0 < 10 * low < high and middle < (low + high) / 4)
        elif len(texts := sorted({_text(value) for value in present})) > 1:
            found[name] = CategoricalDistribution(texts)
    return found


def _text(value: Any) -> str:
    return plain(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str), 24)


def _objective(trial: TrialRecord) -> float | None:
    value = finite(trial.objective) if trial.state == "COMPLETE" else None
    return value if value is not None and abs(value) < 1e100 else None


def _last(trial: TrialRecord) -> float:
    value = _objective(trial)
    return -math.inf if value is None else value


def _size_names(trials: Sequence[TrialRecord]) -> list[str]:
    """What trials have in common whose objectives compare, in words: the method, the student, the bytes of a vector."""
    several = len({t.method for t in trials}) > 1
    groups = [(t.method if several else "", t.group.student, f"{t.group.bytes:,} bytes") for t in trials]
    return [", ".join(filter(None, group)) for group in groups]


def _some(count: int, most: int) -> set[int]:
    """So many places of so many, by a fixed draw: every k-th trial may have one size alone."""
    return set(random.Random(0).sample(range(count), min(count, most)))


def _thinned(figure: go.Figure) -> go.Figure:
    """The figure with every k-th of its points, where a browser would take long to draw all of them."""
    for trace in figure.data:
        every = -(-len(trace.x) // MOST_MARKS)
        if every > 1:
            trace.update({key: list(trace[key])[::every] for key in ("x", "y", "text") if trace[key] is not None})
    return figure
