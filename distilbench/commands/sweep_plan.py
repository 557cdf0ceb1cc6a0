"""What a sweep is going to do: the search space of each method, restricted to the options and the corpus, and its folder."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from distilbench.commands.corpus import load_corpus
from distilbench.commands.run_folder import (
    check_encoders,
    check_student_encoder,
    portable_student,
    run_config,
    run_name,
)
from distilbench.commands.text_budget import KEY, limits_within_budget
from distilbench.data.corpus import Corpus
from distilbench.data.folder import triplets_file
from distilbench.data.requirements import Requirements
from distilbench.encoders.student import is_static
from distilbench.errors import InputError, naming
from distilbench.methods import get_method, method_names
from distilbench.methods.method import Method, Possible
from distilbench.search.restrict_space import (
    for_each_student,
    restrict_setting,
    restrict_space,
    space_for_student,
    within_width,
)
from distilbench.search.space import SearchSpace
from distilbench.search.space_files import SpaceFile, check_setting, load_space, read_yaml, space_file
from distilbench.search.starts import WARM_START, best_settings
from distilbench.search.stopping import stopping_for
from distilbench.settings.reading import DEFAULT_STUDENT
from distilbench.settings.run import PreparationSettings, SpaceSettings
from distilbench.settings.sweep import SweepSettings
from distilbench.storage.files import bound_config, claim_folder, write_json
from distilbench.storage.folder_copy import local_folder

SHORT_S = 1800.0
"""Below so long a time budget layers are ranked in one round. The second takes a minute and more of it on two cores, and
hardly ever changes the first choice (`layer_ranking.FIRST_SENTENCES`)."""
QUICK = "layers_ranked_in_one_round"
"""In a run's config.json: whether they were."""
GROWS = frozenset({"trials", "confirm"})
"""Settings that a run may be repeated with another value of: they add trials, or trainings of the chosen ones."""
NO_MODELS = r"(^|/)(students|trials|confirm|predictions)/"
"""Paths of an earlier run that a warm start does not read from storage."""


@dataclass
class MethodRun:
    """One method's run in a sweep."""

    space: SearchSpace
    corpus: Corpus
    run: Path
    name: str
    limits: dict[str, int] = field(default_factory=dict)
    """Limits of text, by option, that the time budget brought."""
    quick: bool = False
    """Whether layers are ranked in one round."""
    enqueued: list[dict[str, Any]] = field(default_factory=list)
    """The user's settings that are tried first."""
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Results that the run lacks, and why: said at the end, and on the page."""
    cut_off: bool = False
    """Whether time was over before its search was."""
    unconfirmed: bool = False
    """Whether time was over before the last of its confirmations."""


def plan_method_runs(settings: SweepSettings, console: Console) -> tuple[list[MethodRun], Path]:
    """The methods' runs on one corpus, and the folder of the whole."""
    names = _method_names(settings)
    several = not settings.methods or len(names) > 1
    spaces, corpus = _spaces_and_corpus(settings, names, several, console)
    swept = "+".join(names) if settings.methods else "all"
    name = run_name(settings.name, swept, corpus.name, settings.teacher_encoder.title)
    folders = [settings.runs / part for part in (name, *(f"{name}/{method}" for method in names))]
    begun = next(filter(None, map(bound_config, folders)), None)
    if begun is None:
        limits = limits_within_budget(settings, corpus, console)
        quick = settings.time_budget is not None and settings.time_budget < SHORT_S
    else:  # another budget now must not change what the run reads, and which layers its students have
        limits, quick = dict(begun.get(KEY, {})), bool(begun.get(QUICK))
    if limits := {option: most for option, most in limits.items() if option not in settings.model_fields_set}:
        settings = settings.model_copy(update=limits)
        spaces, corpus = _spaces_and_corpus(settings, names, several, console)
    runs = []
    for space, trials in zip(spaces, shares(settings.trials, spaces), strict=True):
        part = f"{name}/{space.method}" if several else name
        run = MethodRun(_with_options(settings, space, trials), corpus, settings.runs / part, part, limits, quick)
        run.enqueued = _enqueued_settings(settings, run.space)
        run.notes = space_notes(space)
        for note in run.notes:
            console.print(note, markup=False)
        runs.append(run)
    return runs, settings.runs / name


def _method_names(settings: SweepSettings) -> list[str]:
    """The methods to sweep, in their order; options that are of one method are refused for several."""
    names = list(settings.methods) or [name for name in method_names() if _has_space(settings, name)]
    if not settings.methods:  # heads take seconds: what they leave of their time is that of the methods after them
        names.sort(key=lambda name: get_method(name).trains_encoder)
    own_space = settings.space if settings.space and settings.space.endswith((".yaml", ".yml")) else None
    for option, file in (("--space", own_space), ("--warm-start", settings.warm_start_file)):
        if file is not None and (not settings.methods or len(names) > 1):
            raise InputError(f"{option} {file}: it is of one method; expected one --method with it")
    if settings.trials is not None and settings.trials < len(names):
        raise InputError(
            f"--trials {settings.trials}: {len(names)} methods share them, and each needs one; expected --trials "
            f"{len(names)} or more, or --method with {settings.trials} of {', '.join(names)}"
        )
    return names


def _has_space(settings: SweepSettings, method: str) -> bool:
    try:
        return bool(_space_file(settings, method))
    except InputError:
        return False


def _spaces_and_corpus(
    settings: SweepSettings, names: Sequence[str], several: bool, console: Console
) -> tuple[list[SearchSpace], Corpus]:
    """The restricted space of each method, and one corpus that has what all of them need.

    With `--method all`, a method that the data cannot serve is left out with a line.
    """
    spaces: list[SearchSpace] = []
    needs, told = Requirements(), Console(quiet=True) if several else console
    read = functools.cache(lambda needed: load_corpus(settings, needed, told))
    check_encoders(settings)
    of_model = [objective for objective in ("latency", "model_bytes") if objective in settings.objectives]
    for name in names:
        try:
            if settings.given is not None and of_model and not get_method(name).trains_encoder:
                raise InputError(
                    f"--objectives {of_model[0]}: a head of {name} costs what the teacher costs, and --teacher-vectors "
                    "has no teacher"
                )
            space, corpus = space_and_corpus(settings, name, read)
            both = needs | get_method(name).needs(space.possible)
            if len(set(both.pair_tasks)) > 1:
                tasks = " and ".join(dict.fromkeys(both.pair_tasks))
                raise InputError(f"--method {name}: with the methods before it there are several pair tasks ({tasks})")
        except InputError as error:
            if settings.methods:
                raise
            console.print(f"{name} is left out: {error}", markup=False)
        else:
            spaces.append(space)
            needs = both
    if not spaces:
        raise InputError("--method all: none of the methods can be swept on these data")
    if not several:
        return spaces, corpus
    del corpus
    read.cache_clear()  # two of a large corpus need not be in memory
    corpus = load_corpus(settings, needs, console)
    return [_restrict_to_corpus(settings, space, corpus) for space in spaces], corpus


def shares(trials: int | None, spaces: Sequence[SearchSpace]) -> list[int]:
    """Trials of each method: its space's number, or an equal share of `trials`, the first ones taking what is left over."""
    if trials is None:
        return [space.budget.trials for space in spaces]
    each, over = divmod(trials, len(spaces))
    return [each + (number < over) for number in range(len(spaces))]


def _with_options(settings: SweepSettings, space: SearchSpace, trials: int) -> SearchSpace:
    stopping = stopping_for(space.budget, len(settings.objectives), settings.stopping)
    budget = space.budget.model_copy(update={"trials": trials, "stopping": stopping})
    return space.model_copy(update={"searcher": settings.searcher or space.searcher, "budget": budget})


def _enqueued_settings(settings: SweepSettings, space: SearchSpace) -> list[dict[str, Any]]:
    file = settings.warm_start_file
    if file is None:
        return []
    settings_read = read_yaml(file)
    if not isinstance(settings_read, list):
        raise InputError(f"{file}: expected a list of settings, such as - {{lr: 0.001}}")
    fields = {f.alias or n: f for n, f in get_method(space.method).params_type.model_fields.items()}
    with naming(file):
        for number, setting in enumerate(settings_read, start=1):
            check_setting(f"setting {number}", setting, space.requested or space.parameters, fields)
    if not space.requested:
        return settings_read
    return [left for setting in settings_read if (left := restrict_setting(setting, space.parameters))]


# --- The search space of a method


def space_and_corpus(
    settings: SpaceSettings, name: str, read: Callable[[Requirements], Corpus]
) -> tuple[SearchSpace, Corpus]:
    """The search space of a method, restricted to what the run has, and a corpus that has what it needs, from `read`."""
    method, (path, shipped) = get_method(name), _space_file(settings, name)

    def native(students: Sequence[str]) -> int:
        widths = {s: method.native_dim(settings.teacher_encoder, s) for s in students or [settings.student]}
        if len(set(widths.values())) > 1:
            told = ", ".join(f"{student} {width}" for student, width in widths.items())
            raise InputError(f"output_dim: native: the students have several widths ({told}); expected numbers")
        return next(iter(widths.values()))

    space = load_space(path, name, method.params_type, native)
    if method.trains_encoder:
        space = _with_students(settings, space, path, shipped)
    space = _restrict_to_options(settings, space)
    corpus = read(method.needs(space.possible))
    return _restrict_to_corpus(settings, space, corpus), corpus


def _space_file(settings: SpaceSettings, method: str) -> SpaceFile:
    return space_file(method, settings.space, data=settings.data is not None, static=is_static(settings.student))


def _with_students(settings: PreparationSettings, space: SearchSpace, path: Path, shipped: bool) -> SearchSpace:
    """The space of the students that can be trained.

    Where it has several, `--student` names the one; of a space that comes along those are left out that the teacher does not
    have, such as three layers of two.
    """

    def check(possible: Possible) -> None:
        for student in possible("student"):
            check_trained_student(settings, get_method(space.method), student)

    if "student" not in space.parameters:
        space = space_for_student(space, space.students[0]) if space.students else space
    elif settings.student != DEFAULT_STUDENT:
        space = space_for_student(space, settings.student)
    if not space.students:
        check_trained_student(settings, get_method(space.method), settings.student)
        return space
    if shipped:
        space = restrict_space(space, check, keep=[name for name in space.parameters if name != "student"])
    with naming(path):
        check(space.possible)
    return space


def check_trained_student(settings: PreparationSettings, method: type[Method], student: str) -> None:
    """Check that a method that trains an encoder can train this one, whatever its hyper-parameters."""
    if is_static(student) and not method.takes_static:
        names = ", ".join(name for name in method_names() if get_method(name).takes_static)
        raise InputError(f"--student static: {method.title} needs an encoder's hidden states; expected one of {names}")
    check_student_encoder(settings, student)


def _restrict_to_options(settings: PreparationSettings, space: SearchSpace) -> SearchSpace:
    """The space without choices that need augmented sentences or triplets where the command gives none, or whose queries
    cannot search the teacher's documents where they shall."""
    method, data = get_method(space.method), settings.sets_folder

    def copies(possible: Possible) -> None:
        if method.needs(possible).augmentation and not settings.augment:
            raise InputError("--augment is not given")

    def triplets(possible: Possible) -> None:
        if method.needs(possible).triplets and (data is None or triplets_file(data) is None):
            raise InputError(f"{data or '--text alone'} has no triplets")

    def documents(possible: Possible) -> None:
        check_documents(settings, method, possible)

    space = restrict_space(restrict_space(restrict_space(space, copies), triplets), documents)
    documents(space.possible)
    return space


def check_documents(settings: PreparationSettings, method: type[Method], possible: Possible) -> None:
    """Check that the method's queries can search the teacher's documents, where students are selected by that; and that they
    are as wide as its own, where bytes are an objective."""
    selection = settings.selection
    if selection is None or not selection.by_teacher:
        return
    if why := method.apart(possible):
        raise InputError(f"--select {selection}: the teacher's documents are not {method.title}'s: {why}")
    fields = [field.alias or name for name, field in method.params_type.model_fields.items()]
    params = {name: possible(name)[0] for name in fields}
    for d in possible("output_dim") if "bytes" in getattr(settings, "objectives", ()) else ():
        width, _ = method.space_of({**params, "output_dim": d}, settings.teacher_encoder.width())
        if width != d:
            raise InputError(
                f"--objectives bytes: with --select {selection} {method.title} stores documents of {width} dimensions where "
                f"output_dim is {d}; expected other objectives"
            )


def _restrict_to_corpus(settings: SpaceSettings, space: SearchSpace, corpus: Corpus) -> SearchSpace:
    """The space without choices that the corpus is too small for; one that comes with the package also without output
    dimensions that teacher or student do not have.
    """
    method, (path, shipped) = get_method(space.method), _space_file(settings, space.method)
    teacher = settings.teacher_encoder
    native = min(method.native_dim(teacher, student) for student in space.students or [settings.student])

    def check(possible: Possible) -> None:
        if not space.students:
            method.check_student(possible, settings.student, native)
        method.check_corpus(possible, corpus, native)

    def check_one(of_one: SearchSpace, student: str) -> None:
        width = method.native_dim(teacher, student)
        method.check_student(of_one.possible, student, width)
        method.check_corpus(of_one.possible, corpus, width)

    with naming(path):
        if shipped:
            space = within_width(space, native)
        space = restrict_space(space, check, keep=("student",) if shipped else ("student", "output_dim"))
        for_each_student(space, settings.student, check_one)
    return space


def space_notes(space: SearchSpace) -> list[str]:
    """A line for each choice that was left out of a space."""
    return [f"Search space of {space.method}: {note}" for note in space.notes]


# --- The folder of a run


def claim_run(settings: SweepSettings, run: MethodRun, console: Console) -> None:
    """Bind the run's folder to these settings, and keep the settings of an earlier sweep that are tried first."""
    folder, source, best = run.run, _warm_start_folder(settings, run.space.method), None
    if source is not None and source.resolve() == folder.resolve():
        raise InputError(f"--warm-start {source}: it is the run itself; expected another --name, or another sweep")
    if source is not None and not (folder / WARM_START).exists():
        best = best_settings(source, run.space)
    hint = f"; with another --name, --warm-start {folder} begins with their best settings"
    claim_folder(folder, _sweep_config(settings, run), may_change=GROWS, hint=hint)
    if best is not None:
        write_json(folder / WARM_START, best)
        console.print(f"{len(best)} settings of {source}, its best, are tried first", markup=False)


def _warm_start_folder(settings: SweepSettings, method: str) -> Path | None:
    """The sweep that a method's run learns from; None where there is none, or a file of settings instead."""
    if settings.warm_start is None or settings.warm_start_file:
        return None
    source = local_folder(settings.warm_start, "--warm-start", leave_out=NO_MODELS)
    return source / method if (source / method).is_dir() else source


def _sweep_config(settings: SweepSettings, run: MethodRun) -> dict[str, Any]:
    space, budget = run.space, run.space.budget.model_dump(mode="json")
    return {
        **run_config(settings, run.corpus),
        **({KEY: run.limits} if run.limits else {}),
        **({QUICK: True} if run.quick else {}),
        "method": space.method,
        "searcher": space.searcher,
        "objectives": list(settings.objectives),
        **{f"student.{student}": portable_student(student) for student in space.students},
        "parameters": {n: r.model_dump(mode="json", exclude_none=True) for n, r in space.parameters.items()},
        "fixed": space.fixed,
        "enqueue": [*space.enqueue, *run.enqueued],
        **{f"budget.{k}": v for k, v in budget.items() if k not in ("trials", "confirm")},
        "trials": space.budget.trials,
        "confirm": budget["confirm"],
        "warm_start": None if settings.warm_start_file else settings.warm_start,
    }
