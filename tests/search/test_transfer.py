"""What output dimensions share: places within groups, settings that did best elsewhere, a model over all dimensions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState
from simulated import Simulation, content, in_memory, space_of, suggested

from distilbench.search.samplers import make_sampler
from distilbench.search.study import PARAMS, rung_key, trial_group
from distilbench.search.transfer import best_elsewhere, places


def ended(number: int, dim: int, values: list[float], state: str = "COMPLETE", **params: Any) -> FrozenTrial:
    """A trial with these values at its rungs."""
    whole = {"output_dim": dim, "lr": 0.001, "clusters": 4, "pairs": "duplicates", "noise": 0.005, **params}
    trial = optuna.trial.create_trial(
        state=TrialState[state],
        values=[values[-1]] if state == "COMPLETE" else None,
        intermediate_values=dict(enumerate(values, 1)),
        user_attrs={PARAMS: whole} | {rung_key(r): {"step": r, "objective": v} for r, v in enumerate(values, 1)},
    )
    trial.number = number
    return trial


def test_a_trial_has_its_place_among_those_of_its_own_dimension() -> None:
    trials = [
        ended(0, 4, [1.0], "PRUNED"),
        ended(1, 4, [0.5, 0.1], "PRUNED"),
        ended(2, 4, [0.2, 0.0, -5.0]),
        ended(3, 4, [9.0], "FAIL"),
        ended(4, 8, [-50.0, -60.0, -70.0]),
        ended(5, 4, [float("nan")], "PRUNED"),
    ]
    found = places(trials, trial_group)
    assert sorted([0, 1, 2, 3, 5], key=lambda n: found[n]) == [3, 5, 0, 1, 2]
    assert found[4] == 0.5, "the only one of its dimension is neither good nor bad"
    assert found[2] == 5 / 6


def test_the_best_elsewhere_that_is_new_here(tmp_path: Path) -> None:
    space = space_of(tmp_path)
    trials = [
        *(ended(n, 8, [0.0, 0.0, float(n)], lr=0.001 * (n + 1)) for n in range(4)),
        ended(4, 4, [0.0, 0.0, 100.0], lr=0.002),
    ]
    here = {"output_dim": 4}
    best = best_elsewhere(here, [], trials, space)
    assert best == {"output_dim": 4, "lr": 0.004, "clusters": 4, "pairs": "duplicates"}, "noise is not searched there"
    had = [{"output_dim": 4, "noise": 0.005, **best}]
    assert best_elsewhere(here, had, trials, space)["lr"] == 0.003
    assert best_elsewhere(here, [{**had[0], "output_dim": 8}], trials, space)["lr"] == 0.004, "others may have had it"
    assert best_elsewhere(here, [], trials[4:], space) == {}, "what is good here is not from elsewhere"
    assert best_elsewhere({"output_dim": 8}, [], trials[4:], space) == {}, "a single one says nothing"
    assert best_elsewhere(here, [], [ended(0, 8, [1.0], "FAIL"), *trials[:1]], space)["lr"] == 0.001


def test_every_other_trial_of_a_dimension_is_given_one(tmp_path: Path) -> None:
    space = space_of(tmp_path, searcher="random")
    one = Simulation(in_memory(), space, wanted=40, lag=4, transfer=True)
    one.sit(1)
    tried = suggested(one.study)
    settings = [{k: v for k, v in params.items() if k != "output_dim"} for params in tried]
    repeated = [n for n, setting in enumerate(settings) if setting in settings[:n]]
    for d in (4, 8):
        of_dim = [n for n, params in enumerate(tried) if params["output_dim"] == d]
        given = [n for n in of_dim if n in repeated]
        assert set(given) <= set(of_dim[1::2]) and len(given) > 3, "where nothing new is above the half, one is drawn"
        assert len({repr(settings[n]) for n in of_dim}) == len(of_dim), "none is tried twice at a dimension"


@pytest.mark.parametrize("stopping", ["asha", "halving"])
@pytest.mark.parametrize("searcher", ["random", "tpe", "forest"])
def test_the_same_trials_for_any_number_of_workers_and_after_a_kill(
    tmp_path: Path, searcher: str, stopping: str
) -> None:
    space = space_of(tmp_path, searcher=searcher, stopping=stopping)
    contents = set()
    for workers in (1, 3, 8):
        one = Simulation(in_memory(), space, wanted=24, lag=8, transfer=True)
        one.sit(workers, speeds=workers)
        contents.add("\n".join(content(one.study)))
    assert len(contents) == 1
    again = Simulation(in_memory(), space, wanted=10, lag=8, transfer=True)
    again.sit(3)
    again.wanted = 24
    again.sit(8)
    if stopping == "asha":
        assert suggested(again.study) == suggested(one.study)
    assert all(t.state.is_finished() for t in again.study.trials) and len(again.study.trials) == 24


def test_a_forest_finds_more_than_chance(tmp_path: Path) -> None:
    """Its suggestions after 30 trials are nearer to the best learning rate than random ones, at both dimensions alike."""
    far = {}
    for searcher in ("random", "forest"):
        space = space_of(tmp_path, searcher=searcher, stopping="none")
        one = Simulation(in_memory(), space, wanted=60, lag=4, outcome=lambda params: (3, "", False))
        one.sit(2)
        rates = [params["lr"] for params in suggested(one.study)[30:]]
        far[searcher] = sum(abs(rate / 0.00316 - 1) for rate in rates)
    assert far["forest"] < far["random"] / 2


def test_a_forest_respects_what_is_given_and_conditions(tmp_path: Path) -> None:
    space = space_of(tmp_path, searcher="forest")
    one = Simulation(in_memory(), space, wanted=40, lag=4)
    one.sit(1)
    tried = suggested(one.study)
    assert [p["output_dim"] for p in tried[:4]] == [4, 8, 4, 8]
    assert all(p["noise"] == space.defaults["noise"] for p in tried if p["pairs"] == "duplicates")
    assert {p["pairs"] for p in tried} == {"duplicates", "noise"} and all(isinstance(p["clusters"], int) for p in tried)
    with pytest.raises(Exception, match="--searcher forest: it has one objective, not 2"):
        make_sampler(space, 0, 10, 2)
