"""What a search takes over: trials where they mean the same, else settings; and nothing is lost when it is killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import optuna
import pytest
from simulated import YAML, Killed, Simulation, content, ends, space_of, suggested

from distilbench.errors import InputError
from distilbench.search import earlier
from distilbench.search.earlier import Earlier, as_frozen, carry_over, latest_study, params_within, set_aside, take_over
from distilbench.search.space import SearchSpace
from distilbench.search.study import best_per_group, open_study, sqlite_url, trial_params
from distilbench.storage.files import bound_config, write_json

CONFIG: dict[str, Any] = {"method": "mcr2", "data": "d", "budget.steps": 90, "parameters": {}, "fixed": {}, "seed": 0}


def swept(run: Path, space: SearchSpace, wanted: int = 12, begun: int | None = None) -> Simulation:
    """A sweep's folder; with `begun`, one that was interrupted after so many trials had begun."""
    run.mkdir(parents=True)
    write_json(run / "config.json", CONFIG)
    made = Simulation(open_study(sqlite_url(run / "study.db"), run.name), space, wanted, lag=3)
    made.sit(2, 0, deadline=lambda: 0 if begun and len(made.study.trials) >= begun else float("inf"))
    return made


def variant(folder: Path, *changes: tuple[str, str], **more: Any) -> SearchSpace:
    text = YAML
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return space_of(folder, text, **more)


CHANGES = {
    "a choice more": ("choices: [4, 8]", "choices: [4, 8, 16]"),
    "a choice less": ("choices: [4, 8]", "choices: [8]"),
    "a narrower range": ("low: 2, high: 30", "low: 5, high: 12"),
    "a wider range": ("low: 2, high: 30", "low: 2, high: 60"),
    "another scale": ("{low: 2, high: 30}", "{low: 2, high: 30, log: true}"),
    "a parameter more": ("fixed: {", "  eps2: {low: 0.1, high: 0.9}\nfixed: {"),
    "a parameter less": ("  clusters: {low: 2, high: 30}\nf", "f"),
    "a condition less": (", when: {pairs: noise}", ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("searcher", ["tpe", "cmaes", "nsga2", "gp"])
@pytest.mark.parametrize("change", list(CHANGES))
def test_an_extended_search_goes_on_with_all_its_trials(tmp_path: Path, change: str, searcher: str) -> None:
    old, new = CHANGES[change]
    if change == "a parameter less":
        old, new = "  clusters: {low: 2, high: 30}\n", ""
        changes = [(old, new), ("fixed: {", "fixed: {clusters: 4, ")]
    else:
        changes = [(old, new)]
    run = tmp_path / "r"
    begun = swept(run, variant(tmp_path, searcher=searcher), wanted=10, begun=7)
    assert not all(t.state.is_finished() for t in begun.study.trials)
    space = variant(tmp_path, *changes, searcher=searcher)
    before = begun.study.get_trials()
    carry_over(run, space, ["maximize"])
    study = latest_study(run)
    assert study.study_name == "r, extended 1"
    for was, now in zip(before, study.get_trials(), strict=True):
        assert (was.number, was.state, was.values, was.user_attrs) == (
            now.number,
            now.state,
            now.values,
            now.user_attrs,
        )
        assert was.intermediate_values == now.intermediate_values
        assert now.params.items() <= trial_params(was).items()
    after = Simulation(study, space, wanted=16, lag=3, trained=begun.trained)
    after.sit(2, 1)
    assert len(after.study.trials) == 16 and all(t.state.is_finished() for t in after.study.trials)
    for trial in after.study.trials[len(before) :]:
        assert {n for n, r in space.parameters.items() if r.active(trial_params(trial))} == set(trial.params)


@pytest.mark.slow
def test_an_extended_search_may_be_interrupted_too(tmp_path: Path) -> None:
    found = []
    for name, stops in (("a", [99]), ("b", [9, 12, 14, 99])):
        (tmp_path / name).mkdir()
        begun = swept(tmp_path / name / "r", variant(tmp_path), wanted=10, begun=7)
        space = variant(tmp_path, CHANGES["a narrower range"])
        carry_over(tmp_path / name / "r", space, ["maximize"])
        after = Simulation(latest_study(tmp_path / name / "r"), space, wanted=16, lag=3, trained=begun.trained)
        for stop in stops:
            after.sit(3, stop, deadline=lambda: 0 if len(after.study.trials) >= stop else float("inf"))  # noqa: B023
        found.append(content(after.study))
    assert found[0] == found[1]


def test_new_settings_of_an_extended_search_are_tried_next(tmp_path: Path) -> None:
    run = tmp_path / "r"
    swept(run, variant(tmp_path), wanted=6)
    space = variant(tmp_path, ("fixed: {", "enqueue: [{lr: 0.002, clusters: 7}]\nfixed: {"))
    carry_over(run, space, ["maximize"])
    after = Simulation(latest_study(run), space, wanted=10, lag=3)
    after.sit(1)
    assert [(p["output_dim"], p["lr"], p["clusters"]) for p in suggested(after.study)[6:8]] == [
        (4, 0.002, 7),
        (8, 0.002, 7),
    ]
    assert [p["output_dim"] for p in suggested(after.study)[8:]] == [4, 8]


def test_carrying_over_twice_and_killed_in_between_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "r"
    begun = swept(run, variant(tmp_path), wanted=6)
    real, calls = optuna.Study.add_trial, []

    def deadly(self: optuna.Study, trial: Any) -> None:
        calls.append(1)
        if len(calls) == 4:
            raise Killed
        real(self, trial)

    space = variant(tmp_path, CHANGES["a choice more"])
    with monkeypatch.context() as patch:
        patch.setattr(optuna.Study, "add_trial", deadly)
        with pytest.raises(Killed):
            carry_over(run, space, ["maximize"])
    assert latest_study(run).study_name == "r"  # the half-made one is none
    for generation in (1, 2):
        carry_over(run, space, ["maximize"])
        study = latest_study(run)
        assert study.study_name == f"r, extended {generation}" and len(study.trials) == len(begun.study.trials)


def test_the_study_of_a_folder_that_was_renamed(tmp_path: Path) -> None:
    swept(tmp_path / "r", variant(tmp_path), wanted=3)
    (tmp_path / "r").rename(tmp_path / "copy")
    assert len(latest_study(tmp_path / "copy").trials) == 3
    with pytest.raises(InputError, match=r"absent: no study.db or study.json in it; expected the folder of a sweep"):
        latest_study(tmp_path / "absent")


# Set aside


def test_another_metric_sets_results_aside_and_tries_the_best_settings_first(tmp_path: Path) -> None:
    run, space = tmp_path / "r", variant(tmp_path)
    begun = swept(run, space)
    (run / "trials.jsonl").write_text("{}\n")
    best = {d: own[0].params for d, own in best_per_group(begun.study.trials).items()}
    aside = set_aside(run, space)
    assert sorted(p.name for p in run.iterdir()) == ["before-1", "config.json", "earlier.json"]
    assert {"study.db", "trials.jsonl", "config.json"} <= {p.name for p in aside.iterdir()}
    kept = earlier.kept_earlier(run)
    assert kept.history == [] and {s["output_dim"]: s for s in kept.settings} == best
    assert len(latest_study(aside).trials) == 12


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(1, 7))
def test_setting_aside_can_be_killed_and_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    run, space = tmp_path / "r", variant(tmp_path)
    best = {d: o[0].params for d, o in best_per_group(swept(run, space, 8).study.trials).items()}
    for name in ("trials.jsonl", "earlier.json"):
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
        for owner, name in ((Path, "rename"), (Path, "mkdir"), (earlier.shutil, "copyfile"), (earlier, "write_json")):
            patch.setattr(owner, name, deadly(getattr(owner, name)))
        with pytest.raises(Killed):
            set_aside(run, space)
    assert bound_config(run) == CONFIG
    aside = set_aside(run, space)
    assert aside.name == "before-1" and len(latest_study(aside).trials) == 8
    assert {s["output_dim"]: s for s in earlier.kept_earlier(run).settings} == best
    assert {"trials.jsonl", "earlier.json", "config.json", "study.db"} <= {p.name for p in aside.iterdir()}


# Warm start


def test_the_same_measured_is_history(tmp_path: Path) -> None:
    source, space = tmp_path / "r", variant(tmp_path)
    begun = swept(source, space)
    narrower = variant(tmp_path, CHANGES["a narrower range"])
    config = {**CONFIG, "seed": 4, "searcher": "gp"}
    found = take_over(source, config, narrower)
    assert found.settings == [] and len(found.history) == 12
    earlier.keep_earlier(tmp_path / "r", found)
    kept = earlier.kept_earlier(tmp_path / "r")
    frozen = as_frozen(kept.history, narrower, 1)
    for trial, was in zip(frozen, begun.study.trials, strict=True):
        assert (trial.state, trial.intermediate_values) == (was.state, was.intermediate_values)
        assert was.state.name != "COMPLETE" or trial.values == was.values
        assert set(was.params) - set(trial.params) <= {"clusters"}
        assert 5 <= trial.params.get("clusters", 5) <= 12
    # The space has changed again since it was kept.
    again = variant(tmp_path, ("choices: [4, 8]", "choices: [8]"), ("{low: 0.0001,", "{low: 0.0009,"))
    for trial in as_frozen(kept.history, again, 1):
        assert trial.params.get("output_dim", 8) == 8 and trial.params.get("lr", 1) >= 0.0009
    assert all(not trial.intermediate_values for trial in as_frozen(kept.history, again, 2))


def test_something_else_measured_is_settings_to_try(tmp_path: Path) -> None:
    source, space = tmp_path / "r", variant(tmp_path)
    begun = swept(source, space)
    found = take_over(source, {**CONFIG, "data": "other"}, variant(tmp_path, ("choices: [4, 8]", "choices: [8, 16]")))
    assert found.history == []
    best = {d: own[0].params for d, own in best_per_group(begun.study.trials).items()}
    assert found.settings == [{n: v for n, v in best[4].items() if n != "output_dim"}, best[8]]


@pytest.mark.parametrize(
    ("config", "message"),
    [(None, "no sweep's config.json in it"), ({"method": "hpd"}, "a sweep of hpd; expected one of mcr2")],
)
def test_what_is_no_sweep_of_the_method_is_refused(tmp_path: Path, config: dict[str, str] | None, message: str) -> None:
    if config is not None:
        write_json(tmp_path / "config.json", config)
    with pytest.raises(InputError, match=f"--warm-start .*{message}"):
        take_over(tmp_path, CONFIG, variant(tmp_path))


def test_nothing_kept_is_nothing_known(tmp_path: Path) -> None:
    assert earlier.kept_earlier(tmp_path) == Earlier([], [])


def test_fitting_follows_choices_ranges_and_conditions(tmp_path: Path) -> None:
    space = variant(tmp_path)
    params = {"output_dim": 4, "lr": 0.001, "clusters": 99, "pairs": "duplicates", "noise": 0.01, "other": 1}
    assert params_within(params, space) == {"output_dim": 4, "lr": 0.001, "pairs": "duplicates"}
    assert params_within({**params, "pairs": "noise"}, space)["noise"] == 0.01
    assert params_within({"output_dim": 5, "lr": "fast", "noise": 0.01}, space) == {}
    assert ends({"lr": 1.0, "clusters": 1})[0] in (0, 1, 2, 3)
