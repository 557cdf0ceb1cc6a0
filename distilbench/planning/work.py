"""What a sweep has to do, in sentences, trials and rows: from its settings, its corpus and its search spaces alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import optuna

from distilbench.codes import CompetitionKey, competition_key
from distilbench.commands.turns import Member
from distilbench.data.calibration import CALIBRATION, SAMPLE
from distilbench.data.corpus import Corpus
from distilbench.methods import get_method
from distilbench.methods.parts.wanted import wanted_by
from distilbench.planning.steps import phase_steps
from distilbench.prepare.augment import operations
from distilbench.prepare.encode import SHARD_ROWS
from distilbench.search.fates import fates
from distilbench.search.space import SearchSpace
from distilbench.search.study import starts_for
from distilbench.search.suggestions import default_lag
from distilbench.settings.sweep import SweepSettings
from distilbench.training.length import Examples, PhaseSteps
from distilbench.trials.scoring import evaluation_rows

DRAWS, DRAWN = 32, 8000
"""Searches that are played, and trials of all of them together at most: the mean of few long ones is as certain."""

STUDY = 100
"""Trials that are drawn in one study: each looks at all that are there."""


class TrialWork(NamedTuple):
    """A trial that is trained to its end."""

    group: CompetitionKey
    """What it competes within (`codes.competition_key`)."""
    phases: tuple[PhaseSteps, ...]
    rung_steps: tuple[int, ...]
    start: bool = False
    """Whether it is judged before its first step too."""
    student: str | None = None
    """The student that its hyper-parameters name."""

    @property
    def steps(self) -> int:
        """The steps of all phases."""
        return sum(phase.steps for phase in self.phases)


@dataclass(frozen=True)
class MethodWork:
    """The search, the confirmation and the scoring of one method."""

    space: SearchSpace
    trials: tuple[TrialWork, ...]
    """In the order of their numbers. Hyper-parameters that are drawn are drawn at random here, whatever the searcher."""
    draws: tuple[tuple[int, ...], ...]
    """The rung where each trial ends, in each search that is played."""
    confirmations: tuple[tuple[TrialWork, bool], ...]
    """Trainings that finish a student, in their order, and whether it is trained already."""
    references: int
    """Rows of teacher and baselines, quantised ones not counted apart, as for `rows`."""
    rows: int
    lag: int | None
    """The user's `--lag`; None is what the sweep takes by itself."""

    def lag_for(self, at_once: int) -> int:
        """The lag where so many trials run at once."""
        return default_lag(at_once) if self.lag is None else self.lag

    @property
    def expected_steps(self) -> float:
        """Optimiser steps of the search as it is expected to be stopped, those awaiting a verdict not counted."""
        total = sum(t.rung_steps[e - 1] for ends in self.draws for t, e in zip(self.trials, ends, strict=True))
        return total / len(self.draws)

    @property
    def all_steps(self) -> int:
        """Optimiser steps of the search if nothing were stopped."""
        return sum(trial.steps for trial in self.trials)


@dataclass(frozen=True)
class SweepWork:
    """A sweep. The store is taken to be empty."""

    sentences: int
    """That the teacher encodes, augmented copies included (one of each training sentence for each operation, at most)."""
    train: int
    operations: tuple[tuple[str, bool], ...]
    """Augmentations, and whether each computes on a GPU."""
    tokens: bool
    logits: bool
    pca_rows: int
    evaluated: int
    """Sentences that each student embeds once it is trained."""
    methods: tuple[MethodWork, ...]

    def encode_shards(self, device: str) -> int:
        """Shards of the teacher's encoding: each is one worker's."""
        return -(-self.sentences // SHARD_ROWS[device])


def sweep_work(settings: SweepSettings, members: list[Member]) -> SweepWork:
    """The work of a sweep's methods.

    Raises:
        InputError: an augmentation is not there.
    """
    corpus = members[0].corpus
    needs = wanted_by([(get_method(m.space.method), m.space.possible) for m in members])
    copy_operations = operations(settings.augmentation) if needs.augmentation else []
    copies = len(copy_operations) * len(corpus.train)
    scored = corpus.of_tasks(settings.scored_tasks(corpus.selection))
    return SweepWork(
        sentences=len(corpus.sentences) + copies,
        train=len(corpus.train),
        operations=tuple((operation.name, operation.uses_gpu) for operation in copy_operations),
        tokens=needs.tokens,
        logits=needs.logits,
        pca_rows=min(len(corpus.train), SAMPLE),
        evaluated=len(evaluation_rows(scored)) + min(CALIBRATION, len(corpus.train)),
        methods=tuple(_method_work(settings, member, corpus, copies) for member in members),
    )


def _method_work(settings: SweepSettings, member: Member, corpus: Corpus, copies: int) -> MethodWork:
    space, method = member.space, get_method(member.space.method)
    examples, budget = Examples.of(corpus, copies), space.budget
    drawn = drawn_settings(settings, member)

    def trial(params: dict[str, Any]) -> TrialWork:
        phases = phase_steps(space.method, params, examples, budget.steps_of(params))
        rungs = budget.rung_steps(sum(phase.steps for phase in phases))
        start = budget.start and len(phases) == 1
        return TrialWork(competition_key(params), tuple(phases), tuple(rungs), start, params.get("student"))

    trials = tuple(trial(params) for params in drawn)
    groups = [t.group for t in trials]
    count = max(2, min(DRAWS, DRAWN // len(trials)))
    ends = [fates(groups, budget, space.searcher, settings.seed + n) for n in range(count)]
    # Fewer steps than rungs leave fewer rungs.
    fitted = tuple(
        tuple(min(e, len(t.rung_steps)) for t, e in zip(trials, drawn_ends, strict=True)) for drawn_ends in ends
    )
    confirm = budget.confirm
    best = [longest for group in sorted(set(groups)) for longest in _of_mean_length(trials, group)[: confirm.top]]
    widths = [len(method.widths_of(params)) for params in drawn]
    finished = len(best) * confirm.seeds
    return MethodWork(
        space=space,
        trials=trials,
        draws=fitted,
        confirmations=tuple((t, seed == 0) for seed in range(confirm.seeds) for t in best),
        # FAISS's codes of one size, a code of each family, take about as long as an encoder in all of its codes.
        references=1 + 2 * len(space.judged_widths(method.judged_widths)) + len(settings.peers or space.bytes_competed),
        rows=round(finished * sum(widths) / len(widths)),
        lag=settings.lag,
    )


def _of_mean_length(trials: tuple[TrialWork, ...], group: CompetitionKey) -> list[TrialWork]:
    """The trials of a group, those nearest to the mean length first: which will be the best is not known."""
    rivals = [t for t in trials if t.group == group]
    mean = sum(t.steps for t in rivals) / max(1, len(rivals))
    return sorted(rivals, key=lambda t: abs(t.steps - mean))


def drawn_settings(settings: SweepSettings, member: Member) -> list[dict[str, Any]]:
    """Hyper-parameters of each trial: those that the sweep gives itself, the others at random."""
    space, count = member.space, member.space.budget.trials
    single = len(settings.objectives) == 1
    starts = starts_for(space, count, settings.seed, member.enqueued, share_dimensions=single)
    if space.searcher == "grid":
        count = min(count, len(starts))
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler, drawn = optuna.samplers.RandomSampler(settings.seed), []
    for number in range(count):
        if number % STUDY == 0:
            study = optuna.create_study(sampler=sampler)
        if number < len(starts):
            study.enqueue_trial(starts[number])
        drawn.append(space.suggest(study.ask()))
    return drawn
