"""Which trials are confirmed, with which jobs, and what is said of them afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from distilbench.codes import CompetitionKey
from distilbench.methods.mcr2 import MCR2Params
from distilbench.search.confirm import CONFIRMATIONS, chosen_trials, confirmation_jobs, shown_as, write_confirmed
from distilbench.search.search_plan import Search
from distilbench.search.space_files import load_space
from distilbench.trials.budget import Confirmation

YAML = """
method: mcr2
budget: {trials: 6, steps: 90, rungs: 3, eta: 3}
parameters:
  output_dim: {choices: [4, 8]}
  lr: {low: 0.0001, high: 0.01, log: true}
fixed: {batch_size: 16, clusters: 4, lambda: 1}
"""


def trial(number: int, dim: int, value: float, state: TrialState = TrialState.COMPLETE, lr: float | None = None) -> Any:
    """A trial with one rung, of which `value` is the objective."""
    found = optuna.trial.create_trial(
        state=state,
        value=value if state == TrialState.COMPLETE else None,
        user_attrs={
            "params": {"output_dim": dim, "lr": 0.001 * (number + 1) if lr is None else lr},
            "rung-1": {"step": 10 * (number + 1), "objective": value},
        },
    )
    found.number = number
    return found


@pytest.fixture
def search(tmp_path: Path) -> Search:
    """Three seeds from 5 on, one trial of each dimension."""
    (tmp_path / "space.yaml").write_text(YAML)
    space = load_space(tmp_path / "space.yaml", "mcr2", MCR2Params, native=32)
    return Search("r", space, ("quality",), 6, [], 8, 5)


def with_top(search: Search, top: int, seeds: int) -> Search:
    budget = search.space.budget.model_copy(update={"confirm": Confirmation(top=top, seeds=seeds)})
    return Search("r", search.space.model_copy(update={"budget": budget}), ("quality",), 6, [], 8, search.seed)


def of(dimension: int) -> CompetitionKey:
    """The group of float32 vectors of so many dimensions."""
    return CompetitionKey("", 4 * dimension)


def numbers(chosen: dict[CompetitionKey, list[FrozenTrial]]) -> dict[int, list[int]]:
    return {key.bytes // 4: [t.number for t in own] for key, own in chosen.items()}


TRIALS = [
    trial(0, 4, 1.0),
    trial(1, 8, 2.0),
    trial(2, 4, 3.0),
    trial(3, 4, 9.0, TrialState.PRUNED),
    trial(4, 8, 9.0, TrialState.RUNNING),
    trial(5, 4, 3.0),
    trial(6, 4, 9.0, TrialState.FAIL),
]


@pytest.mark.parametrize(
    ("top", "wanted"), [(1, {4: [2], 8: [1]}), (2, {4: [2, 5], 8: [1]}), (9, {4: [2, 5, 0], 8: [1]})]
)
def test_the_best_complete_ones_of_each_dimension(top: int, wanted: dict[int, list[int]]) -> None:
    assert numbers(chosen_trials(TRIALS, [of(4), of(8)], top)) == wanted


def test_an_interrupted_one_only_where_none_is_complete(search: Search) -> None:
    running = [trial(7, 16, 1.0, TrialState.RUNNING), trial(8, 16, 2.0, TrialState.RUNNING)]
    silent = trial(9, 32, 0.0, TrialState.RUNNING)
    del silent.user_attrs["rung-1"]
    found = chosen_trials([*TRIALS, *running, silent], [of(4), of(8), of(16), of(32)], 2)
    assert numbers(found) == {4: [2, 5], 8: [1], 16: [8]}  # one at most; none that has reported nothing
    assert shown_as(running[1], search) == "trial 8, interrupted after step 90" and shown_as(TRIALS[0], search) == ""


def test_every_trial_comes_once_before_the_second_seed_of_any(tmp_path: Path, search: Search) -> None:
    running = trial(8, 16, 2.0, TrialState.RUNNING)
    jobs = confirmation_jobs(tmp_path, search, {of(4): [TRIALS[2]], of(8): [TRIALS[1]], of(16): [running]})
    assert [(j.candidate.trial, j.candidate.seed) for j in jobs] == [
        (2, 5),
        (1, 5),
        (8, 5),
        (2, 6),
        (1, 6),
        (2, 7),
        (1, 7),
    ]
    own, second = jobs[0], jobs[3]
    assert own.folder == tmp_path / "trials" / "00002" and own.recorded_in == ""
    assert second.folder == tmp_path / "confirm" / "00002-seed6" and second.recorded_in == CONFIRMATIONS
    assert [j.as_it_is for j in jobs] == [False, False, True, *[False] * 4]
    assert jobs[2].candidate.configuration == shown_as(running, search)
    assert own.candidate.params == second.candidate.params == {"output_dim": 4, "lr": 0.003}
    # No two jobs share a student, nor would those of other trials: a row keeps the one that it is of.
    assert len({j.model for j in jobs}) == len(jobs) and own.model == "students/mcr2-d4-trial2-seed5"
    assert jobs[2].model == "students/mcr2-d16-trial8-seed5-interrupted"


# Best rungs


def of_rungs(number: int, *objectives: float, state: TrialState = TrialState.COMPLETE, **more: Any) -> Any:
    """A trial whose rungs are all eligible, with these objectives."""
    found = trial(number, 4, objectives[-1], state)
    found.user_attrs |= {
        f"rung-{i}": {"step": 10 * i, "objective": value, "eligible": True, **more}
        for i, value in enumerate(objectives, start=1)
    }
    return found


def test_one_that_waited_when_the_time_was_over_takes_part_and_is_trained_to_its_end(
    tmp_path: Path, search: Search
) -> None:
    """With halving: its rung is a student, as that of a stopped trial is."""
    waited, complete = of_rungs(2, 6.0, state=TrialState.RUNNING), of_rungs(3, 5.0)
    assert numbers(chosen_trials([waited, complete], [of(4)], 2)) == {4: [3]}
    assert numbers(chosen_trials([waited, complete], [of(4)], 2, waiting=True)) == {4: [2, 3]}
    assert search.space.budget.stopping == "halving"
    first, *others = confirmation_jobs(tmp_path, search, {of(4): [waited]})
    assert not first.as_it_is and first.recorded_in == CONFIRMATIONS and len(others) == 2
    assert first.folder == tmp_path / "trials" / "00002" and shown_as(waited, search) == ""


def test_a_stopped_trial_is_trained_to_its_end_with_a_record_of_its_own(tmp_path: Path, search: Search) -> None:
    stopped = of_rungs(2, 6.0, state=TrialState.PRUNED)
    first, second, third = confirmation_jobs(tmp_path, search, {of(4): [stopped]})
    assert not first.as_it_is and first.best and first.recorded_in == CONFIRMATIONS
    assert (
        first.folder == tmp_path / "trials" / "00002" and first.candidate.seed == 5 and shown_as(stopped, search) == ""
    )
    assert {second.recorded_in, third.recorded_in} == {CONFIRMATIONS}


def at_widths(number: int, wide: float, narrow: float) -> Any:
    """A trial of the nested widths 4 and 2, as far above the PCA there."""
    scores = {"dev_score_4": 50 + wide, "dev_score_2": 40 + narrow}
    return of_rungs(number, (wide + narrow) / 2, dev_pca_score_4=50.0, dev_pca_score_2=40.0, **scores)


def test_of_nested_widths_each_has_its_best_trial_and_a_training_comes_once(tmp_path: Path, search: Search) -> None:
    wide, narrow = at_widths(0, 3.5, 1.0), at_widths(1, 2.0, 9.0)
    fell = at_widths(0, 2.9, 1.0)
    assert numbers(chosen_trials([fell, narrow], [of(2), of(4)], 1)) == {2: [1], 4: [1]}, "one for all widths"
    chosen = chosen_trials([wide, narrow], [of(2), of(4)], 1)
    assert numbers(chosen) == {2: [1], 4: [0]}
    assert numbers(chosen_trials([wide], [of(2), of(4)], 1)) == {2: [0], 4: [0]}
    jobs = confirmation_jobs(tmp_path, search, chosen_trials([wide], [of(2), of(4)], 1))
    assert [(j.candidate.trial, j.candidate.seed, j.candidate.dim) for j in jobs] == [(0, 5, 4), (0, 6, 4), (0, 7, 4)]
    write_confirmed(tmp_path, search, chosen)
    told = {"8": [{"trial": 1, "configuration": ""}], "16": [{"trial": 0, "configuration": ""}]}
    assert json.loads((tmp_path / "confirmed.json").read_text()) == told
