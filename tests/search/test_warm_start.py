"""What a search takes over from an earlier one; and nothing is lost when a run is set aside and killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from simulated import YAML, Killed, Simulation, ends, space_of

from distilbench.errors import InputError
from distilbench.search import warm_start
from distilbench.search.space import SearchSpace
from distilbench.search.study import best_per_group, open_study, sqlite_url
from distilbench.search.study_storage import latest_study
from distilbench.search.warm_start import best_settings, params_within, set_aside
from distilbench.storage.files import bound_config, write_json

CONFIG: dict[str, Any] = {"method": "mcr2", "data": "d", "budget.steps": 90, "parameters": {}, "fixed": {}, "seed": 0}


def swept(run: Path, space: SearchSpace, wanted: int = 12, begun: int | None = None) -> Simulation:
    """A sweep's folder; with `begun`, one that was interrupted after so many trials had begun."""
    run.mkdir(parents=True)
    write_json(run / "config.json", CONFIG)
    made = Simulation(open_study(sqlite_url(run / "study.db"), run.name), space, wanted, max_pending=3)
    made.sit(2, 0, deadline=lambda: 0 if begun and len(made.study.trials) >= begun else float("inf"))
    return made


def variant(folder: Path, *changes: tuple[str, str], **more: Any) -> SearchSpace:
    text = YAML
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return space_of(folder, text, **more)


# Set aside


def test_what_is_there_is_set_aside(tmp_path: Path) -> None:
    run, space = tmp_path / "r", variant(tmp_path)
    swept(run, space)
    (run / "trials.jsonl").write_text("{}\n")
    aside = set_aside(run)
    assert sorted(p.name for p in run.iterdir()) == ["before-1", "config.json"]
    assert {"study.db", "trials.jsonl", "config.json"} <= {p.name for p in aside.iterdir()}
    assert len(latest_study(aside).trials) == 12 and set_aside(run) == aside


@pytest.mark.parametrize("moment", range(1, 6))
def test_setting_aside_can_be_killed_and_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    run = tmp_path / "r"
    swept(run, variant(tmp_path), 3)
    for name in ("trials.jsonl", "warm_start.json"):
        (run / name).write_text(json.dumps({"history": [], "settings": []}))
    calls = []

    def deadly(real: Any) -> Any:
        def call(*a: Any, **k: Any) -> Any:
            calls.append(1)
            if len(calls) == moment:
                raise Killed
            return real(*a, **k)

        return call

    with monkeypatch.context() as patch:
        for owner, name in ((Path, "rename"), (Path, "mkdir"), (warm_start.shutil, "copyfile")):
            patch.setattr(owner, name, deadly(getattr(owner, name)))
        with pytest.raises(Killed):
            set_aside(run)
    assert bound_config(run) == CONFIG
    aside = set_aside(run)
    assert aside.name == "before-1" and len(latest_study(aside).trials) == 3
    assert {"trials.jsonl", "warm_start.json", "config.json", "study.db"} <= {p.name for p in aside.iterdir()}


# Warm start


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
