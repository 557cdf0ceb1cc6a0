"""How much each hyper-parameter of a search mattered: fANOVA over its completed trials."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import optuna
import plotly.graph_objects as go
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.importance import FanovaImportanceEvaluator
from sklearn.ensemble import RandomForestRegressor

from distilbench.records import ScoreRecord, TrialRecord
from distilbench.reporting.colours import LIGHT, Palette, kind_colour
from distilbench.reporting.figures import frame, plain
from distilbench.reporting.searched import Parameter, Searched, Within, searched_trials

LEAST_TRIALS = 10
LEAST_IN_GROUP = 4
"""Completed trials of a group; fewer have no deviation worth dividing by."""
MOST_TRIALS = 300
"""Read of a run: Optuna takes 3 s for six parameters of so many, and 53 s for a thousand (one shared core, 64 trees)."""
TREES = 32
MOST_CATEGORIES = 32
MOST_BARS = 15
SEED = 0


class Importance(NamedTuple):
    """`shares`: (parameter, percent of the variance that it explains alone), highest first; `together`: all interactions.

    `fit` is a forest's R2 on trials it was not grown on. Where `reason` is not "", nothing was computed, and it says why.
    `used` of `complete` trials were read; `left_out`: (parameter, why).
    """

    shares: tuple[tuple[str, float], ...]
    together: float
    fit: float
    used: int
    complete: int
    groups: int
    left_out: tuple[tuple[str, str], ...]
    reason: str
    within: Within = "output dimension"
    """What the trials of a group have in common."""


def compute_importance(records: Iterable[TrialRecord | ScoreRecord], limit: int = MOST_TRIALS) -> Importance:
    """Rate the hyper-parameters by the completed trials of one run; of more than `limit`, by trials spread over the search.

    Objectives compare only within a group (`Searched.within`): each is taken as its distance to the mean of its group in
    standard deviations, and an output dimension that a group has in common is no parameter. Numbers for a logarithmic axis
    are taken by their logarithm. A parameter that some of the trials lack is left out.

    Raises:
        ValueError: trials of more than one run, or `limit` below `LEAST_TRIALS`.
    """
    if limit < LEAST_TRIALS:
        raise ValueError(f"limit is {limit}, expected {LEAST_TRIALS} or more")
    study = searched_trials(records)
    target_N, comparable = _standardised(study)
    groups = len({study.group[i] for i in comparable})
    left_out = [(p.name, why) for p in study.parameters if (why := _unfit(p, comparable))]
    if len(comparable) > limit:
        comparable = comparable[np.linspace(0, len(comparable) - 1, limit).round().astype(int)]
    named = dict(left_out)
    parameters = [p for p in study.parameters if p.name not in named and len({p.values[i] for i in comparable}) > 1]
    absent = Importance((), 0.0, 0.0, len(comparable), len(study.trials), groups, tuple(left_out), "", study.within)
    if len(comparable) < LEAST_TRIALS:
        return absent._replace(
            reason=f"{len(comparable)} completed trials that compare, expected {LEAST_TRIALS} or more"
        )
    if not parameters:
        return absent._replace(reason="no hyper-parameter was varied in all trials")
    columns = [_column(p, comparable) for p in parameters]
    if not target_N[comparable].any():
        return absent._replace(reason="the objective is the same whatever the hyper-parameters are")
    fractions = _fanova(columns, [bool(p.categories) for p in parameters], target_N[comparable])
    shares = sorted(((p.name, 100 * share) for p, share in zip(parameters, fractions, strict=True)), key=_rank)
    together = max(0.0, 100 - sum(share for _, share in shares))
    forest = RandomForestRegressor(2 * TREES, oob_score=True, random_state=SEED).fit(
        np.stack(columns, 1), target_N[comparable]
    )
    return absent._replace(shares=tuple(shares), together=together, fit=float(forest.oob_score_))


def importance_caption(data: Importance) -> str:
    """What the figure of `compute_importance` shows, or why there is none."""
    if data.reason:
        return f"Hyper-parameter importance was not computed: {data.reason}."
    read = f"{data.used:,}" if data.used == data.complete else f"{data.used:,} of {data.complete:,}"
    parts = [
        f"fANOVA of {read} completed trials: how much of the variance of the dev objective each hyper-parameter explains "
        f"alone; {data.together:.0f} % is left to interactions. Read over the ranges that the trials cover."
    ]
    if data.groups > 1:
        parts.append(f"Objectives are taken relative to those of the same {data.within}.")
    trust = "" if data.fit >= 0.5 else ": too little to rank them by" if data.fit < 0.1 else ": read with care"
    parts.append(f"A forest like the one behind it has an R² of {data.fit:.2f} on trials it was not grown on{trust}.")
    if len(data.shares) > MOST_BARS:
        parts.append(f"The {MOST_BARS} largest of {len(data.shares)} are drawn.")
    if data.left_out:
        parts.append("Left out: " + "; ".join(f"{name} ({why})" for name, why in data.left_out) + ".")
    return " ".join(parts)


def draw_importance(data: Importance, palette: Palette = LIGHT) -> go.Figure:
    """A bar for each parameter, the most important on top, and one for what they explain only together."""
    figure = go.Figure()
    frame(figure, palette, "% of the variance of the dev objective", "")
    if not data.shares:
        return figure
    bars = [(plain(name, 24), share, kind_colour(0, palette)) for name, share in data.shares[:MOST_BARS]]
    bars.append(("interactions", data.together, palette.muted))
    bars.reverse()  # a bar chart starts at the bottom
    figure.add_bar(
        x=[share for _, share, _ in bars],
        y=list(range(len(bars))),
        orientation="h",
        marker={"color": [colour for _, _, colour in bars]},
        text=[f"{share:.0f} %" if share >= 1 else "< 1 %" for _, share, _ in bars],
        textposition="outside",
        cliponaxis=False,
        hoverinfo="skip",
    )
    top = max(share for _, share, _ in bars)
    figure.update_xaxes(range=[0, 1.15 * top], showgrid=True)
    figure.update_yaxes(
        tickmode="array", tickvals=list(range(len(bars))), ticktext=[name for name, _, _ in bars], showgrid=False
    )
    return figure


def _fanova(
    columns: Sequence[NDArray[np.float64]], categorical: Sequence[bool], target_N: NDArray[np.float64]
) -> list[float]:
    """Each parameter's share (0 to 1) of the variance by Optuna's fANOVA (Hutter, Hoos and Leyton-Brown, 2014).

    Optuna weighs all values of a range alike, also of a logarithmic one: the columns are on the scale that counts.
    """
    names = [f"p{place}" for place in range(len(columns))]
    distributions: dict[str, BaseDistribution] = {
        name: CategoricalDistribution(sorted(set(column.tolist())))
        if named
        else FloatDistribution(float(column.min()), float(column.max()))
        for name, column, named in zip(names, columns, categorical, strict=True)
    }
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study()
    rows = np.stack(columns, 1).tolist()
    study.add_trials(
        [
            optuna.trial.create_trial(
                params=dict(zip(names, row, strict=True)), distributions=distributions, value=float(value)
            )
            for row, value in zip(rows, target_N, strict=True)
        ]
    )
    importance_of = FanovaImportanceEvaluator(n_trees=TREES, seed=SEED).evaluate(study, params=names)
    return [float(importance_of[name]) for name in names]


def _standardised(study: Searched) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Each trial's objective in deviations of its group, and the positions of the trials whose group has enough.

    A group in which all objectives are equal is at 0.
    """
    target_N, group_N = np.array(study.objective, dtype=float), np.array(study.group, dtype=int)
    comparable_N = np.zeros(len(target_N), dtype=bool)
    for group in range(len(study.groups)):
        in_group_N = group_N == group
        comparable_N |= in_group_N & (in_group_N.sum() >= LEAST_IN_GROUP)
        deviation = target_N[in_group_N].std()
        centred = target_N[in_group_N] - target_N[in_group_N].mean()
        flat = deviation <= 1e-12 * max(1.0, float(np.abs(target_N[in_group_N]).max()))
        target_N[in_group_N] = 0.0 if flat else centred / deviation
    return target_N, np.flatnonzero(comparable_N)


def _unfit(p: Parameter, trials: Sequence[int] | NDArray[np.int64]) -> str:
    """Why the parameter cannot be assessed, "" where it can."""
    missing = sum(p.values[i] is None for i in trials)
    if missing:
        return f"missing in {missing:,} trials"
    if len(p.categories) > MOST_CATEGORIES:
        return f"{len(p.categories):,} categories"
    return ""


def _column(p: Parameter, trials: NDArray[np.int64]) -> NDArray[np.float64]:
    values = np.array([p.values[i] for i in trials], dtype=float)
    return np.log10(values) if p.log else values


def _rank(pair: tuple[str, float]) -> tuple[float, str]:
    return -pair[1], pair[0]
