"""Which trials are stopped: the planned ones beside the search's own verdicts, its formulae, and the committed studies."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from distilbench.records import TrialRecord, read_records
from distilbench.search.fates import fates
from distilbench.search.stopping import Verdicts, stopping_rule
from distilbench.trials.budget import Budget

STUDIES = Path(__file__).parents[2] / "results" / "records" / "early-stopping.jsonl.gz"


def budget(stopping: str = "asha", **more: int) -> Budget:
    return Budget.model_validate({"trials": 40, "steps": 450, "rungs": 3, "eta": 3, "stopping": stopping, **more})


@pytest.mark.parametrize("stopping", ["asha", "median", "none"])
@pytest.mark.parametrize("groups", [[8] * 60, [8, 16, 32] * 20])
def test_they_are_the_verdicts_of_the_search(stopping: str, groups: list[int]) -> None:
    own, seed = budget(stopping), 7
    values = np.random.default_rng(seed).standard_normal(len(groups))
    verdicts = Verdicts(stopping_rule(own))
    ends = []
    for number, (group, value) in enumerate(zip(groups, values, strict=True)):
        verdicts.enter(number, group)
        verdicts.finish(number, 3)
        for rung in (1, 2, 3):
            verdicts.report(number, rung, float(value))
        verdicts.settle()
        ends.append(verdicts.stopped(number) or verdicts.passed(number))
    assert ends == fates(groups, own, "random", seed)


@pytest.mark.parametrize("eta", [2, 3, 4])
@pytest.mark.parametrize("trials", [5, 40])
def test_as_many_pass_the_first_rung_as_the_formula_says(eta: int, trials: int) -> None:
    passed = fmean(sum(end > 1 for end in fates([1] * trials, budget(eta=eta), "random", seed)) for seed in range(400))
    assert passed == pytest.approx(sum(max(1, k // eta) / k for k in range(1, trials + 1)), rel=0.05)


def test_median_stopping_halves_after_the_first_four() -> None:
    passed = fmean(sum(end > 1 for end in fates([1] * 40, budget("median"), "random", s)) for s in range(400))
    assert passed == pytest.approx(4 + 36 / 2, rel=0.05)


def test_trials_that_learn_are_stopped_less() -> None:
    def reached(searcher: str) -> float:
        return fmean(sum(fates([1] * 40, budget(), searcher, seed)) for seed in range(100))

    assert reached("tpe") > 1.1 * reached("random") == 1.1 * reached("grid")


@pytest.mark.parametrize(
    ("searcher", "runs"), [("random", ["sha-0", "sha-1"]), ("tpe", ["early-0", "early-1", "early-2"])]
)
def test_the_steps_of_the_committed_studies(searcher: str, runs: list[str]) -> None:
    """Real trials of MCR2: their mean steps are within a fifth of the planned ones."""
    steps: Counter[str] = Counter()
    for record in read_records(STUDIES):
        if isinstance(record, TrialRecord) and record.rungs:
            steps[record.run] += record.rungs[-1].step
    rungs = budget().rung_steps(450)
    planned = fmean(sum(rungs[end - 1] for end in fates([50] * 40, budget(), searcher, seed)) for seed in range(100))
    assert fmean(steps[run] for run in runs) == pytest.approx(planned, rel=0.2)


def test_each_dimension_is_judged_by_itself() -> None:
    ends = fates([d for d in (1, 2, 3) for _ in range(1)], budget(), "random", 0)
    assert ends == [3, 3, 3], "the first of a dimension goes on"
    by_group = defaultdict(list)
    for group, end in zip([1, 2] * 30, fates([1, 2] * 30, budget(), "random", 0), strict=True):
        by_group[group].append(end)
    assert all(own[0] == 3 for own in by_group.values())
    assert all(a <= b for a, b in pairwise(sorted(by_group[1])))
