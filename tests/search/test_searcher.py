"""The searcher without Ray: the same trials and verdicts whatever runs at once, and whatever is killed at any moment."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import BaseStorage
from optuna.trial import TrialState
from simulated import YAML, Events, Killed, Simulation, Tune, content, in_memory, in_sqlite, space_of

from distilbench.codes import competition_key
from distilbench.search import searcher as module
from distilbench.search.searcher import RETRIES, RungScheduler, StudySearcher
from distilbench.search.study import MACHINE, PARAMS, STEPS, best_per_group, trial_rungs
from distilbench.storage.retry import StorageGone

STATES = {TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL}


RULES: dict[str, dict[str, Any]] = {
    "halving": {"stopping": "halving", "searcher": "random"},
    "halving, tpe": {"stopping": "halving", "searcher": "tpe"},
    **{rule: {"stopping": rule} for rule in ("asha", "median", "none")},
}
"""What a search space says for each stopping rule."""


def whole(params: dict[str, Any]) -> tuple[int, str, bool]:
    """Every trial trains to its third rung."""
    return 3, "", False


def result(rungs: list[float | None], done: bool = False, failed: str = "", **more: Any) -> dict[str, Any]:
    made = [{"rung": n, "step": 10 * n, "objective": v, "metrics": {"dev_quality": v}} for n, v in enumerate(rungs, 1)]
    return {"rungs": made, "halt": "", "failed": failed, "done": done, **more}


# Any number at once, in any order


@pytest.mark.parametrize(
    ("stopping", "several"),
    [*itertools.product(["halving", "asha", "median", "none"], [False, True]), ("halving, tpe", False)],
)
def test_any_order_of_completion_gives_the_same_study(tmp_path: Path, stopping: str, several: bool) -> None:
    space = space_of(tmp_path, **RULES[stopping])
    contents, objectives = set(), ("quality", "bytes") if several else ("quality",)
    for workers, speeds in ((1, 0), (2, 0), (3, 1), (8, 2), (8, 3)):
        one = Simulation(in_memory(several), space, wanted=24, max_pending=8, objectives=objectives)
        one.sit(workers, speeds)
        contents.add("\n".join(content(one.study)))
    assert len(contents) == 1
    states = Counter(t.state for t in one.study.trials)
    assert sum(states.values()) == 24 and set(states) == (
        STATES if stopping != "none" else STATES - {TrialState.PRUNED}
    )


# Killed and continued


def kill_at(monkeypatch: pytest.MonkeyPatch, watched: BaseStorage, at: int) -> None:
    """Kill the driver before the `at`-th time that it writes; the searcher's own study in memory is another."""
    count = itertools.count(1)
    for name in ("create_new_trial", "set_trial_user_attr", "set_trial_intermediate_value", "set_trial_state_values"):
        real = getattr(type(watched), name)

        def deadly(*a: Any, real: Any = real, **k: Any) -> Any:
            if a[0] is watched and next(count) == at:
                raise Killed
            return real(*a, **k)

        monkeypatch.setattr(type(watched), name, deadly)


@pytest.mark.parametrize(("stopping", "first"), [("halving", 1), ("halving, tpe", 2), ("asha", 3)])
def test_killed_at_any_write_it_ends_with_the_same_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopping: str, first: int
) -> None:
    """At every third write, which is another one with each rule."""
    space, wanted = space_of(tmp_path, **RULES[stopping]), 12
    uninterrupted = Simulation(in_memory(), space, wanted, max_pending=3)
    uninterrupted.sit(workers=3, speeds=0)
    reference = content(uninterrupted.study)
    failing = set() if stopping == "halving, tpe" else {TrialState.FAIL}  # none of TPE's twelve fails
    assert {t.state for t in uninterrupted.study.trials} == STATES - {TrialState.FAIL} | failing
    for at in itertools.count(first, 3):
        ours = Simulation(in_memory(), space, wanted, max_pending=3)
        with monkeypatch.context() as patch:
            kill_at(patch, ours.study._storage, at)
            try:
                ours.sit(workers=3, speeds=at)
            except Killed:
                pass
            else:
                break
        ours.sit(workers=2, speeds=at + 1)
        assert content(ours.study) == reference, f"killed at write {at}"
    assert at > 50


# What ends a search before its last trial


def test_with_halving_nothing_is_trained_while_its_verdict_is_open(tmp_path: Path) -> None:
    space = space_of(tmp_path, **RULES["halving"])
    ours = Simulation(in_memory(), space, wanted=24, outcome=whole)
    ours.sit(workers=8, speeds=3)
    trials = ours.study.trials
    assert all(ours.trained[t.number] == max(trial_rungs(t)) for t in trials if t.state == TrialState.PRUNED)
    ends = Counter(max(trial_rungs(t)) for t in trials if trial_rungs(t))
    groups = {competition_key(t.user_attrs[PARAMS]) for t in trials if t.state == TrialState.COMPLETE}
    assert sum(ends.values()) == 24 and ends[3] < 24 / 2 and len(groups) == 2
    paused = [t.user_attrs["reason"] for t in trials if t.state == TrialState.PRUNED]
    assert all(t.user_attrs[STEPS] == 10 * max(trial_rungs(t), default=0) for t in trials)
    assert set(paused) <= {f"not among the best 1/2 at rung {rung}" for rung in (1, 2)}


@pytest.mark.parametrize("rule", ["halving", "halving, tpe"])
def test_with_halving_workers_may_die_and_the_search_may_grow(tmp_path: Path, rule: str) -> None:
    space, contents = space_of(tmp_path, **RULES[rule]), set()
    for speeds in range(4):
        ours = Simulation(in_memory(), space, wanted=11)
        ours.sit(workers=1 + speeds, speeds=speeds, deaths=0.1)
        contents.add("\n".join(content(ours.study)))
        ours.wanted = 24
        ours.sit(workers=3, speeds=speeds, deaths=0.1)
        states = Counter(t.state for t in ours.study.trials)
        assert sum(states.values()) == 24 and states.keys() == STATES
    assert len(contents) == 1


def test_with_halving_what_waits_when_the_time_is_over_can_be_chosen_and_goes_on(tmp_path: Path) -> None:
    space = space_of(tmp_path, YAML.replace("[4, 8]", "[4]"), eta=3, **RULES["halving"])
    ours = Simulation(in_memory(), space, wanted=16, outcome=whole)
    ours.sit(workers=1, deadline=lambda: 0 if ours.trained.get(1, 0) >= 1 else math.inf)
    first, _ = trials = ours.study.trials
    assert first.state == TrialState.RUNNING and list(trial_rungs(first)) == [1], "it waits for two others"
    assert first.intermediate_values and not best_per_group(trials)
    undisturbed = Simulation(in_memory(), space, wanted=16, outcome=whole)
    undisturbed.sit(workers=1)
    ours.sit(workers=3)
    assert content(ours.study) == content(undisturbed.study)


@pytest.mark.parametrize("how", ["deadline", "halt"])
def test_what_ends_a_search_leaves_its_trials_running_and_another_finishes_them(tmp_path: Path, how: str) -> None:
    space = space_of(tmp_path)
    uninterrupted = Simulation(in_memory(), space, wanted=16, max_pending=4)
    uninterrupted.sit(workers=1)
    ours = Simulation(in_memory(), space, wanted=16, max_pending=4)
    if how == "deadline":
        searcher = ours.sit(workers=4, speeds=0, deadline=lambda: 0 if len(ours.study.trials) >= 9 else math.inf)
        assert searcher.halted == ""
    else:
        searcher, scheduler = ours.searcher(workers=2), None
        scheduler = RungScheduler(searcher)
        assert isinstance(searcher.suggest("a"), dict) and isinstance(searcher.suggest("b"), dict)
        searcher.on_trial_complete("a", {"rungs": [], "halt": "no space left", "failed": "", "done": True})
        assert searcher.halted == "no space left" and searcher.suggest("c") == "FINISHED"
        assert scheduler.on_trial_result(None, Tune("b"), result([0.5])) == "STOP"  # type: ignore[arg-type]
        searcher.on_trial_complete("b", result([0.5]))
    running = [t.number for t in ours.study.trials if t.state == TrialState.RUNNING]
    assert running and searcher.suggest("z") == "FINISHED"
    again = ours.searcher(workers=len(running))
    assert again.remaining == 16 - sum(t.state.is_finished() for t in ours.study.trials)
    assert [again.suggest(str(n))["number"] for n in running] == running  # type: ignore[index]
    ours.study.trials  # noqa: B018
    if how == "deadline":
        ours.sit(workers=3, speeds=5)
        assert content(ours.study) == content(uninterrupted.study)
        assert sum(t.state.is_finished() for t in ours.study.trials) == 16


def test_storage_that_is_gone_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Simulation(in_memory(), space_of(tmp_path), wanted=8, max_pending=8)
    searcher, waits = ours.searcher(workers=4), []
    for name in "abcd":
        searcher.suggest(name)

    def gone(action: Any, **given: Any) -> Any:
        waits.append(1)
        raise StorageGone("the disk is gone")

    monkeypatch.setattr(module, "retry_io", gone)
    for name in "abcd":
        assert not searcher.report(name, result([0.5]))
        searcher.on_trial_complete(name, result([0.5]))
    assert len(waits) == 1 and searcher.halted == "the disk is gone" and searcher.suggest("e") == "FINISHED"
    monkeypatch.undo()
    ours.sit(workers=2)
    assert all(t.state.is_finished() for t in ours.study.trials) and len(ours.study.trials) == 8


# Workers that die


def lose(searcher: StudySearcher, name: str, times: int) -> str:
    """A trial's workers die at work; the name of the last one that was given it."""
    for _ in range(times):
        searcher.begun(name)
        searcher.on_trial_complete(name, None, error=True)
        name, given = f"{name}'", searcher.suggest(f"{name}'")
        assert given is None or isinstance(given, dict)
    return name


def test_a_trial_whose_worker_died_is_handed_out_again(tmp_path: Path) -> None:
    ours = Simulation(in_memory(), space_of(tmp_path), wanted=2, max_pending=8)
    searcher = ours.searcher(workers=2)
    first, second = searcher.suggest("a"), searcher.suggest("b")
    assert searcher.suggest("c") is None
    searcher.begun("a")
    searcher.report("a", result([0.5]))
    searcher.on_trial_complete("a", None, error=True)
    assert searcher.suggest("c") == first != second
    assert [t.state for t in ours.study.trials] == [TrialState.RUNNING] * 2 and searcher.suggest("d") is None
    last = lose(searcher, "c", RETRIES - 1)
    assert searcher.died == []
    lose(searcher, last, 1)
    assert searcher.died == [0] and ours.study.trials[0].state == TrialState.FAIL
    assert list(trial_rungs(ours.study.trials[0])) == [1]


def test_a_trial_whose_worker_dies_while_nodes_are_lost_is_not_at_fault(tmp_path: Path) -> None:
    """Spot machines go more often than a trial may lose workers."""
    lost: set[str] = set()
    ours = Simulation(in_memory(), space_of(tmp_path), wanted=1, max_pending=8)
    searcher = ours.searcher(lost_nodes=lambda: frozenset(lost))
    for number in range(3 * RETRIES + RETRIES + 1):
        name = str(number)
        assert searcher.died == [] and isinstance(searcher.suggest(name), dict)
        searcher.begun(name)
        searcher.report(name, {**result([0.5]), "machine": {"device": "H", "cpus": 3}})
        if number < 3 * RETRIES:  # from then on it is the trial's own fault, whatever was lost before
            lost.add(name)
        searcher.on_trial_complete(name, None, error=True)
    assert searcher.died == [0]
    assert ours.study.trials[0].user_attrs.get(MACHINE) == {"device": "H", "cpus": 3}


@pytest.mark.parametrize("lag", [8, 4])
def test_deaths_change_no_trial(tmp_path: Path, lag: int) -> None:
    calm = Simulation(in_memory(), space_of(tmp_path), wanted=16, max_pending=lag)
    calm.sit(workers=1)
    for seed in range(3):
        ours = Simulation(in_memory(), space_of(tmp_path), wanted=16, max_pending=lag)
        ours.sit(workers=3, speeds=seed, deaths=0.2)
        assert content(ours.study) == content(calm.study)


# What the study is told


def test_states_are_told_truly(tmp_path: Path) -> None:
    ours, events = Simulation(in_sqlite(tmp_path), space_of(tmp_path), wanted=6, max_pending=8), Events()
    searcher = ours.searcher(workers=6, events=events)
    scheduler = RungScheduler(searcher)
    dims = {name: searcher.suggest(name)["params"]["output_dim"] for name in "abcdef"}  # type: ignore[index]
    assert dims["a"] == dims["c"] == dims["e"] != dims["b"]

    def reports(name: str, values: list[float | None]) -> str:
        return scheduler.on_trial_result(None, Tune(name), result(values))  # type: ignore[arg-type]

    assert reports("e", [0.1]) == "CONTINUE"  # a and c may still be worse
    assert reports("b", [-9.0]) == "CONTINUE"  # of another dimension
    assert reports("a", [0.5]) == "CONTINUE"
    assert reports("c", [0.7]) == "CONTINUE"
    assert reports("e", [0.1, 99.0]) == "STOP"  # the verdict of its first rung
    searcher.on_trial_complete("e", result([0.1, 99.0]))
    searcher.on_trial_complete("c", result([0.7, 0.8, 0.9], done=True))
    searcher.on_trial_complete("a", result([0.5], done=True, failed="loss nan at step 7", collapsed=False))
    lose(searcher, "b", RETRIES + 1)
    searcher.on_trial_complete("d", result([0.5, None, None], done=True))  # no such trial is stopped at its last rung
    names = {t.number: t.state.name for t in events.ended}
    assert names == {0: "FAIL", 1: "FAIL", 2: "COMPLETE", 3: "PRUNED", 4: "PRUNED"}
    trials = ours.study.trials
    assert trials[2].value == 0.9 and trials[2].intermediate_values == {1: 0.7, 2: 0.8, 3: 0.9}
    assert trials[4].intermediate_values == {1: 0.1} and list(trial_rungs(trials[4])) == [1]
    assert trials[0].user_attrs["reason"] == "loss nan at step 7" and list(trial_rungs(trials[0])) == [1]
    assert "worker died" in trials[1].user_attrs["reason"] and searcher.died == [1]
    assert trials[5].state == TrialState.RUNNING


@pytest.mark.parametrize("several", [False, True])
def test_a_trial_whose_last_objective_is_no_number_failed(tmp_path: Path, several: bool) -> None:
    objectives = ("quality", "latency") if several else ("quality",)
    ours = Simulation(in_memory(several), space_of(tmp_path), wanted=1, objectives=objectives)
    searcher = ours.searcher()
    searcher.suggest("a")
    searcher.on_trial_complete("a", result([None if not several else 0.5], done=True))  # and no latency
    [trial] = ours.study.trials
    assert (trial.state, trial.values) == (TrialState.FAIL, None)
    assert trial.user_attrs["reason"] == f"objective {objectives[-1]} is nan"


@pytest.mark.parametrize(
    ("reasons", "stopped"),
    [
        (["AcceleratorError: CUDA error: device-side assert triggered\nhow to debug"] * 5, True),
        (["RuntimeError: no kernel image (loop.py, line 7)"] * 5, True),
        (["RuntimeError: one (loop.py, line 7)"] * 4 + ["RuntimeError: two (loop.py, line 7)"], False),
        (["RuntimeError: one (loop.py, line 7)"] * 4 + ["", "RuntimeError: one (loop.py, line 7)"], False),
        (["loss nan, gradient norm nan at step 0"] * 5, False),
        (["out of memory on the device: CUDA out of memory"] * 5, False),
    ],
)
def test_a_search_whose_trials_all_fail_alike_ends(tmp_path: Path, reasons: list[str], stopped: bool) -> None:
    ours = Simulation(in_memory(), space_of(tmp_path), wanted=9, max_pending=8)
    searcher = ours.searcher(workers=1)
    for name, reason in zip("abcdef", reasons, strict=False):
        assert isinstance(searcher.suggest(name), dict)
        searcher.on_trial_complete(name, result([] if reason else [0.1, 0.2, 0.3], done=True, failed=reason))
    assert bool(searcher.halted) == stopped
    assert (searcher.suggest("z") == "FINISHED") == stopped
    if stopped:
        told = "5 trials one after the other failed alike: " + reasons[0].splitlines()[0]
        assert searcher.halted == f"{told}; the same command goes on with the other trials once that is mended"
        assert ours.searcher(workers=1).remaining == 4


def test_failures_are_judged_by_what_they_reported(tmp_path: Path) -> None:
    """Where its verdict was open, a trial that failed later would have been stopped before it could."""
    ours = Simulation(in_memory(), space_of(tmp_path), wanted=6, max_pending=8)
    searcher = ours.searcher(workers=6)
    for name in "abcdef":
        searcher.suggest(name)
    searcher.on_trial_complete("c", result([0.1, None], done=True, failed="collapsed"))
    searcher.on_trial_complete("e", result([0.9, None], done=True, failed="collapsed"))
    assert all(t.state == TrialState.RUNNING for t in ours.study.trials)
    searcher.report("a", result([0.5]))
    assert ours.study.trials[2].state == TrialState.PRUNED and list(trial_rungs(ours.study.trials[2])) == [1]
    trial = ours.study.trials[4]
    assert trial.state == TrialState.FAIL and trial_rungs(trial)[2]["collapsed"] is True
    assert trial.intermediate_values == {1: 0.9}


def test_floats_come_back_from_sqlite_as_they_were(tmp_path: Path) -> None:
    ours = Simulation(in_sqlite(tmp_path), space_of(tmp_path), wanted=10, max_pending=2, outcome=whole)
    ours.sit(workers=2)
    memory = Simulation(in_memory(), space_of(tmp_path), wanted=10, max_pending=2, outcome=whole)
    memory.sit(workers=1)
    assert content(in_sqlite(tmp_path)) == content(memory.study)
    for trial in in_sqlite(tmp_path).trials:
        assert {name: trial.user_attrs[PARAMS][name] for name in trial.params} == trial.params


def test_the_study_opens_with_optuna_alone(tmp_path: Path) -> None:
    Simulation(in_sqlite(tmp_path), space_of(tmp_path), wanted=4).sit(workers=2)
    study = optuna.load_study(study_name="s", storage=f"sqlite:///{tmp_path}/study.db")
    assert len(study.trials) == 4 and study.direction.name == "MAXIMIZE"
    assert study.best_trial.user_attrs["reason"] == ""
