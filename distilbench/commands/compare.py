"""`distilbench compare`: named configurations trained with several seeds, without a search.

They are rows of a paper's tables (search_spaces/papers/), or a user's own, in a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from rich.console import Console

from distilbench.cluster.resources import trial_resources, wait_for_idle
from distilbench.cluster.run_copy import RunCopy, run_copy
from distilbench.commands.corpus import load_corpus
from distilbench.commands.run_folder import (
    check_encoders,
    on_cluster,
    one_writer,
    portable_student,
    publish,
    run_config,
    run_name,
    teacher_notes,
)
from distilbench.commands.sweep_plan import check_documents, check_trained_student
from distilbench.data.corpus import Corpus
from distilbench.data.requirements import Requirements
from distilbench.encoders.encoder import EncoderSpec
from distilbench.errors import InputError, naming
from distilbench.methods import get_method, method_names
from distilbench.methods.method import requirements_of
from distilbench.prepare.prepared import load_prepared
from distilbench.prepare.stage import prepare_corpus
from distilbench.progress.console import CountedLines
from distilbench.records import ScoreRecord, TrialRecord, read_trials
from distilbench.reporting.exports import terminal_summary
from distilbench.search.space_files import NATIVE, check_value, first_error, read_yaml
from distilbench.settings.commands import CompareSettings
from distilbench.settings.reading import DEFAULT_STUDENT, DEFAULT_TEACHER
from distilbench.storage.files import claim_folder, fingerprint
from distilbench.trials.budget import Budget

if TYPE_CHECKING:
    from distilbench.trials.jobs import Job

NO_LIMIT = 10**9
"""Steps, where only a configuration's epochs count."""
COMPARE_GROWS = frozenset({"rows", "seeds"})
"""Settings that a run may be repeated with another value of."""


class Configuration(BaseModel):
    """One named row: a method and all its hyper-parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1)
    method: str
    params: dict[str, Any]
    """Defaults of the method are left out in the file and filled in here."""
    table: str = ""
    """The source's table, figure or section."""
    published: dict[str, float] = Field(default_factory=dict)
    """Scores that the source reports for it, with its own teacher, student and data."""
    note: str = ""
    """A note on the row for its reader."""
    teacher: str = ""
    student: str = ""
    """The encoders of the row, unless `--teacher` and `--student` say otherwise; "" where any will do. Rows may have several
    students, but one teacher."""

    def possible(self, name: str) -> list[Any]:
        """The one value of a parameter, as `SearchSpace.possible` gives the values of a searched one."""
        return [self.params[name]]

    def trained_student(self, default: str) -> str:
        """The student of a completed row; `default` is the one of rows that have none of their own."""
        return str(self.params.get("student") or default)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    paper: str = ""
    sizes: dict[str, str] = Field(default_factory=dict)
    rows: list[dict[str, Any]] = Field(min_length=1)
    references: list[dict[str, Any]] = Field(default_factory=list)
    """With `sizes` for benchmarks/paper_tables.py alone: published rows that nothing here trains."""


def compare(settings: CompareSettings, console: Console) -> Path:
    """Train named configurations with several seeds, without a search; the path of their leaderboard."""
    written = read_configurations(settings.file, settings.row)
    if settings.teacher_vectors is None:
        settings = settings.but(teacher=chosen_teacher(written, settings.teacher, DEFAULT_TEACHER))
    rows = [complete(path, row, settings.teacher_encoder, settings.student) for path, row in written]
    settings = settings.but(student=settings.student or DEFAULT_STUDENT)
    check_encoders(settings)
    needs = Requirements()
    for (path, _), row in zip(written, rows, strict=True):
        method = get_method(row.method)
        with naming(f"{path}: row {row.name!r}"):
            if method.trains_encoder:
                check_trained_student(settings, method, row.trained_student(settings.student))
            check_documents(settings, method, row.possible)
        needs |= method.needs(row.possible)
    if len(set(needs.pair_tasks)) > 1:
        tasks = ", ".join(dict.fromkeys(needs.pair_tasks))
        raise InputError(f"--row: the rows are of several pair tasks ({tasks}); expected rows of one")
    corpus = load_corpus(settings, needs, console)
    for (path, _), row in zip(written, rows, strict=True):
        method = get_method(row.method)
        with naming(f"{path}: row {row.name!r}"):
            student = row.trained_student(settings.student)
            native = method.native_dim(settings.teacher_encoder, student)
            method.check_student(row.possible, student, native)
            method.check_corpus(row.possible, corpus, native)
    run = settings.runs / run_name(settings.name, "compare", corpus.name, settings.teacher_encoder.title)
    report = settings.report_folder / run.name
    with one_writer(run), run_copy(settings.remote, settings.artifacts, run, report, console) as copy:
        config = {"steps": settings.steps, "rows": [row.name for row in rows], "seeds": settings.seeds}
        claim_folder(run, {**run_config(settings, corpus), **config}, may_change=COMPARE_GROWS)
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
    from distilbench.trials.costs import measure_costs, with_baselines
    from distilbench.trials.rows import Finishing, RowScorer
    from distilbench.trials.scoring import Scoring

    jobs, notes = _jobs(settings, rows, run), teacher_notes(settings, corpus, console)
    with on_cluster(settings, console):
        needs = requirements_of([(get_method(row.method), row.possible) for row in rows])
        inputs = prepare_corpus(settings, corpus, needs, console)
        prepared = run / "prepared"
        inputs.save(prepared)
        share = (settings.cpus_per_trial, settings.gpus_per_trial, settings.workers)
        resources = trial_resources(*share, settings.nodes_to_come)
        console.print(f"{len(jobs)} trainings; {resources.explanation}")
        wait_for_idle(resources)
        if copy:
            copy.share(run.resolve(), prepared)
        ready, tasks = load_prepared(prepared.resolve()), settings.scored_tasks(inputs.corpus.selection)
        dims = {width for row in rows for width in get_method(row.method).widths_of(row.params)}
        priced = with_baselines(((row.method, row.params) for row in rows), sorted(dims), ready.vectors.width)
        costs = measure_costs(priced, ready, inputs.corpus.sentences, settings.artifacts, console)
        scoring = Scoring(run, ready, inputs.corpus, tasks)
        board = RowScorer(scoring, run.name, settings.quantisations, console, costs)
        # Before hours of training: a teacher that cannot be scored is refused.
        next(board.references([], settings.seed))
        counts = CountedLines(console)
        counts.begin("trained")
        finishing = Finishing(on_scoring=lambda: counts.begin("scored"), on_counted=counts.counted)
        students, failures, _ = board.students(jobs, prepared.resolve(), resources, finishing)
        widths, peers = sorted({record.dim for record in students}), board.peers(settings.faiss_baselines or ())
        scores = [row for rows in board.references(widths, settings.seed, inputs.scores, peers) for row in rows]
    for failure in failures:
        failed = failure.job.candidate
        console.print(f"failed: {failed.configuration}, seed {failed.seed}: {failure.failed}", markup=False)
    records: list[ScoreRecord | TrialRecord] = [*scores, *students, *read_trials(run / "trials.jsonl")]
    notes += [_published_line(row) for row in rows if row.published]
    page = publish(settings.report_folder, inputs.corpus, run, records, notes)
    for line in terminal_summary(records, run):
        console.print(line, markup=False, highlight=False)
    return page


def _jobs(settings: CompareSettings, rows: Sequence[Configuration], run: Path) -> list[Job]:
    """A training of each row with each seed; rows whose source has other encoders say so in their names."""
    from distilbench.trials.jobs import Job
    from distilbench.trials.scoring import Candidate

    budget, jobs = comparison_budget(settings.steps), []
    teacher = settings.teacher_encoder.name
    for seed in range(settings.seed, settings.seed + settings.seeds):
        for row in rows:
            student = row.trained_student(settings.student)
            same = row.teacher in ("", teacher) and row.student in ("", student)
            name = row.name if same else f"{row.name} (other encoders)"
            dim = int(row.params["output_dim"])
            candidate = Candidate(run.name, "student", row.method, dim, row.params, seed, configuration=name)
            own = {"student": portable_student(student)} if row.params.get("student") else {}
            key = fingerprint([row.name, row.method, {**row.params, **own}, seed, budget.steps])[:16]
            folder = run.resolve() / "trials" / key
            jobs.append(Job(candidate, budget, run.resolve(), folder, f"students/{key}", recorded_in="trials.jsonl"))
    return jobs


def comparison_budget(steps: int | None) -> Budget:
    """That of each training of a comparison; `steps` at most, None is no limit."""
    return Budget(trials=1, steps=steps or NO_LIMIT, rungs=3, eta=3, stopping="none", start=False)


def _published_line(row: Configuration) -> str:
    encoders = f"teacher {row.teacher or 'not named'}, student {row.student or 'not named'}"
    values = ", ".join(f"{name} {value:g}" for name, value in row.published.items())
    return f"Published for {row.name} (table {row.table}; {encoders}; its own data): {values}"


# --- Files of configurations


def read_configurations(files: Sequence[Path], names: Sequence[str]) -> list[tuple[Path, Configuration]]:
    """The configurations called `names` (all, when there are none), as they are written, each with its file."""
    by_name: dict[str, tuple[Path, Configuration]] = {}
    for path in files:
        for row in _rows(path):
            if row.name in by_name:
                raise InputError(f"{path}: row {row.name!r}: the name comes twice (also in {by_name[row.name][0]})")
            by_name[row.name] = (path, row)
    for name in names:
        if name not in by_name:
            raise InputError(f"--row {name}: no such row; expected one of {', '.join(map(repr, by_name))}")
    return [by_name[name] for name in dict.fromkeys(names or by_name)]


def _rows(path: Path) -> list[Configuration]:
    where, rows = str(path), []
    try:
        for number, row in enumerate(_File.model_validate(read_yaml(path)).rows, start=1):
            where = f"{path}: row {row.get('name', number)!r}"
            rows.append(Configuration.model_validate(row))
    except ValidationError as error:
        raise InputError(first_error(where, error)) from None
    return rows


def chosen_teacher(rows: Sequence[tuple[Path, Configuration]], given: str, default: str) -> str:
    """The teacher of all rows: the one that is `given`, else ("") the one that they name."""
    named = dict.fromkeys(row.teacher for _, row in rows if row.teacher)
    if not given and len(named) > 1:
        raise InputError(
            f"--teacher: the rows name {len(named)} of them ({', '.join(named)}); expected --teacher for all of them, or "
            f"--row for those with the same"
        )
    return given or next(iter(named), default)


def complete(path: Path, row: Configuration, teacher: EncoderSpec, given: str) -> Configuration:
    """The row with the method's defaults and `native` widths filled in, and with its student, unless one is `given`."""
    with naming(f"{path}: row {row.name!r}"):
        if row.method not in method_names():
            raise InputError(f"method is {row.method!r}; expected one of {', '.join(method_names())}")
        method = get_method(row.method)
        fields = {field.alias or name: field for name, field in method.params_type.model_fields.items()}
        own = "" if given else row.student
        student = given or own or DEFAULT_STUDENT
        native = {n: method.native_dim(teacher, student) for n, value in row.params.items() if value == NATIVE}
        filled = {**row.params, **native}
        if "student" in filled:
            raise InputError(
                f"student is {filled['student']!r} among the params; expected it beside them, or --student"
            )
        if own and "student" in fields:
            filled["student"] = own
        for name, value in filled.items():
            if name not in fields:
                raise InputError(f"{name}: {row.method} has no such parameter; it has {', '.join(sorted(fields))}")
            check_value(name, "the value", value, fields[name])
        for name, field in fields.items():
            if field.is_required() and name not in filled:
                raise InputError(f"{name}: not given; {row.method} needs it")
    params = method.params_type.model_validate(filled).model_dump(mode="json", by_alias=True)
    return row.model_copy(update={"params": params})
