"""One sweep, from sentences to a leaderboard: the stages in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from rich.console import Console

from distilbench.config import SweepSettings
from distilbench.data.builtin import builtin_corpus
from distilbench.data.corpus import Corpus
from distilbench.data.folder import folder_corpus
from distilbench.encoder import EncoderSpec, transformer_config
from distilbench.errors import InputError
from distilbench.methods import get_method
from distilbench.prepare.encode import encode_corpus
from distilbench.prepare.pca import pca_artifact
from distilbench.prepare.prepared import load_prepared, save_prepared
from distilbench.prepare.tokens import tokens_artifact
from distilbench.records import TrialRecord, read_records
from distilbench.search.cluster import ray_cluster, trial_resources
from distilbench.search.space import SearchSpace, load_space
from distilbench.search.study import best_per_dimension, open_study, queue_trials, sqlite_url
from distilbench.search.sweep import discard_checkpoints, run_trials
from distilbench.store import ArtifactStore, claim_folder, fingerprint
from distilbench.student import check_student, is_layers, student_source

GROWS = frozenset({"trials"})
"""Settings that a run may be repeated with another value of."""


def sweep(settings: SweepSettings, console: Console) -> Path:
    """Run or continue a sweep; the path of its leaderboard.

    Raises:
        InputError: bad input, found before anything is written.
    """
    method = get_method(settings.method)
    space = load_space(space_path(settings), settings.method, method.params_type)
    if settings.trials:
        space = space.model_copy(update={"budget": space.budget.model_copy(update={"trials": settings.trials})})
    corpus = load_corpus(settings, console)
    check_inputs(settings, space, corpus)
    run = settings.runs / run_name(settings, corpus)
    with one_writer(run):
        claim_folder(run, run_config(settings, space, corpus), may_change=GROWS)
        return _sweep(settings, space, corpus, run, console)


def _sweep(settings: SweepSettings, space: SearchSpace, corpus: Corpus, run: Path, console: Console) -> Path:
    from distilbench.evaluation.leaderboard import score_rows
    from distilbench.reporting.page import write_report

    store = ArtifactStore(settings.store)
    with ray_cluster(settings.address, settings.cpus, settings.dashboard):
        vectors, encoded = encode_corpus(
            corpus.sentences,
            corpus.sentences_fingerprint,
            settings.teacher,
            store,
            label="Teacher encoding",
            stored=settings.vectors,
        )
        console.print(f"Teacher {settings.teacher.title}: {encoded} of {len(corpus.sentences)} sentences encoded now")
        pca = pca_artifact(vectors, corpus.train, store)
        tokens = None
        if get_method(settings.method).trains_encoder:
            source = student_source(settings.student, settings.teacher)
            tokens = tokens_artifact(corpus.sentences, corpus.sentences_fingerprint, source, store)
        prepared = run / "prepared"
        save_prepared(prepared, corpus, settings.teacher, settings.student, vectors, pca, tokens)
        study = open_study(sqlite_url(run / "study.db"), run.name, settings.seed)
        queue_trials(study, space, space.budget.trials)
        resources = trial_resources(settings.gpus_per_trial)
        console.print(f"{len(study.trials)} trials; {resources.explanation}")
        run_trials(run, prepared, study, space, settings.seed, resources, console)
        best = best_per_dimension(study, space)
        if not best:
            reasons = sorted({str(t.user_attrs.get("reason")) for t in study.trials})
            raise InputError(f"{run}: none of {len(study.trials)} trials was completed: {'; '.join(reasons[:3])}")
        scores = score_rows(run, load_prepared(prepared.resolve()), corpus, space, best, settings.seed, store, console)
    discard_checkpoints(run, keep={trial.number for trial in best.values()})
    trials = [r for r in read_records(run / "trials.jsonl") if isinstance(r, TrialRecord)]
    notes = [*(f"Found: {line}" for line in corpus.found), *(f"Not found: {line}" for line in corpus.missing)]
    return write_report([*scores, *trials], settings.reports / run.name, title=run.name, notes=notes)


def space_path(settings: SweepSettings) -> Path:
    """The search space: the one given, else `search_spaces/METHOD.yaml` here or in the checkout of this package.

    Raises:
        InputError: there is none.
    """
    if settings.space is not None:
        return settings.space
    name = f"{settings.method}.yaml"
    places = [Path("search_spaces") / name, Path(__file__).resolve().parents[1] / "search_spaces" / name]
    for place in places:
        if place.exists():
            return place
    raise InputError(
        f"no search space: looked for {' and '.join(map(str, places))}; expected one there or --space FILE"
    )


def load_corpus(settings: SweepSettings, console: Console) -> Corpus:
    """The data folder, or the built-in corpus; what was found and not found is printed.

    Raises:
        InputError: the folder is unusable.
    """
    corpus = folder_corpus(settings.data, settings.limits) if settings.data else builtin_corpus(settings.corpus_size)
    console.print(f"Corpus {corpus.name}: {len(corpus.sentences)} distinct sentences", markup=False)
    for line in corpus.found:
        console.print(f"  found      {line}", markup=False)
    for line in corpus.missing:
        console.print(f"  not found  {line}", markup=False)
    return corpus


def check_inputs(settings: SweepSettings, space: SearchSpace, corpus: Corpus) -> None:
    """Everything that can be known to fail before it is begun.

    Raises:
        InputError: an output dimension above the teacher's, a corpus too small for a batch or for the clusters, an
            unusable teacher or student.
    """
    width = settings.teacher.width()
    folder, longest = settings.teacher.folder(), settings.teacher.max_tokens or 0
    positions = transformer_config(folder).get("max_position_embeddings") if folder else None
    if positions is not None and longest > positions:
        raise InputError(f"--max-tokens {longest}: teacher {settings.teacher.title} reads {positions} tokens at most")
    too_wide = [d for d in space.dimensions if d > width]
    if too_wide:
        raise InputError(
            f"{space_path(settings)}: output_dim: {too_wide[0]} is above the {width} dimensions of teacher "
            f"{settings.teacher.title}"
        )
    method = get_method(settings.method)
    if method.trains_encoder:
        check_student(settings.student, settings.teacher)
    try:
        method.check_corpus(space.possible, sentences=len(corpus.train), pairs=len(corpus.pairs_P2))
    except InputError as error:
        raise InputError(f"{space_path(settings)}: {error}") from None


def run_name(settings: SweepSettings, corpus: Corpus) -> str:
    """The run's folder name: the one given, or METHOD-CORPUS-TEACHER."""
    name = settings.name or "-".join(
        [settings.method, "builtin" if settings.data is None else corpus.name, settings.teacher.title]
    )
    if name in ("", ".", "..") or any(c in name for c in "/\\\0"):
        raise InputError(f"--name {name!r}: expected a plain folder name")
    return name


def run_config(settings: SweepSettings, space: SearchSpace, corpus: Corpus) -> dict[str, Any]:
    """What the numbers of a run depend on, JSON-able."""
    student = settings.student if is_layers(settings.student) else fingerprint(EncoderSpec(settings.student).identity())
    return {
        "method": settings.method,
        "corpus": corpus.name,
        "corpus_fingerprint": corpus.fingerprint,
        "teacher": settings.teacher.title,
        "teacher_fingerprint": fingerprint(settings.teacher.identity()),
        "student": student,
        "vectors": settings.vectors,
        "seed": settings.seed,
        "parameters": {n: r.model_dump(mode="json") for n, r in space.parameters.items()},
        "fixed": space.fixed,
        **{f"budget.{k}": v for k, v in space.budget.model_dump().items() if k != "trials"},
        "trials": space.budget.trials,
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
