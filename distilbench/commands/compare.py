"""`distilbench compare`: named configurations trained with several seeds, without a search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from distilbench.cluster.nodes import nodes_line
from distilbench.cluster.resources import ray_cluster, trial_resources, wait_for_idle
from distilbench.cluster.run_copy import RunCopy, run_copy
from distilbench.commands.configurations import Configuration, chosen_encoder, complete, read_configurations
from distilbench.commands.corpus import load_corpus
from distilbench.commands.run_folder import (
    check_encoders,
    one_writer,
    publish,
    report_folder,
    run_config,
    run_name,
)
from distilbench.commands.spaces import check_trained_student
from distilbench.data.corpus import Corpus
from distilbench.data.requirements import Requirements
from distilbench.errors import InputError, naming
from distilbench.methods import get_method
from distilbench.methods.parts.requirements import requirements_of
from distilbench.prepare.prepared import load_prepared
from distilbench.prepare.stage import prepare_corpus
from distilbench.progress.console import CountedLines
from distilbench.records import ScoreRecord, TrialRecord, read_records
from distilbench.reporting.terminal_summary import terminal_summary
from distilbench.settings.commands import CompareSettings
from distilbench.settings.encoders import DEFAULT_STUDENT, DEFAULT_TEACHER
from distilbench.storage.files import claim_folder, fingerprint
from distilbench.trials.budget import Budget

if TYPE_CHECKING:
    from distilbench.trials.jobs import Job

NO_LIMIT = 10**9
"""Steps, where only a configuration's epochs count."""

COMPARE_GROWS = frozenset({"rows", "seeds"})
"""Settings that a run may be repeated with another value of."""


def compare(settings: CompareSettings, console: Console) -> Path:
    """Train named configurations with several seeds, without a search; the path of their leaderboard.

    Raises:
        InputError: bad input, found before anything is written.
    """
    written = read_configurations(settings.file, settings.row)
    if settings.teacher_vectors is None:
        settings = settings.but(teacher=chosen_encoder(written, "teacher", settings.teacher, DEFAULT_TEACHER))
    settings = settings.but(student=chosen_encoder(written, "student", settings.student, DEFAULT_STUDENT))
    rows = [complete(path, row, settings.teacher_encoder, settings.student) for path, row in written]
    methods = list(dict.fromkeys(get_method(row.method) for row in rows))
    check_encoders(settings)
    for method in methods:
        if method.trains_encoder:
            check_trained_student(settings, method, settings.student)
    needs = Requirements()
    for row in rows:
        needs |= get_method(row.method).needs(row.possible)
    if len(set(needs.pair_tasks)) > 1:
        tasks = ", ".join(dict.fromkeys(needs.pair_tasks))
        raise InputError(f"--row: the rows are of several pair tasks ({tasks}); expected rows of one")
    corpus = load_corpus(settings, needs, console)
    for (path, _), row in zip(written, rows, strict=True):
        method = get_method(row.method)
        with naming(f"{path}: row {row.name!r}"):
            native = method.native_dim(settings.teacher_encoder, settings.student)
            method.check_student(row.possible, settings.student, native)
            method.check_corpus(row.possible, corpus, native)
    run = settings.runs / run_name(settings, "compare", corpus)
    with (
        one_writer(run),
        run_copy(settings.remote, settings.artifacts, run, report_folder(settings, run), console) as copy,
    ):
        claim_folder(run, compare_config(settings, rows, corpus), may_change=COMPARE_GROWS)
        if copy:
            copy.start()
        return _compare(settings, rows, corpus, run, console, copy)


def _compare(
    settings: CompareSettings,
    rows: Sequence[Configuration],
    corpus: Corpus,
    run: Path,
    console: Console,
    copy: RunCopy | None,
) -> Path:
    from distilbench.trials.rows import Finishing, RowScorer
    from distilbench.trials.scoring import Scoring

    jobs = _jobs(settings, rows, run)
    with ray_cluster(settings.address, settings.cpus, settings.dashboard):
        if line := nodes_line(settings.share.grow_to):
            console.print(line, markup=False)
        needs = requirements_of([(get_method(row.method), row.possible) for row in rows])
        inputs = prepare_corpus(settings, corpus, needs, console)
        prepared = run / "prepared"
        inputs.save(prepared)
        resources = trial_resources(settings.share)
        console.print(f"{len(jobs)} trainings; {resources.explanation}")
        wait_for_idle(resources)
        ready = load_prepared(prepared.resolve())
        if copy:
            copy.share(run.resolve(), prepared)
        tasks = settings.scored_tasks(inputs.corpus.selection)
        scoring = Scoring(run, ready, inputs.corpus, tasks)
        board = RowScorer(scoring, run.name, settings.quantisations, console)
        board.references([], settings.seed)  # before hours of training: a teacher is refused that cannot be scored
        counts = CountedLines(console)
        counts.begin("trained")
        finishing = Finishing(on_scoring=lambda: counts.begin("scored"), on_counted=counts.counted)
        students, failures, _ = board.students(jobs, prepared.resolve(), resources, finishing)
        dimensions = sorted({record.dim for record in students})
        scores = board.references(dimensions, settings.seed, inputs.scores)
        scores += board.peers(settings.faiss_baselines or (), settings.seed)
    for failure in failures:
        console.print(
            f"failed: {failure.job.candidate.configuration}, seed {failure.job.candidate.seed}: {failure.failed}",
            markup=False,
        )
    trials = [r for r in read_records(run / "trials.jsonl") if isinstance(r, TrialRecord)]
    published = [line for row in rows for line in published_lines(row)]
    records: list[ScoreRecord | TrialRecord] = [*scores, *students, *trials]
    page = publish(settings, inputs.corpus, run, records, published)
    for line in terminal_summary(records, run):
        console.print(line, markup=False, highlight=False)
    return page


def _jobs(settings: CompareSettings, rows: Sequence[Configuration], run: Path) -> list[Job]:
    """A training of each row with each seed."""
    from distilbench.trials.jobs import Job
    from distilbench.trials.scoring import Candidate

    budget, jobs = comparison_budget(settings.steps), []
    for seed in range(settings.seed, settings.seed + settings.seeds):
        for row in rows:
            name = row.shown_name(settings.teacher_encoder.name, settings.student)
            dim = int(row.params["output_dim"])
            candidate = Candidate(run.name, "student", row.method, dim, row.params, seed, configuration=name)
            key = fingerprint([row.name, row.method, row.params, seed, budget.steps])[:16]
            folder = run.resolve() / "trials" / key
            jobs.append(Job(candidate, budget, run.resolve(), folder, f"students/{key}", recorded_in="trials.jsonl"))
    return jobs


def comparison_budget(steps: int | None) -> Budget:
    """That of each training of a comparison; `steps` at most, None is no limit."""
    return Budget(trials=1, steps=steps or NO_LIMIT, rungs=3, eta=3, stopping="none", start=False)


def published_lines(row: Configuration) -> list[str]:
    """A line with the scores that a row's source reports for it; none if it reports none."""
    if not row.published:
        return []
    encoders = f"teacher {row.teacher or 'not named'}, student {row.student or 'not named'}"
    values = ", ".join(f"{name} {value:g}" for name, value in row.published.items())
    return [f"Published for {row.name} (table {row.table}; {encoders}; its own data): {values}"]


def compare_config(settings: CompareSettings, rows: Sequence[Configuration], corpus: Corpus) -> dict[str, Any]:
    """Everything that the numbers of a comparison depend on; a row's parameters are in its records."""
    return {
        **run_config(settings, corpus),
        "steps": settings.steps,
        "rows": [row.name for row in rows],
        "seeds": settings.seeds,
    }
