"""Hours and dollars of a sweep on a cluster: its stages one after the other, each from the work and the measured rates.

With N sentences, W workers (one on each CPU, or `--gpus-per-worker` of a GPU), T trials of which c run at once, D output
dimensions, and the rates of `planning.rates`:

    start       start_s
    augment     for each operation: worker_s + N_train / (rate x W)
    encode      worker_s + most shards on one worker x shard_rows / rate: a shard is not divided
    PCA         pca_s + min(N_train, 100,000) x pca_row_s, in the driver
    tokenise    worker_s + N / (rate x W), and W = 1 below 16,384 sentences
    search      `schedule.play` of trials that take begin_s + steps x step_s + rungs x judge_s, stopped by `search.fates`
    confirm     D x top x seeds jobs on c workers, the first seed's already trained, each to embed what is evaluated
    score       (1 + 2 D + P + D x top x seeds) x row_s, in the driver; references (1 + 2 D, and P sizes of FAISS's codes)
                before the search
    report      report_s

A rate holds for one worker at work beside others, as it was measured; W workers on machines like that one are W times as
fast. Nothing is said of the network, of shared disks, of machines that are lost, of nodes that have to start first, nor of a
store that has some of it already.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from distilbench.planning.cohorts import play_cohorts
from distilbench.planning.machines import Cluster
from distilbench.planning.rates import Rates, Training
from distilbench.planning.schedule import PlannedTrial, list_schedule, play
from distilbench.planning.work import MethodWork, SweepWork, TrialWork
from distilbench.prepare.encode import SHARD_ROWS
from distilbench.prepare.tokens import SHARD_ROWS as TOKEN_ROWS
from distilbench.settings.sweep import SweepSettings

HELPS = 0.9
"""A change that leaves no more of a search's time than this shortens it."""


@dataclass(frozen=True)
class Stage:
    """A stage; `seconds` of None is what no rate was measured for."""

    name: str
    seconds: float | None
    bound: str
    """What bounds it, in words."""
    scales: bool
    """Whether more machines shorten it."""
    most_s: float | None = None
    """The search's seconds if no trial were stopped."""


@dataclass(frozen=True)
class Plan:
    """A sweep on one cluster."""

    cluster: Cluster
    device: str
    """Whose rates were taken: "cpu" or "cuda"."""
    at_once: int
    stages: tuple[Stage, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def seconds(self) -> float:
        """The seconds of all stages that are known."""
        return math.fsum(stage.seconds or 0.0 for stage in self.stages)

    @property
    def most_seconds(self) -> float:
        """The same if no trial were stopped."""
        return math.fsum((s.seconds if s.most_s is None else s.most_s) or 0.0 for s in self.stages)

    @property
    def unknown(self) -> list[str]:
        """Stages without a rate."""
        return [stage.name for stage in self.stages if stage.seconds is None]

    @property
    def dollars(self) -> float | None:
        """For all machines from start to end; None where a price is not known."""
        price = self.cluster.dollars_per_hour
        return None if price is None else price * self.seconds / 3600

    @property
    def bottleneck(self) -> Stage:
        """The stage that takes longest."""
        return max(self.stages, key=lambda stage: stage.seconds or 0.0)


def plan_sweep(settings: SweepSettings, work: SweepWork, all_rates: Sequence[Rates], cluster: Cluster) -> Plan:
    """The stages of a sweep on `cluster`, from the rates of its device, or where there are none, of another (a note says so).

    Raises:
        InputError: one trial does not fit on the cluster.
    """
    at_once = cluster.trials_at_once(settings.share)
    device = "cuda" if cluster.gpus else "cpu"
    fitting = [rates for rates in all_rates if rates.device == device]
    rates = (fitting or list(all_rates))[0]
    notes = [] if fitting else [_foreign(rates, device)]
    stages = [Stage("start", rates.start_s, "one process: imports, the corpus, Ray", False)]
    stages += _preparation(settings, work, rates, next((r for r in all_rates if r.device == "cpu"), rates), cluster)
    many = len(work.methods) > 1
    for method_work in work.methods:
        ending = f" ({method_work.space.method})" if many else ""
        stages += _method(method_work, work, rates, at_once, ending)
    stages.append(Stage("report", rates.report_s, "one process", False))
    return Plan(cluster, rates.device, at_once, tuple(stages), tuple(notes))


def _foreign(rates: Rates, device: str) -> str:
    kinds = {"cpu": "a CPU", "cuda": "a GPU"}
    return (
        f"the rates are of {kinds[rates.device]} ({rates.device_name}) and do not predict {kinds[device]}: each share of "
        f"{kinds[device]} is counted as one such worker; measure on such a machine (--measure) and give both files"
    )


def _preparation(
    settings: SweepSettings, work: SweepWork, rates: Rates, on_cpu: Rates, cluster: Cluster
) -> list[Stage]:
    size = settings.pool
    limit = size.workers or 10**9

    def workers(gpu: bool, shards: int) -> int:
        fit = cluster.workers(1, size.gpus) if gpu and cluster.gpus else cluster.cpus
        return max(1, min(limit, fit, shards))

    stages = []
    for name, gpu in work.operations:
        worker_rates = rates if gpu else on_cpu
        rate, at_once = worker_rates.augment_per_s.get(name), workers(gpu, -(-work.train // SHARD_ROWS["cpu"]))
        seconds = None if rate is None else worker_rates.worker_s + work.train / (rate * at_once)
        stages.append(Stage(f"augment: {name}", seconds, f"{at_once} workers", True))
    on_gpu = settings.backend != "onnx"
    device = rates.device if on_gpu else "cpu"
    shards = work.encode_shards(device)
    encoders = workers(on_gpu, shards)
    given = settings.teacher_vectors is not None
    seconds = 0.0 if given else None
    if rates.encode_per_s is not None and not given:
        rows = min(work.sentences, -(-shards // encoders) * SHARD_ROWS[device])
        seconds = rates.worker_s + rows / rates.encode_per_s
    few = encoders == shards
    stages.append(Stage("encode", seconds, f"{encoders} workers" + ", no more shards" * few, not few))
    pca = None if rates.pca_row_s is None else rates.pca_s + work.pca_rows * rates.pca_row_s
    stages.append(Stage("PCA", pca, "one process", False))
    if work.tokens:
        parts = -(-work.sentences // TOKEN_ROWS)
        tokenisers = workers(False, parts)
        rate = on_cpu.tokenise_per_s
        seconds = None if rate is None else on_cpu.worker_s + work.sentences / (rate * tokenisers)
        stages.append(Stage("tokenise", seconds, f"{tokenisers} workers", tokenisers < parts))
    if work.logits:
        stages.append(Stage("cross-encoder", None, "fine-tuned in one process", False))
    return stages


def _method(method_work: MethodWork, work: SweepWork, rates: Rates, at_once: int, ending: str) -> list[Stage]:
    students = {trial.student for trial in method_work.trials}
    training = {student: rates.of(method_work.space.method, student) for student in students}
    score = None if rates.row_s is None else (method_work.references + method_work.rows) * rates.row_s
    scored = Stage(f"score{ending}", score, "one process: searches are timed", False)
    measured = {student: found for student, found in training.items() if found is not None}
    if len(measured) < len(training):
        unknown = [Stage(f"{name}{ending}", None, "", True) for name in ("search", "confirm")]
        return [*unknown, scored]
    return [
        _search(method_work, measured, rates, at_once, ending),
        _confirm(method_work, work, measured, rates, at_once, ending),
        scored,
    ]


def rung_seconds(trial: TrialWork, training: Training) -> tuple[float, ...]:
    """Seconds from the start of a trial to each of its rungs, judged."""
    ends, total, at = [], 0, 0.0
    for phase in trial.phases:
        total += phase.steps
        ends.append((total, step_seconds(training, phase.name, phase.batch)))
    seconds, step = [], 0
    for number, rung in enumerate(trial.rung_steps, start=2 if trial.start else 1):
        for end, step_s in ends:
            steps = max(0, min(rung, end) - step)
            at += steps * step_s
            step += steps
        seconds.append(training.begin_s + at + number * training.judge_s)
    return tuple(seconds) or (training.begin_s + training.judge_s,)


def step_seconds(training: Training, phase: str, batch: int) -> float:
    """The seconds of one step; a batch of another size than was measured takes in proportion to it."""
    phase_rate = training.phases.get(phase) or training.phases.get("")
    if phase_rate is None:
        phase_rate = max(training.phases.values(), key=lambda p: p.step_s)
    return phase_rate.step_s * batch / phase_rate.batch


OfStudent = Mapping[str | None, Training]
"""The rates of one method, by student."""


def _search(method_work: MethodWork, training: OfStudent, rates: Rates, at_once: int, ending: str) -> Stage:
    seconds = lru_cache(maxsize=None)(lambda trial: rung_seconds(trial, training[trial.student]))
    budget = method_work.space.budget
    halving = budget.stopping == "halving"

    def mean(workers: int, draws: Sequence[Sequence[int]], lag: int | None = None) -> tuple[float, float, float]:
        played = []
        for ends in draws:
            trials = [PlannedTrial(t.group, seconds(t), end) for t, end in zip(method_work.trials, ends, strict=True)]
            apart = method_work.lag_for(workers) if lag is None else lag
            delays = {"worker_s": rates.worker_s, "driver_s": rates.driver_s}
            if halving:
                played.append(play_cohorts(trials, workers, budget.eta, **delays))
            else:
                played.append(play(trials, workers, apart, **delays))
        makespan, work, longest = (math.fsum(column) / len(played) for column in zip(*played, strict=True))
        return makespan, work, longest

    makespan, work, longest = mean(at_once, method_work.draws)
    most, _, _ = mean(at_once, [[len(t.rung_steps) or 1 for t in method_work.trials]])
    twice, freely = mean(2 * at_once, method_work.draws)[0], mean(at_once, method_work.draws, lag=0)[0]
    if rates.worker_s > 0.5 * makespan:
        bound = "starting the workers"
    elif not halving and freely < min(twice, HELPS * makespan):
        bound = f"trials wait for the results of those {method_work.lag_for(at_once)} before them; a larger --lag shortens it"
    elif twice < HELPS * makespan:
        bound = f"{at_once} trials at once"
    else:
        parts = {
            f"{at_once} trials at once": work / at_once,
            "the longest trial, which cannot be split": longest,
            "the driver, one process": len(method_work.trials) * rates.driver_s,
        }
        bound = max(parts, key=lambda part: parts[part])
    scales = twice < HELPS * makespan
    return Stage(f"search{ending}", makespan, bound, scales, most)


def _confirm(
    method_work: MethodWork, work: SweepWork, training: OfStudent, rates: Rates, at_once: int, ending: str
) -> Stage:
    if any(one.embed_per_s is None and one.finish_s is None for one in training.values()):
        return Stage(f"confirm{ending}", None, "", True)

    def finish(one: Training) -> float:
        embed = 0.0 if one.embed_per_s is None else work.evaluated / one.embed_per_s
        return one.begin_s + (one.finish_s or 0.0) + embed

    def seconds(trial: TrialWork, trained: bool) -> float:
        one = training[trial.student]
        return finish(one) + (0.0 if trained else rung_seconds(trial, one)[-1] - one.begin_s)

    jobs = [seconds(trial, trained) for trial, trained in method_work.confirmations]
    made = list_schedule(jobs, at_once, rates.worker_s)
    scales = at_once < len(jobs)
    bound = f"{min(at_once, len(jobs))} of {len(jobs)} trainings at once" if scales else "one training"
    return Stage(f"confirm{ending}", made, bound, scales)
