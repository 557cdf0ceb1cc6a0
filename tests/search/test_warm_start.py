"""What a search takes over from an earlier one; and nothing is lost when a run is set aside and killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from simulated import YAML, Simulation, ends, in_sqlite, space_of

from distilbench.errors import InputError
from distilbench.search.space import SearchSpace
from distilbench.search.starts import best_settings, params_within
from distilbench.search.study import best_per_group
from distilbench.storage.files import write_json

CONFIG: dict[str, Any] = {"method": "mcr2", "data": "d", "budget.steps": 90, "parameters": {}, "fixed": {}, "seed": 0}


def swept(run: Path, space: SearchSpace, wanted: int = 12, begun: int | None = None) -> Simulation:
    """A sweep's folder; with `begun`, one that was interrupted after so many trials had begun."""
    run.mkdir(parents=True)
    write_json(run / "config.json", CONFIG)
    made = Simulation(in_sqlite(run), space, wanted, max_pending=3)
    made.sit(2, 0, deadline=lambda: 0 if begun and len(made.study.trials) >= begun else float("inf"))
    return made


def variant(folder: Path, *changes: tuple[str, str], **more: Any) -> SearchSpace:
    text = YAML
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return space_of(folder, text, **more)


def test_the_best_settings_are_tried_as_far_as_the_space_has_them(tmp_path: Path) -> None:
    source, space = tmp_path / "r", variant(tmp_path)
    begun = swept(source, space)
    found = best_settings(source, variant(tmp_path, ("choices: [4, 8]", "choices: [8, 16]")))
    best = {key.bytes // 4: own[0].params for key, own in best_per_group(begun.study.trials).items()}
    assert found == [{n: v for n, v in best[4].items() if n != "output_dim"}, best[8]]


@pytest.mark.parametrize(
    ("config", "message"),
    [(None, "no sweep's config.json in it"), ({"method": "hpd"}, "a sweep of hpd; expected one of mcr2")],
)
def test_what_is_no_sweep_of_the_method_is_refused(tmp_path: Path, config: dict[str, str] | None, message: str) -> None:
    if config is not None:
        write_json(tmp_path / "config.json", config)
    with pytest.raises(InputError, match=f"--warm-start .*{message}"):
        best_settings(tmp_path, variant(tmp_path))


def test_fitting_follows_choices_ranges_and_conditions(tmp_path: Path) -> None:
    space = variant(tmp_path)
    params = {"output_dim": 4, "lr": 0.001, "clusters": 99, "pairs": "duplicates", "noise": 0.01, "other": 1}
    assert params_within(params, space) == {"output_dim": 4, "lr": 0.001, "pairs": "duplicates"}
    assert params_within({**params, "pairs": "noise"}, space)["noise"] == 0.01
    assert params_within({"output_dim": 5, "lr": "fast", "noise": 0.01}, space) == {}
    assert ends({"lr": 1.0, "clusters": 1})[0] in (0, 1, 2, 3)
