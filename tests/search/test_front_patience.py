"""Where a search spends its trials and confirmations: on students that move the front, and on what is on it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import optuna
import pytest
import yaml
from optuna.trial import TrialState, create_trial
from simulated import Simulation, content, in_memory

from distilbench.codes import CompetitionKey
from distilbench.methods import get_method
from distilbench.records import EncoderCost
from distilbench.search.confirm import worth_confirming
from distilbench.search.front_patience import EXHAUSTED, FrontPatience, better_by
from distilbench.search.search_plan import Search
from distilbench.search.space import SearchSpace
from distilbench.search.space_files import load_space
from distilbench.search.starts import starts_for
from distilbench.search.study import PARAMS
from distilbench.trials.budget import Budget, Confirmation
from distilbench.trials.costs import kind_key

OBJECTIVES = ("quality", "bytes", "latency")


def ended(quality: float | None, student: str | None = None, dim: int = 8, ms: float = 1.0, **metrics: float) -> Any:
    """A completed trial with these values, or with `quality` None a stopped one."""
    params = {"output_dim": dim, **({"student": student} if student else {})}
    rung = {"step": 9, "objective": 0.0, "eligible": True, "dev_quality": quality or 0.0, **metrics}
    values = None if quality is None else [quality, 4.0 * dim, ms]
    state = TrialState.PRUNED if quality is None else TrialState.COMPLETE
    return create_trial(state=state, values=values, user_attrs={PARAMS: params, "rung-1": rung})


def test_a_point_is_better_than_those_that_cost_no_more() -> None:
    points = [(80.0, 64.0, 1.0), (82.0, 128.0, 1.0), (90.0, 64.0, 2.0)]
    assert better_by((81.0, 64.0, 1.0), points) == 1.0
    assert better_by((81.0, 128.0, 1.5), points) == -1.0
    assert better_by((81.0, 256.0, 3.0), points) == -9.0
    assert better_by((10.0, 32.0, 1.0), points) == math.inf, "nothing is as small"


def test_a_student_is_exhausted_after_so_many_trials_that_move_nothing() -> None:
    patience = FrontPatience(2, OBJECTIVES)
    patience.report(ended(80.0, "static"))
    patience.report(ended(85.0, "auto:1", ms=5.0))
    patience.report(ended(80.2, "static"))  # within the noise
    patience.report(ended(None, "auto:1"))
    assert not patience.is_exhausted("static") and not patience.is_exhausted("auto:1")
    patience.report(ended(79.0, "static", dim=4))  # smaller than any
    patience.report(ended(79.0, "auto:1", dim=16, ms=5.0))
    assert not patience.is_exhausted("static") and patience.is_exhausted("auto:1")
    patience.report(ended(79.1, "static", dim=4))
    patience.report(ended(None, "static"))
    assert patience.is_exhausted("static") and not patience.is_exhausted("teacher")
    never = FrontPatience(None, OBJECTIVES)
    for _ in range(9):
        never.report(ended(None, "static"))
    assert not never.is_exhausted("static")


def test_what_another_beats_at_no_more_cost_is_not_confirmed() -> None:
    chosen = {
        CompetitionKey("auto:2", 32): [ended(80.0, "auto:2")],
        CompetitionKey("auto:1", 32): [ended(80.2, "auto:1")],
        CompetitionKey("static", 32): [ended(70.0, "static")],
        CompetitionKey("teacher", 32): [ended(80.4, "teacher")],
    }
    latency = {"auto:2": 3.0, "auto:1": 2.0, "static": 0.1, "teacher": 9.0}
    costs = {
        kind_key("hpd", {"student": student, "output_dim": 8}): EncoderCost.model_construct(
            sentences_per_second_32=1000 / ms, bytes_on_disk=9
        )
        for student, ms in latency.items()
    }
    space = SearchSpace.model_construct(
        method="hpd", budget=Budget(trials=1, steps=1, confirm=Confirmation(front=True))
    )

    def kept(*beside: tuple[float, ...], objectives: tuple[str, ...] = OBJECTIVES, costs: Any = costs) -> list[str]:
        search = Search("r", space, objectives, 4, (), 1, 0, baseline_points=beside)
        return [group.student for group in worth_confirming(chosen, search, costs)]

    everything = ["auto:2", "auto:1", "static", "teacher"]
    assert kept() == everything, "by less than seeds differ"
    assert kept((80.5, 32.0, 2.5)) == ["auto:1", "static", "teacher"]
    assert kept((90.0, 32.0, 0.05)) == []
    assert kept((90.0,), objectives=("quality",)) == everything
    assert kept((90.0, 32.0, 0.05), costs={}) == everything, "nothing is left out of which the cost is not known"


SPACE: dict[str, Any] = {
    "method": "mcr2_distil",
    "budget": {"trials": 60, "steps": 90, "rungs": 3, "eta": 2, "stopping": "asha", "patience": 4},
    "parameters": {
        "student": {"choices": ["static", "auto:1", "teacher"]},
        "output_dim": {"choices": [4, 8]},
        "lr": {"low": 0.0001, "high": 0.01, "log": True},
        "clusters": {"low": 2, "high": 9},
    },
    "fixed": {"batch_size": 16, "lambda": 1.0},
    "enqueue": [{"student": "teacher", "lr": 0.001}],
}


def search(folder: Path, **more: Any) -> Simulation:
    (folder / "space.yaml").write_text(yaml.safe_dump(SPACE, sort_keys=False))
    space = load_space(folder / "space.yaml", "mcr2_distil", get_method("mcr2_distil").params_type, 32)
    return Simulation(in_memory(), space, wanted=60, given=tuple(starts_for(space, 60)), **more)


def test_a_search_ends_when_all_students_are_exhausted_and_is_the_same_for_any_number_of_workers(
    tmp_path: Path,
) -> None:
    whole = search(tmp_path)
    searcher = whole.sit(workers=1)
    count = len(whole.study.trials)
    assert 15 <= count < 60 and whole.study.user_attrs[EXHAUSTED] == count and searcher.wanted == count
    assert all(t.state.is_finished() for t in whole.study.trials)
    crowded = search(tmp_path)
    crowded.sit(workers=4, speeds=3)
    assert content(crowded.study) == content(whole.study)
    # It stays so when it is taken up again, interrupted or not.
    again = len(whole.study.trials)
    whole.sit(workers=2)
    assert len(whole.study.trials) == again
    parts = search(tmp_path)
    for sitting in range(4):
        until = 6 * (sitting + 1)
        parts.sit(
            workers=2, speeds=sitting, deadline=lambda until=until: 0 if len(parts.study.trials) > until else math.inf
        )
    parts.sit(workers=2)
    assert content(parts.study) == content(whole.study)


@pytest.fixture(autouse=True)
def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
