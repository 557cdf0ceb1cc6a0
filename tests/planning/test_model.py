"""The stages of a plan: their arithmetic by hand, bounds, and that more machines are never slower."""

from __future__ import annotations

import io
from itertools import pairwise
from typing import Any

import pytest
from planning_samples import given_rates
from rich.console import Console

from distilbench.commands.sweep import sweep_members
from distilbench.planning.machines import parse_gpus, parse_nodes
from distilbench.planning.model import Plan, plan_sweep, rung_seconds, step_seconds
from distilbench.planning.rates import PhaseRate, Rates, Training
from distilbench.planning.table import print_plans, shown
from distilbench.planning.work import SweepWork, TrialWork, sweep_work
from distilbench.settings.sweep import SweepSettings
from distilbench.training.length import PhaseSteps


def work_of(settings: SweepSettings) -> SweepWork:
    members, _ = sweep_members(settings, Console(file=io.StringIO()))
    return sweep_work(settings, members)


def seconds(plan: Plan) -> dict[str, float | None]:
    return {stage.name: stage.seconds for stage in plan.stages}


def test_the_work_of_a_sweep(small: SweepSettings) -> None:
    work = work_of(small)
    own = work.methods[0]
    assert len(own.trials) == 12 and [t.group for t in own.trials[:4]] == [4, 8, 4, 8]
    assert all(t.steps == 90 and t.rung_steps == (10, 30, 90) for t in own.trials)
    assert own.all_steps == 12 * 90 > own.expected_steps >= 2 * 90 + 10 * 10, "the first of a dimension goes on"
    assert work_of(small.but(peers=(8, 16, 32))).methods[0].references == 5 + 3, "FAISS's codes of the teacher"
    assert own.references == 5 and own.rows == 2 * 3 and len(own.confirmations) == 6
    assert [trained for _, trained in own.confirmations] == [True, True, False, False, False, False]
    assert work.operations == () and not work.tokens and not work.logits
    assert own.lag_for(2) == 8 and own.lag_for(64) == 128


def test_stages_by_hand_on_one_worker(small: SweepSettings) -> None:
    small = small.but(stopping="none")
    work = work_of(small)
    found = seconds(plan_sweep(small, work, [given_rates()], parse_nodes("1x1")))
    trial = 0.5 + 90 * 0.02 + 4 * 1.0  # three rungs and the start
    embed = work.evaluated / 200
    assert found["start"] == 12 and found["report"] == 3
    assert found["encode"] == pytest.approx(8 + work.sentences / 50)
    assert found["PCA"] == pytest.approx(0.5 + 1e-4 * work.train)
    assert found["search"] == pytest.approx(8 + 12 * trial + 0.1), "driving one trial overlaps with training another"
    assert found["confirm"] == pytest.approx(8 + 6 * (0.5 + 2 + embed) + 4 * (trial - 0.5))
    assert found["score"] == (5 + 6) * 2.0
    assert "tokenise" not in found


def test_none_stopped_is_the_most_that_it_takes(small: SweepSettings) -> None:
    stopped = plan_sweep(small, work_of(small), [given_rates()], parse_nodes("1x2"))
    every = small.but(stopping="none")
    whole = plan_sweep(every, work_of(every), [given_rates()], parse_nodes("1x2"))
    assert stopped.seconds < stopped.most_seconds == pytest.approx(whole.seconds) == whole.most_seconds


@pytest.mark.parametrize("stopping", ["halving", "asha", "median", "none"])
@pytest.mark.parametrize("step_s", [0.001, 1.0])
def test_more_machines_are_never_slower(small: SweepSettings, stopping: Any, step_s: float) -> None:
    small = small.model_copy(update={"stopping": stopping, "trials": 120})
    work = work_of(small)
    training = Training(phases={"compress": PhaseRate(batch=16, step_s=step_s)}, embed_per_s=100.0)
    rates = given_rates(training={"mcr2": training}, device="cuda")
    plans = [plan_sweep(small, work, [rates], c) for c in parse_gpus("1,2,3,8,16,64,1000")]
    for before, after in pairwise(plans):
        for one, other in zip(before.stages, after.stages, strict=True):
            assert (other.seconds or 0) <= (one.seconds or 0) + 1e-9, one.name
    longest = max(rung_seconds(t, training)[-1] for t in work.methods[0].trials)
    assert seconds(plans[-1])["search"] >= rates.worker_s + longest, "a trial cannot be split"
    last = next(s for s in plans[-1].stages if s.name == "search")
    first = next(s for s in plans[0].stages if s.name == "search")
    assert not last.scales
    if step_s == 1.0:
        waits = "trials wait for the results of those 8 before them; a larger --lag shortens it"
        assert first.bound == (waits if stopping == "asha" else "4 trials at once"), "the few long ones hold up others"
        assert last.bound == "the longest trial, which cannot be split"


def test_the_lag_bounds_what_runs_at_once(small: SweepSettings) -> None:
    cluster, small = parse_nodes("1x12"), small.but(stopping="asha")
    free, one = (
        plan_sweep(s, work_of(s), [given_rates()], cluster) for s in (small, small.model_copy(update={"lag": 1}))
    )
    assert seconds(one)["search"] > 3 * (seconds(free)["search"] or 0) - 30


def test_seconds_to_rungs_over_two_phases() -> None:
    phases = (PhaseSteps("compress", 40, 32), PhaseSteps("distil", 20, 16))
    training = Training(
        phases={"compress": PhaseRate(batch=16, step_s=1.0), "distil": PhaseRate(batch=16, step_s=10.0)},
        begin_s=5.0,
        judge_s=3.0,
    )
    trial = TrialWork(8, phases, (30, 50, 60))
    assert rung_seconds(trial, training) == (5 + 60 + 3, 5 + 80 + 100 + 6, 5 + 80 + 200 + 9)
    assert rung_seconds(TrialWork(8, (), ()), training) == (8.0,)
    unstarted = rung_seconds(TrialWork(8, phases, (30, 50, 60)), training)
    started = rung_seconds(TrialWork(8, phases, (30, 50, 60), start=True), training)
    assert started == tuple(s + training.judge_s for s in unstarted)  # one judgement more, before the first step
    assert step_seconds(Training(phases={"": PhaseRate(batch=8, step_s=2.0)}), "distil", 16) == 4.0


def test_what_was_not_measured_is_said_and_left_out(small: SweepSettings) -> None:
    work = work_of(small)
    bare = given_rates(training={}, encode_per_s=None)
    plan = plan_sweep(small, work, [bare], parse_nodes("1x2"))
    assert plan.unknown == ["encode", "search", "confirm"]
    out = io.StringIO()
    print_plans([plan], work, [bare], Console(file=out, width=160))
    assert "no rate was measured for encode, search, confirm: not in the totals" in out.getvalue()


def test_rates_of_a_cpu_do_not_predict_a_gpu(small: SweepSettings) -> None:
    work, cpu, gpu = work_of(small), given_rates(), given_rates(device="cuda", device_name="H200", encode_per_s=5000.0)
    foreign = plan_sweep(small, work, [cpu], parse_gpus("1")[0])
    assert foreign.device == "cpu" and "do not predict a GPU" in foreign.notes[0]
    both = [cpu, gpu]
    own = plan_sweep(small, work, both, parse_gpus("1")[0])
    assert own.device == "cuda" and not own.notes and (seconds(own)["encode"] or 0) < (seconds(foreign)["encode"] or 0)
    assert plan_sweep(small, work, both, parse_nodes("1x2")).device == "cpu"
    assert "do not predict a CPU" in plan_sweep(small, work, [gpu], parse_nodes("1x2")).notes[0]


def test_dollars_are_the_time_of_all_nodes(small: SweepSettings) -> None:
    plan = plan_sweep(small, work_of(small), [given_rates()], parse_nodes("3x2@1.20,1x4@0.40"))
    assert plan.dollars == pytest.approx(4.0 * plan.seconds / 3600)
    assert plan_sweep(small, work_of(small), [given_rates()], parse_nodes("3x2")).dollars is None


def test_a_shard_is_not_divided(small: SweepSettings) -> None:
    work, rates = work_of(small), given_rates(worker_s=0.0)
    assert work.encode_shards("cpu") == 2
    times = [seconds(plan_sweep(small, work, [rates], parse_nodes(f"1x{n}")))["encode"] for n in (1, 2, 64)]
    assert times == [work.sentences / 50, 512 / 50, 512 / 50]
    one = small.but(workers=1)
    assert seconds(plan_sweep(one, work, [rates], parse_nodes("1x64")))["encode"] == times[0]


@pytest.mark.parametrize(
    ("value", "text"), [(None, "?"), (0.24, "0.2 s"), (42, "42 s"), (150, "2.5 min"), (9000, "2.5 h")]
)
def test_times_as_they_are_shown(value: float | None, text: str) -> None:
    assert shown(value) == text


def test_every_rate_is_used(small: SweepSettings) -> None:
    """Twice as slow in any one rate is never faster, and the total of all is slower."""
    work, cluster = work_of(small), parse_nodes("1x2")
    plain = given_rates()
    before = plan_sweep(small, work, [plain], cluster).seconds
    changed: list[Rates] = [
        plain.model_copy(update={name: getattr(plain, name) * 2})
        for name in ("start_s", "worker_s", "pca_row_s", "pca_s", "row_s", "report_s")
    ]
    changed.append(plain.model_copy(update={"encode_per_s": 25.0}))
    for own in changed:
        assert plan_sweep(small, work, [own], cluster).seconds > before
