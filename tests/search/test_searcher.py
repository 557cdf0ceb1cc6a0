"""The searcher without Ray: what the study is told, and how an interrupted study goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from distilbench.methods.mcr2 import Params
from distilbench.search.searcher import RungScheduler, StudySearcher
from distilbench.search.space import SearchSpace, load_space
from distilbench.search.study import open_study, queue_trials, sqlite_url

YAML = """
method: mcr2
budget: {trials: 6, steps: 90, rungs: 3, eta: 3}
parameters:
  output_dim: {choices: [4, 8]}
  lr: {low: 0.0001, high: 0.01, log: true, paper: 0.001}
fixed: {batch_size: 16, clusters: 4, lambda: 1}
"""


@pytest.fixture
def space(tmp_path: Path) -> SearchSpace:
    path = tmp_path / "space.yaml"
    path.write_text(YAML)
    return load_space(path, "mcr2", Params, native=32)


def make(tmp_path: Path, space: SearchSpace, concurrency: int = 2) -> tuple[StudySearcher, list[FrozenTrial]]:
    study = open_study(sqlite_url(tmp_path / "study.db"), "s", seed=0)
    queue_trials(study, space, 6)
    finished: list[FrozenTrial] = []
    return StudySearcher(study, space, concurrency, finished.append), finished


def result(dim: int, rung: int, objective: float, final: bool = False) -> dict[str, Any]:
    return {"dim": dim, "rung": rung, "step": 10 * rung, "objective": objective, "final": final, "reported": []}


def test_concurrency_and_end(tmp_path: Path, space: SearchSpace) -> None:
    searcher, _ = make(tmp_path, space)
    assert searcher.remaining == 6
    first, second = searcher.suggest("a"), searcher.suggest("b")
    assert isinstance(first, dict) and isinstance(second, dict)
    assert (first["number"], second["number"]) == (0, 1)
    assert first["params"]["lr"] == second["params"]["lr"] == 0.001
    assert searcher.suggest("c") is None
    for name in "abcdef":
        if name > "b":
            assert isinstance(searcher.suggest(name), dict)
        searcher.on_trial_complete(name, result(4, 3, 0.0, final=True))
    assert searcher.suggest("g") == "FINISHED"


def test_states_are_told_truly(tmp_path: Path, space: SearchSpace) -> None:
    searcher, finished = make(tmp_path, space, concurrency=6)
    dims = {name: searcher.suggest(name)["params"]["output_dim"] for name in "abcdef"}  # type: ignore[index]
    scheduler = RungScheduler(searcher)

    class Trial:
        def __init__(self, trial_id: str) -> None:
            self.trial_id = trial_id

    # a, c, e share a dimension: c is better than a, so a's successor e, worse than both, is stopped.
    assert dims["a"] == dims["c"] == dims["e"] != dims["b"]
    assert scheduler.on_trial_result(None, Trial("a"), result(dims["a"], 1, 0.5)) == "CONTINUE"  # type: ignore[arg-type]
    assert scheduler.on_trial_result(None, Trial("c"), result(dims["c"], 1, 0.7)) == "CONTINUE"
    assert scheduler.on_trial_result(None, Trial("e"), result(dims["e"], 1, 0.1)) == "STOP"
    # Another dimension does not compete with these.
    assert scheduler.on_trial_result(None, Trial("b"), result(dims["b"], 1, -9.0)) == "CONTINUE"
    searcher.on_trial_complete("e", result(dims["e"], 1, 0.1))
    searcher.on_trial_complete("c", result(dims["c"], 3, 0.9, final=True))
    searcher.on_trial_complete("a", {"failed": "loss nan at step 7", "final": True, "objective": float("nan")})
    searcher.on_trial_complete("b", None, error=True)
    searcher.on_trial_complete("d", result(dims["d"], 3, float("nan"), final=True))
    states = {t.number: t.state for t in finished}
    assert states == {
        4: TrialState.PRUNED,
        2: TrialState.COMPLETE,
        0: TrialState.FAIL,
        1: TrialState.FAIL,
        3: TrialState.FAIL,
    }
    trials = searcher.study.trials
    assert trials[2].value == 0.9 and trials[2].intermediate_values == {1: 0.7, 3: 0.9}
    assert trials[0].user_attrs["reason"] == "loss nan at step 7"
    assert trials[5].state == TrialState.RUNNING


def test_an_interrupted_study_goes_on_with_the_same_trials(tmp_path: Path, space: SearchSpace) -> None:
    searcher, _ = make(tmp_path, space)
    before = [searcher.suggest(name) for name in "ab"]
    searcher.report("a", result(4, 1, 0.5))
    again, _ = make(tmp_path, space)  # the driver was killed; a new one opens the study
    assert again.remaining == 6
    assert [again.suggest(name) for name in "xy"] == before
    again.report("x", result(4, 1, 0.5))  # reported again after its checkpoint: no error, no second value
    again.on_trial_complete("x", result(4, 3, 0.6, final=True))
    assert again.study.trials[0].intermediate_values == {1: 0.5, 3: 0.6}
    assert len(again.study.trials) == 6


def test_a_trial_that_was_asked_for_but_got_no_parameters_is_completed(tmp_path: Path, space: SearchSpace) -> None:
    searcher, _ = make(tmp_path, space)
    searcher.study.ask()  # killed between ask and suggest
    again, _ = make(tmp_path, space)
    suggested = again.suggest("x")
    assert isinstance(suggested, dict) and suggested["number"] == 0
    assert suggested["params"]["lr"] == 0.001


def test_the_study_opens_with_optuna_alone(tmp_path: Path, space: SearchSpace) -> None:
    make(tmp_path, space)
    study = optuna.load_study(study_name="s", storage=sqlite_url(tmp_path / "study.db"))
    assert len(study.trials) == 6 and study.direction.name == "MAXIMIZE"
