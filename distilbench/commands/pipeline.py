"""From sentences to a leaderboard: the stages in order. A comparison and a preparation; a sweep is in `sweeps`."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from rich.console import Console

from distilbench.cluster.nodes import nodes_line
from distilbench.cluster.resources import ray_cluster, trial_resources, wait_for_idle
from distilbench.cluster.run_copy import RunCopy, run_copy
from distilbench.commands.configurations import Configuration, complete, read_configurations
from distilbench.data.builtin import builtin_corpus
from distilbench.data.corpus import Corpus
from distilbench.data.folder import folder_corpus
from distilbench.data.needs import Needs
from distilbench.data.training_text import with_text
from distilbench.data.triplets import triplets_file
from distilbench.encoders.encoder import EncoderSpec, transformer_config
from distilbench.encoders.student import (
    HALF,
    MEAN,
    check_student,
    layer_rule,
    named_encoder,
    resolved,
    student_pooling,
    with_encoder,
)
from distilbench.errors import InputError
from distilbench.methods import get_method
from distilbench.methods.method import Possible
from distilbench.methods.wanted import wanted_by
from distilbench.prepare.augment import operations
from distilbench.prepare.prepared import load_prepared
from distilbench.prepare.stage import Wanted, prepare_corpus
from distilbench.records import ON_DEMONSTRATION, ScoreRecord, TrialRecord, read_records
from distilbench.search.fit import fitted, within
from distilbench.search.space import SearchSpace, load_space
from distilbench.search.space_files import SpaceFile, space_file
from distilbench.settings.settings import CompareSettings, PrepareSettings, RunSettings, SpaceSettings
from distilbench.storage.files import claim_folder, fingerprint
from distilbench.trials.budget import Budget

NO_LIMIT = 10**9
"""Steps, where only a configuration's epochs count."""

COMPARE_GROWS = frozenset({"rows", "seeds"})
"""Settings that a run may be repeated with another value of."""


def searched(
    settings: SpaceSettings,
    name: str,
    console: Console,
    corpora: dict[Needs, Corpus] | None = None,
) -> tuple[SearchSpace, Corpus]:
    """The search space of a method, fitted to what the run has, and a corpus that has what it needs.

    `corpora` are those that were read before, for other methods; the one that is read is added.

    Raises:
        InputError: either cannot be used.
    """
    method, (path, shipped) = get_method(name), space_of(settings, name)
    space = load_space(path, name, method.params_type, method.native_dim(settings.teacher, settings.student))
    space = fitted_to_options(settings, space)
    corpora, needs = {} if corpora is None else corpora, method.needs(space.possible)
    if needs not in corpora:
        corpora[needs] = load_corpus(settings, needs, console)
    try:
        return fitted_to_corpus(settings, space, corpora[needs], shipped=shipped), corpora[needs]
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def space_of(settings: SpaceSettings, method: str) -> SpaceFile:
    """The file of a method's search space.

    Raises:
        InputError: there is none.
    """
    return space_file(method, settings.space, settings.budget, data=settings.data is not None)


def fitted_to_options(settings: RunSettings, space: SearchSpace) -> SearchSpace:
    """The space without choices that need augmented sentences or triplets where the command gives none."""
    method, data = get_method(space.method), settings.data

    def copies(possible: Possible) -> None:
        if method.needs(possible).augmentation and not settings.augment.operations:
            raise InputError("--augment is not given")

    def triplets(possible: Possible) -> None:
        if method.needs(possible).triplets and data is not None and triplets_file(data) is None:
            raise InputError(f"{data} has no triplets")

    return fitted(fitted(space, copies), triplets)


def fitted_to_corpus(settings: RunSettings, space: SearchSpace, corpus: Corpus, *, shipped: bool) -> SearchSpace:
    """The space without choices that the corpus is too small for; one that comes with the package also without output
    dimensions that teacher or student do not have.

    Raises:
        InputError: what is left cannot be had with this corpus.
    """
    method = get_method(space.method)
    native = method.native_dim(settings.teacher, settings.student)

    def check(possible: Possible) -> None:
        method.check_corpus(possible, corpus, native)

    if shipped:
        space = within(space, native)
    space = fitted(space, check, keep=() if shipped else ("output_dim",))
    check(space.possible)
    return space


def space_notes(space: SearchSpace) -> list[str]:
    """What was left out of a space, a line each."""
    return [f"Search space of {space.method}: {note}" for note in space.notes]


def prepare(settings: PrepareSettings, console: Console) -> dict[str, Any]:
    """Everything that trials read, into the store; where it is and how large, JSON-able.

    Raises:
        InputError: bad input, found before anything is written; or the disk is full.
    """
    method = get_method(settings.method) if settings.method else None
    tokens = method is None or method.trains_encoder
    check_encoders(settings, trains_encoder=tokens)
    augmentation = bool(settings.augment.operations)
    if method is None:
        corpus = load_corpus(settings, Needs(augmentation=augmentation), console)
        wanted = Wanted(augmentation, tokens, logits=False)
    else:
        space, corpus = searched(settings, str(settings.method), console)
        for note in space_notes(space):
            console.print(note, markup=False)
        wanted = wanted_by([(method, space.possible)])
    if settings.remote:
        settings.remote.check()
    with ray_cluster(settings.address, settings.cpus, settings.dashboard):
        if line := nodes_line(settings.pool.grow_to):
            console.print(line, markup=False)
        made = prepare_corpus(settings, corpus, wanted, console)
    found = made.described()
    for name, artifact in found["artifacts"].items():
        console.print(f"{name:<12} {artifact['bytes'] / 1e6:>10,.1f} MB  {artifact['path']}", markup=False)
    return found


def compare(settings: CompareSettings, console: Console) -> Path:
    """Train named configurations with several seeds, without a search; the path of their leaderboard.

    Raises:
        InputError: bad input, found before anything is written.
    """
    written = read_configurations(settings.files, settings.rows)
    rows = [complete(path, row, settings.teacher, settings.student) for path, row in written]
    methods = list(dict.fromkeys(get_method(row.method) for row in rows))
    check_encoders(settings, trains_encoder=any(method.trains_encoder for method in methods))
    needs = Needs()
    for row in rows:
        needs |= get_method(row.method).needs(row.possible)
    if len(set(needs.pair_tasks)) > 1:
        tasks = ", ".join(dict.fromkeys(needs.pair_tasks))
        raise InputError(f"--row: the rows are of several pair tasks ({tasks}); expected rows of one")
    corpus = load_corpus(settings, needs, console)
    for (path, _), row in zip(written, rows, strict=True):
        method = get_method(row.method)
        try:
            method.check_corpus(row.possible, corpus, method.native_dim(settings.teacher, settings.student))
        except InputError as error:
            raise InputError(f"{path}: row {row.name!r}: {error}") from None
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
    from distilbench.trials.jobs import Job
    from distilbench.trials.rows import Leaderboard
    from distilbench.trials.scoring import Candidate

    budget = comparison_budget(settings.steps)
    jobs = []
    for seed in range(settings.seed, settings.seed + settings.seeds):
        for row in rows:
            name = row.shown_name(settings.teacher.name, settings.student)
            dim = int(row.params["output_dim"])
            candidate = Candidate(run.name, "student", row.method, dim, row.params, seed, configuration=name)
            key = fingerprint([row.name, row.method, row.params, seed, budget.steps])[:16]
            folder = run.resolve() / "trials" / key
            jobs.append(Job(candidate, budget, run.resolve(), folder, f"students/{key}", recorded_in="trials.jsonl"))
    with ray_cluster(settings.address, settings.cpus, settings.dashboard):
        if line := nodes_line(settings.share.grow_to):
            console.print(line, markup=False)
        wanted = wanted_by([(get_method(row.method), row.possible) for row in rows])
        made = prepare_corpus(settings, corpus, wanted, console)
        prepared = run / "prepared"
        made.save(prepared, settings)
        resources = trial_resources(settings.share)
        console.print(f"{len(jobs)} trainings; {resources.explanation}")
        wait_for_idle(resources)
        ready = load_prepared(prepared.resolve())
        place = copy.place(run.resolve(), prepared) if copy else None
        board = Leaderboard(run, run.name, ready, made.corpus, settings.quantisations, console, place)
        found, failures, _ = board.students(jobs, prepared.resolve(), resources)
        dimensions = sorted({record.dim for record in found})
        scores = board.references(dimensions, settings.seed, made.scores)
    for failure in failures:
        console.print(
            f"failed: {failure.job.candidate.configuration}, seed {failure.job.candidate.seed}: {failure.failed}",
            markup=False,
        )
    trials = [r for r in read_records(run / "trials.jsonl") if isinstance(r, TrialRecord)]
    published = [line for row in rows for line in published_lines(row)]
    return publish(settings, made.corpus, run, [*scores, *found, *trials], published)


def comparison_budget(steps: int | None) -> Budget:
    """That of each training of a comparison; `steps` at most, None is no limit."""
    return Budget(trials=1, steps=steps or NO_LIMIT, rungs=3, eta=3)


def published_lines(row: Configuration) -> list[str]:
    """What a row's source reports for it, as a line for the reader; none where it says nothing."""
    if not row.published:
        return []
    encoders = f"teacher {row.teacher or 'not named'}, student {row.student or 'not named'}"
    values = ", ".join(f"{name} {value:g}" for name, value in row.published.items())
    return [f"Published for {row.name} (table {row.table}; {encoders}; its own data): {values}"]


def publish(
    settings: RunSettings,
    corpus: Corpus,
    run: Path,
    records: Sequence[ScoreRecord | TrialRecord],
    more: Sequence[str] = (),
    folders: Sequence[Path] = (),
) -> Path:
    """Write the leaderboard of the records of a run (of the runs in `folders`, where there are several), and model cards."""
    from distilbench.reporting.page import write_report
    from distilbench.reporting.student_cards import write_student_cards
    from distilbench.reporting.ties import tie_groups

    notes = [*(f"Found: {line}" for line in corpus.found), *(f"Not found: {line}" for line in corpus.missing), *more]
    places = list(folders) or [run]
    ties = tie_groups(records, places)
    write_student_cards(records, places)
    out = report_folder(settings, run)
    return write_report(list(records), out, title=run.name, notes=notes, ties=ties, folders=places)


def report_folder(settings: RunSettings, run: Path) -> Path:
    """Where the leaderboard of a run goes."""
    return settings.reports / run.name


def load_corpus(settings: RunSettings, needs: Needs, console: Console) -> Corpus:
    """The data folder, or the built-in corpus; what was found and not found is printed.

    Raises:
        InputError: the folder is unusable, or lacks what the methods need.
    """
    if settings.data:
        corpus = folder_corpus(settings.data, settings.limits, needs, settings.texts)
    else:
        corpus = builtin_corpus(settings.corpus_size, needs=needs, own_text=bool(settings.text))
    corpus = with_text(corpus, settings.texts, settings.limits.sentences, settings.artifacts)
    if needs.augmentation and not settings.augment.operations:
        raise InputError("augmentation: true, but nothing says how to augment; expected --augment OPERATIONS")
    if settings.augment.operations and not needs.augmentation:
        console.print("--augment is left aside: nothing in this run trains on augmented sentences (augmentation: true)")
    console.print(f"Corpus {corpus.name}: {len(corpus.sentences)} distinct sentences", markup=False)
    print_sets(corpus, console)
    if corpus.demonstration:
        console.print(f"Every score of this run is {ON_DEMONSTRATION}.", markup=False)
    return corpus


def print_sets(corpus: Corpus, console: Console) -> None:
    """What was found and not found."""
    for line in corpus.found:
        console.print(f"  found      {line}", markup=False)
    for line in corpus.missing:
        console.print(f"  not found  {line}", markup=False)


def check_encoders(settings: RunSettings, *, trains_encoder: bool) -> None:
    """What can be known of teacher and student before anything is read.

    Raises:
        InputError: one is not there, its tokenizer cannot be loaded, or the teacher reads fewer tokens than asked for.
    """
    folder, longest = settings.teacher.folder(), settings.teacher.max_tokens or 0
    positions = transformer_config(folder).get("max_position_embeddings") if folder else None
    if positions is not None and longest > positions:
        raise InputError(f"--max-tokens {longest}: teacher {settings.teacher.title} reads {positions} tokens at most")
    settings.teacher.check_tokenizer("teacher")
    if settings.cross_encoder and not Path(settings.cross_encoder).is_dir():
        raise InputError(
            f"--cross-encoder {settings.cross_encoder}: no such folder; expected a fine-tuned cross-encoder"
        )
    if trains_encoder:
        check_student(settings.student, settings.teacher)
        if named := named_encoder(settings.student):
            EncoderSpec(named).check_tokenizer("student")


def run_name(settings: RunSettings, kind: str, corpus: Corpus) -> str:
    """The run's folder name: the one given, or KIND-CORPUS-TEACHER."""
    name = settings.name or "-".join(
        [kind, "builtin" if settings.data is None else corpus.name, settings.teacher.title]
    )
    return plain_name(name)


def plain_name(name: str) -> str:
    """A run's name that can be a folder's.

    Raises:
        InputError: it cannot.
    """
    if name in ("", ".", "..") or any(c in name for c in "/\\\0"):
        raise InputError(f"--name {name!r}: expected a plain folder name")
    return name


def run_config(settings: RunSettings, corpus: Corpus) -> dict[str, Any]:
    """What the numbers of any run depend on, JSON-able."""
    cross = settings.cross_encoder or [settings.cross_encoder_lr, settings.cross_encoder_epochs]
    augment = {
        "operations": [{"name": o.name, **o.identity()} for o in operations(settings.augment)],
        "min_cosine": settings.min_cosine,
    }
    return {
        **({"cross_encoder": cross} if corpus.pair_tasks else {}),
        **({"augment": augment} if settings.augment.operations else {}),
        **({"backend": settings.backend} if settings.backend != "torch" else {}),
        "corpus": corpus.name,
        "corpus_fingerprint": corpus.fingerprint,
        "teacher": settings.teacher.title,
        "teacher_fingerprint": fingerprint(settings.teacher.identity()),
        **_student_config(settings),
        "vectors": settings.vectors,
        "seed": settings.seed,
    }


def _student_config(settings: RunSettings) -> dict[str, Any]:
    """The student as the user wrote it, its own encoder by its content. `half` is written out: it was another rule once."""
    student, teacher = settings.student, settings.teacher
    rule = layer_rule(student)
    if rule is not None and rule.rule == HALF:
        with contextlib.suppress(InputError):  # of a teacher without layers, which a run of heads alone may have
            student = resolved(student, teacher)
    shown = with_encoder(student, lambda name: fingerprint(EncoderSpec(name).identity()))
    pooling = settings.pooling or student_pooling(student, teacher)
    return {"student": shown, **({"pooling": pooling} if pooling != MEAN else {})}


def compare_config(settings: CompareSettings, rows: Sequence[Configuration], corpus: Corpus) -> dict[str, Any]:
    """What the numbers of a comparison depend on; a row's parameters are in its records."""
    return {
        **run_config(settings, corpus),
        "steps": settings.steps,
        "rows": [row.name for row in rows],
        "seeds": settings.seeds,
    }


def one_writer(run: Path) -> FileLock:
    """A lock that only one driver of a run can hold.

    Raises:
        InputError: another process is running this sweep.
    """
    run.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(run.with_name(f".{run.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError(
            f"{run}: another process is running this sweep; wait for it, or choose another --name"
        ) from None
    return lock
