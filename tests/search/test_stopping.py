"""Who goes on at a rung, and that it does not depend on who arrives first."""

from __future__ import annotations

import math

import pytest

from distilbench.choices import Stopping
from distilbench.errors import InputError
from distilbench.search.stopping import Halving, Verdicts, goes_on, stopping_for
from distilbench.trials.budget import Budget


@pytest.mark.parametrize(
    ("value", "earlier", "eta", "wanted"),
    [
        (1.0, [], 3, True),  # alone: the best of one
        (1.0, [2.0], 3, False),
        (5.0, [6.0, 4.0, 3.0, 2.0, 1.0], 3, True),  # the second of six: a third
        (4.0, [6.0, 5.0, 3.0, 2.0, 1.0], 3, False),
        (4.0, [6.0, 5.0, 3.0, 2.0, 1.0], 2, True),
        (2.0, [2.0, 2.0], 3, True),  # equals share their place
        (math.nan, [], 3, False),
        (1.0, [math.nan, math.nan], 3, True),  # what is no number is no competitor
    ],
)
def test_among_the_best(value: float, earlier: list[float], eta: int, wanted: bool) -> None:
    assert goes_on(Budget(trials=1, steps=1, eta=eta, stopping="asha"), value, earlier) is wanted


@pytest.mark.parametrize(
    ("stopping", "value", "earlier", "wanted"),
    [
        ("median", -9.0, [1.0, 2.0, 3.0], True),  # three are too few to stop any
        ("median", -9.0, [1.0, 2.0, 3.0, 4.0], False),
        ("median", 2.5, [1.0, 2.0, 3.0, 4.0], True),  # at the median
        ("median", 0.0, [1.0, 2.0, 3.0, math.nan], True),
        ("median", math.nan, [], False),
        ("none", -9.0, [1.0, 2.0, 3.0, 4.0], True),
        ("none", math.nan, [], False),
    ],
)
def test_other_rules(stopping: Stopping, value: float, earlier: list[float], wanted: bool) -> None:
    assert goes_on(Budget(trials=1, steps=1, stopping=stopping), value, earlier) is wanted


# Halving: judged in cohorts


def halving(*groups: str, eta: int = 2) -> Halving:
    made = Halving(Budget(trials=1, steps=1, eta=eta, stopping="halving"))
    assert isinstance(made, Halving)
    for number, group in enumerate(groups):
        made.enter(number, group)
    return made


def told(made: Verdicts, *reports: tuple[int, int, float]) -> None:
    for number, rung, value in reports:
        made.report(number, rung, value)
    made.decide()


def test_a_cohort_is_judged_when_it_is_whole() -> None:
    made = halving("a", "a", "b", "a")
    told(made, (0, 1, 0.5))
    assert made.is_pending(0) and not made.runners[0].settled and made.runners[0].passed == 0
    told(made, (3, 1, 9.0))  # of the next cohort: neither with the first trial, nor judged
    assert made.is_pending(0) and made.is_pending(3)
    told(made, (1, 1, 0.7))
    assert (made.runners[0].stopped, made.runners[1].passed, made.is_pending(1), made.is_pending(3)) == (
        1,
        1,
        False,
        True,
    )
    assert made.runners[0].settled and not made.runners[1].settled


def test_later_cohorts_are_judged_among_all_that_have_been_there() -> None:
    made = halving(*"aaaaaa")
    told(made, *((n, 1, value) for n, value in enumerate([5.0, 4.0, 1.0, 2.0, 3.0, 4.5])))
    # 5 of (5, 4); none of (1, 2) is among the best two of four; 4.5 is among the best three of six
    assert [made.runners[n].passed for n in range(6)] == [1, 0, 0, 0, 0, 1]
    assert [made.runners[n].stopped for n in range(6)] == [None, 1, 1, 1, 1, None]


def test_at_a_later_rung_cohorts_follow_the_order_of_going_on() -> None:
    made = halving(*"aaaa")
    told(made, (2, 1, 3.0), (3, 1, 2.0), (3, 2, 9.0))
    assert made.is_pending(2), "the second half is there first, and waits for its turn all the same"
    told(made, (0, 1, 1.0), (1, 1, 0.5))
    assert [made.runners[n].passed for n in range(4)] == [1, 0, 1, 1]
    told(made, (2, 2, 5.0))
    assert made.is_pending(2), "its cohort is trial 0, which went on before it, and itself"
    told(made, (0, 2, 6.0))
    assert (made.runners[0].passed, made.runners[2].stopped) == (2, 2)
    assert made.is_pending(3) and made.last_valid_rung(3) == 2


def test_the_last_cohort_need_not_be_whole() -> None:
    made = halving("a", "a", "a", "b", eta=3)
    told(made, (0, 1, 1.0), (1, 1, 2.0), (3, 1, -5.0))
    made.close()
    made.decide()
    assert made.is_pending(0) and made.is_pending(1), "the third one is still to come"
    assert made.runners[3].passed == 1, "the only one of its group"
    told(made, (2, 1, 1.5))
    assert [made.runners[n].stopped for n in range(3)] == [1, None, 1]
    told(made, (1, 2, 0.1))
    assert made.runners[1].passed == 2, "nobody else comes to the second rung"


def test_trials_of_an_earlier_sitting_are_competitors() -> None:
    made = halving(*"aaaa")
    for number in (0, 1):
        made.fail(number)
    told(made, (0, 1, 5.0), (0, 2, 6.0), (1, 1, 4.0))
    told(made, (2, 1, 4.5), (3, 1, 4.2))
    assert (made.runners[2].passed, made.runners[3].stopped) == (1, 1)


def test_where_no_trial_can_wait_halving_is_asha() -> None:
    budget = Budget(trials=1, steps=1, stopping="halving")
    assert [stopping_for(budget, objectives) for objectives in (1, 2)] == ["halving", "asha"]
    assert stopping_for(budget, 2, "median") == "median" and stopping_for(budget, 1, "halving") == "halving"
    with pytest.raises(InputError, match=r"--stopping halving: with several --objectives .* expected --stopping asha"):
        stopping_for(budget, 2, "halving")
