"""What the options of `sweep` become, and which values are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from distilbench.commands.sweep_options import (
    SEARCHER_NAMES,
    STOPPING_NAMES,
    SWEEP_OPTIONS,
    space_settings,
    sweep_settings,
)
from distilbench.errors import InputError
from distilbench.search.samplers import SEARCHERS
from distilbench.settings.settings import SweepSettings


def settings(method: str = "mcr2", **given: Any) -> SweepSettings:
    defaults = {name: default for name, (_, default) in SWEEP_OPTIONS.items()}
    return SweepSettings(store=Path("store"), **sweep_settings(method, {**defaults, **given}))


def test_defaults_leave_everything_to_the_search_space() -> None:
    found = settings()
    assert found.methods == ("mcr2",) and found.objectives == ("quality",)
    open_ones = (found.trials, found.time_budget, found.searcher, found.stopping, found.top, found.confirm_seeds)
    assert open_ones == (None,) * 6 and found.lag is None and not found.extend


@pytest.mark.parametrize(
    ("text", "methods"),
    [("mcr2", ("mcr2",)), ("mcr2,pca", ("mcr2", "pca")), (" pca , mcr2,pca", ("pca", "mcr2")), ("all", ())],
)
def test_methods(text: str, methods: tuple[str, ...]) -> None:
    assert settings(text).methods == methods


def test_values() -> None:
    found = settings(time_budget="1h30m", objectives="bytes, quality", searcher="nsga2", stopping="none", lag=0, top=2)
    assert found.time_budget == 5400 and found.objectives == ("quality", "bytes")
    assert (found.searcher, found.stopping, found.lag, found.top) == ("nsga2", "none", 0, 2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": ","}, "--method ',': expected a method's name, several with commas between, or all"),
        ({"time_budget": "soon"}, "--time-budget soon: expected a time such as 90s, 30m, 2h or 1h30m"),
        ({"time_budget": "0m"}, "--time-budget 0m: expected a time"),
        ({"searcher": "asha"}, f"--searcher asha: expected one of {', '.join(SEARCHER_NAMES)}"),
        ({"stopping": "hyperband"}, "--stopping hyperband: expected one of asha, median, none"),
        ({"objectives": "bytes"}, "--objectives bytes: quality is missing"),
        ({"objectives": "quality,speed"}, "--objectives quality,speed: 'speed' is no objective"),
    ],
)
def test_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        settings(**given)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("field", ["trials", "top", "confirm_seeds"])
def test_no_settings_below_one(field: str) -> None:
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        settings(**{field: 0})


def test_the_names_are_those_that_there_are() -> None:
    from typing import get_args

    from distilbench.settings.choices import Stopping

    assert set(SEARCHER_NAMES) == SEARCHERS.keys() and set(STOPPING_NAMES) == set(get_args(Stopping))


def test_a_budget_is_one_of_three_and_may_be_left_open() -> None:
    for budget in (None, "small", "real", "cluster"):
        assert space_settings({"space": None, "budget": budget}) == {"space": None, "budget": budget}
    with pytest.raises(InputError, match=r"^--budget huge: expected one of small, real, cluster$"):
        space_settings({"space": None, "budget": "huge"})
