"""Which trials of a search would be stopped, and where: random dev scores, judged by the search's own stopping rule.

A trial n draws one value v_n, standard normal, and has it at every rung: of learning curves that never cross. (The best third
of 40 trials that cross at random gives a quarter fewer complete ones; on real data they were as many as with curves that do
not cross.) It is judged among the trials of its own group, by the verdicts of `search.stopping`. So of n
trials about n / eta pass a rung, and with ASHA more than that of few, since the first ones at a rung always pass:

    E[passed by halving] = floor(n / eta) at least, and of n below eta one
    E[passed by ASHA] = sum over k = 1..n of max(1, floor(k / eta)) / k            (at the first rung)
    E[passed by median stopping] = min(n, 4) + (n - 4) / 2

A searcher that learns proposes better settings as it goes on, and trials that improve on each other are stopped less: from
trial `LEARNED` on its values are `GAIN` higher.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from distilbench.search.stopping import LEARNS_NOTHING, make_verdicts
from distilbench.trials.budget import Budget

LEARNED = 10
"""Trials of a study after which Optuna's samplers that learn begin to (`n_startup_trials` of TPE)."""
GAIN = 1.75
"""Standard deviations. Fitted to the steps of the three searches by TPE in results/records/early-stopping: 7,950 of 18,000 on
average; with it 7,850, and 1,250 more or less from search to search. Without it 5,200, where random search took 5,650."""


def fates(groups: Sequence[Hashable], budget: Budget, searcher: str, seed: int) -> list[int]:
    """For each trial, in the order of numbers, the rung (1 to the last) at which its training ends; `groups` are what
    they compete within. Every trial is taken to have all rungs."""
    rng, verdicts, last = np.random.default_rng(seed), make_verdicts(budget), budget.rungs
    gain = 0.0 if searcher in LEARNS_NOTHING else GAIN
    values = [float(rng.standard_normal()) + gain * (number >= LEARNED) for number in range(len(groups))]
    for number, group in enumerate(groups):
        verdicts.enter(number, group)
    verdicts.close()
    for rung in range(1, last + 1):
        for number in range(len(groups)):
            if verdicts.passed(number) == rung - 1 and verdicts.stopped(number) is None:
                verdicts.report(number, rung, values[number])
                if rung == last:
                    verdicts.finish(number, rung)
        verdicts.settle()
    return [verdicts.stopped(number) or last for number in range(len(groups))]
