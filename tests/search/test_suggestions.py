"""What is suggested is what Optuna alone would suggest, whatever runs at once and whatever is interrupted."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState, create_trial
from simulated import Simulation, content, in_memory, plain, space_of, suggested

from distilbench.search.search_plan import Search
from distilbench.search.space import SearchSpace
from distilbench.search.study import PARAMS
from distilbench.search.suggestions import Suggestions

optuna.logging.set_verbosity(optuna.logging.WARNING)
SEARCHERS = ["tpe", "random"]


@pytest.mark.parametrize("lag", [1, 4])
@pytest.mark.parametrize("searcher", SEARCHERS)
def test_the_same_seed_and_results_give_what_optuna_alone_suggests(tmp_path: Path, searcher: str, lag: int) -> None:
    space = space_of(tmp_path, searcher=searcher)
    given = ({"lr": 0.005, "pairs": "noise"},)
    ours = Simulation(in_memory(), space, wanted=20, max_pending=lag, seed=3, given=given)
    ours.sit(workers=lag, speeds=1)
    assert suggested(ours.study) == plain(ours, lag)
    states = {t.state for t in ours.study.trials}
    assert states == {TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL}  # each was told to both


@pytest.mark.parametrize("searcher", SEARCHERS)
def test_so_it_is_with_several_objectives(tmp_path: Path, searcher: str) -> None:
    space = space_of(tmp_path, searcher=searcher)
    ours = Simulation(in_memory(several=True), space, wanted=18, max_pending=3, objectives=("quality", "latency"))
    ours.sit(workers=3, speeds=1)
    assert suggested(ours.study) == plain(ours, 3)
    assert {t.state for t in ours.study.trials} == {TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL}
    assert all(len(t.values) == 2 for t in ours.study.trials if t.state == TrialState.COMPLETE)


@pytest.mark.parametrize("searcher", SEARCHERS)
def test_a_study_goes_on_with_the_trials_that_it_would_have_had(tmp_path: Path, searcher: str) -> None:
    space = space_of(tmp_path, searcher=searcher)
    whole = Simulation(in_memory(), space, wanted=18, max_pending=3)
    whole.sit(workers=3, speeds=0)
    parts = Simulation(in_memory(), space, wanted=18, max_pending=3)
    for sitting in range(4):
        until = 5 * (sitting + 1)
        parts.sit(
            workers=3, speeds=sitting, deadline=lambda until=until: 0 if len(parts.study.trials) > until else math.inf
        )
    parts.sit(workers=2)
    assert content(parts.study) == content(whole.study)


def suggestions(space: SearchSpace, max_pending: int = 1, **more: Any) -> Suggestions:
    return Suggestions(Search("r", space, ("quality",), 20, [], max_pending, 0, **more))


def finished(space: SearchSpace, params: dict[str, Any], value: float | None, state: str = "COMPLETE") -> Any:
    drawn = {name: v for name, v in params.items() if name in space.parameters}
    return create_trial(
        state=TrialState[state],
        value=value,
        params=drawn,
        distributions={name: space.parameters[name].distribution for name in drawn},
        intermediate_values={1: 0.5} if state != "FAIL" else {},
        user_attrs={PARAMS: params},
    )


def test_what_is_due_is_waited_for_and_nothing_more_is_told(tmp_path: Path) -> None:
    space = space_of(tmp_path)
    made, ends = suggestions(space, max_pending=2), {}
    for number in range(2):
        params = made.ask(ends.get)
        assert params is not None
        ends[number] = finished(space, {n: params[n] for n in made.asked[-1].params}, 1.0)
    late = ends.pop(0)
    assert made.ask(ends.get) is None and made.ask(ends.get) is None
    ends[0] = late
    assert made.ask(ends.get) is not None
