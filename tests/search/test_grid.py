"""A grid: every combination once, conditions respected, dimensions in turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated import YAML, Simulation, in_memory, space_of, suggested

from distilbench.errors import InputError
from distilbench.search import starts as module
from distilbench.search.space import Range
from distilbench.search.starts import grid, grid_values, starts_for

SMALL = """
method: mcr2
searcher: grid
budget: {trials: 99, steps: 90, rungs: 3, eta: 2}
parameters:
  output_dim: {choices: [4, 8]}
  pairs: {choices: [duplicates, noise]}
  lr: {low: 0.001, high: 0.1, log: true}
  noise: {low: 0.001, high: 0.1, log: true, when: {pairs: noise}}
fixed: {batch_size: 16, lambda: 1, clusters: 3}
enqueue: [{pairs: noise, lr: 0.001}]
"""


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        ({"choices": ("a", True, 3)}, ["a", True, 3]),
        ({"low": 0.0, "high": 1.0}, [0.0, 0.5, 1.0]),
        ({"low": 0.001, "high": 0.1, "log": True}, [0.001, 0.01, 0.1]),
        ({"low": 2, "high": 9}, [2, 6, 9]),
        ({"low": 2, "high": 3}, [2, 3]),  # no more than there are
        ({"low": 1, "high": 100, "log": True}, [1, 10, 100]),
    ],
)
def test_values(entry: dict[str, object], wanted: list[object]) -> None:
    values = grid_values(Range.model_validate(entry).model_copy(update=entry))
    assert values == pytest.approx(wanted) if isinstance(wanted[0], float) else values == wanted
    assert [type(v) for v in values] == [type(v) for v in wanted]


def test_every_combination_once_and_a_condition_spares_those_outside_it(tmp_path: Path) -> None:
    points = grid(space_of(tmp_path, SMALL), seed=0)
    assert len(points) == len({repr(sorted(p.items())) for p in points}) == 2 * 3 * (3 + 1)
    assert all(("noise" in p) == (p["pairs"] == "noise") for p in points)
    assert [p["output_dim"] for p in points[:6]] == [4, 8] * 3


def test_a_search_has_the_settings_to_try_first_and_then_the_grid(tmp_path: Path) -> None:
    space = space_of(tmp_path, SMALL)
    starts = starts_for(space, 99, seed=0)
    assert starts[:2] == [{"output_dim": d, "pairs": "noise", "lr": 0.001} for d in (4, 8)] and len(starts) == 26
    ours = Simulation(in_memory(), space, wanted=len(starts), max_pending=2)
    ours.sit(workers=3, speeds=0)
    shown = suggested(ours.study)
    for start, params in zip(starts, shown, strict=True):
        assert {name: params[name] for name in start} == start
    assert all(p["noise"] == space.defaults["noise"] for p in shown if p["pairs"] != "noise")
    again = Simulation(in_memory(), space, wanted=len(starts), max_pending=2)
    again.sit(workers=1)
    assert suggested(again.study) == shown


def test_a_grid_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT", 20)
    with pytest.raises(InputError, match="grid: the search space of mcr2 has more than 20 combinations"):
        grid(space_of(tmp_path, YAML), 0)
