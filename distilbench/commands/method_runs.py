"""The methods of a sweep before it starts: the space, the corpus and the folder of each, bound to the settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from distilbench.commands.corpus import load_corpus
from distilbench.commands.run_folder import check_encoders, portable_student, run_config, run_name
from distilbench.commands.schedule_methods import MethodRun
from distilbench.commands.spaces import fitted_to_corpus, space_and_corpus, space_notes, space_of
from distilbench.data.corpus import Corpus
from distilbench.data.requirements import Requirements
from distilbench.errors import InputError, naming
from distilbench.methods import get_method, method_names
from distilbench.search.restrict_space import restrict_setting
from distilbench.search.space import SearchSpace
from distilbench.search.space_files import check_setting, read_yaml
from distilbench.search.starts import WARM_START, best_settings
from distilbench.search.stopping import stopping_for
from distilbench.settings.sweep import SweepSettings
from distilbench.storage.files import claim_folder, write_json
from distilbench.storage.scratch import local_folder

GROWS = frozenset({"trials", "confirm"})
"""Settings that a run may be repeated with another value of: they add trials, or trainings of the chosen ones."""
LATENCY = "of text, in batches of 32, beside a reference"
"""How the objective is measured."""
NO_MODELS = r"(^|/)(students|trials|confirm|predictions)/"
"""Paths of an earlier run that a warm start does not read from storage."""


def plan_method_runs(settings: SweepSettings, console: Console) -> tuple[list[MethodRun], Path]:
    """The methods' spaces, their corpus, and the folder of the whole."""
    names = _method_names(settings)
    several = not settings.methods or len(names) > 1
    spaces, corpus = _spaces_and_corpus(settings, names, several, console)
    name = run_name(settings, "+".join(names) if settings.methods else "all", corpus)
    runs = []
    for space, trials in zip(spaces, _shares(settings, spaces), strict=True):
        chosen = _with_options(settings, space, trials)
        folder = settings.runs / name / space.method if several else settings.runs / name
        run = MethodRun(chosen, corpus, folder, f"{name}/{space.method}" if several else name)
        run.enqueued = _enqueued_settings(settings, chosen)
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
    space_file = settings.space if settings.space and settings.space.endswith((".yaml", ".yml")) else None
    for option, file in (("--space", space_file), ("--warm-start", settings.warm_start_file)):
        if file is not None and (not settings.methods or len(names) > 1):
            raise InputError(f"{option} {file}: it is of one method; expected one --method with it")
    if settings.trials is not None and settings.trials < len(names):
        raise InputError(
            f"--trials {settings.trials}: {len(names)} methods share them, and each needs one; expected --trials "
            f"{len(names)} or more, or --method with {settings.trials} of {', '.join(names)}"
        )
    return names


def _spaces_and_corpus(
    settings: SweepSettings, names: Sequence[str], several: bool, console: Console
) -> tuple[list[SearchSpace], Corpus]:
    """The restricted space of each method, and one corpus that has what all of them need.

    With `--method all`, a method that the data cannot serve is left out with a line.
    """
    spaces: list[SearchSpace] = []
    needs, corpora = Requirements(), dict[Requirements, Corpus]()
    check_encoders(settings)
    for name in names:
        method = get_method(name)
        try:
            _check_objectives(settings, name)
            space, corpus = space_and_corpus(settings, name, Console(quiet=True) if several else console, corpora)
            both = needs | method.needs(space.possible)
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
    corpora.clear()  # two of a large corpus need not be in memory
    corpus = load_corpus(settings, needs, console)
    return [_restricted_to(settings, space, corpus) for space in spaces], corpus


def _restricted_to(settings: SweepSettings, space: SearchSpace, corpus: Corpus) -> SearchSpace:
    with naming(f"--method {space.method}"):
        return fitted_to_corpus(settings, space, corpus, shipped=space_of(settings, space.method).shipped)


def _check_objectives(settings: SweepSettings, name: str) -> None:
    of_model = [o for o in ("latency", "model_bytes") if o in settings.objectives]
    if settings.given is not None and of_model and not get_method(name).trains_encoder:
        raise InputError(
            f"--objectives {of_model[0]}: a head of {name} costs what the teacher costs, and --teacher-vectors has "
            "no teacher"
        )


def _has_space(settings: SweepSettings, method: str) -> bool:
    try:
        return bool(space_of(settings, method))
    except InputError:
        return False


def _shares(settings: SweepSettings, spaces: Sequence[SearchSpace]) -> list[int]:
    """Trials of each method: its space's number, or an equal share of --trials, the first ones taking what is left over."""
    if settings.trials is None:
        return [space.budget.trials for space in spaces]
    each, over = divmod(settings.trials, len(spaces))
    return [each + (number < over) for number in range(len(spaces))]


def _with_options(settings: SweepSettings, space: SearchSpace, trials: int) -> SearchSpace:
    """The space with what the command says instead of it."""
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


def claim_run(settings: SweepSettings, run: MethodRun, console: Console) -> None:
    """Bind the run's folder to these settings, and keep the settings of an earlier sweep that are tried first."""
    folder, source = run.run, _warm_start_folder(settings, run)
    if source is not None and source.resolve() == folder.resolve():
        raise InputError(f"--warm-start {source}: it is the run itself; expected another --name, or another sweep")
    found = None
    if source is not None and not (folder / WARM_START).exists():
        found = best_settings(source, run.space)
    hint = f"; with another --name, --warm-start {folder} begins with their best settings"
    claim_folder(folder, sweep_config(settings, run.space, run.corpus, run.enqueued), may_change=GROWS, hint=hint)
    if found is not None:
        write_json(folder / WARM_START, found)
        console.print(f"{len(found)} settings of {source}, its best, are tried first", markup=False)


def _warm_start_folder(settings: SweepSettings, run: MethodRun) -> Path | None:
    """The sweep that a method's run learns from; None where there is none, or a file of settings instead."""
    if settings.warm_start is None or settings.warm_start_file:
        return None
    source = local_folder(settings.warm_start, "--warm-start", leave_out=NO_MODELS)
    return source / run.space.method if (source / run.space.method).is_dir() else source


def sweep_config(
    settings: SweepSettings,
    space: SearchSpace,
    corpus: Corpus,
    enqueued: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Everything that the numbers of a method's run depend on."""
    budget = space.budget.model_dump(mode="json")
    return {
        **run_config(settings, corpus),
        "method": space.method,
        "searcher": space.searcher,
        "objectives": list(settings.objectives),
        **({"latency": LATENCY} if "latency" in settings.objectives else {}),
        **{f"student.{student}": portable_student(student) for student in space.students},
        "parameters": {n: r.model_dump(mode="json", exclude_none=True) for n, r in space.parameters.items()},
        "fixed": space.fixed,
        "enqueue": [*space.enqueue, *enqueued],
        **{f"budget.{k}": v for k, v in budget.items() if k not in ("trials", "confirm")},
        "trials": space.budget.trials,
        "confirm": budget["confirm"],
        "warm_start": None if settings.warm_start_file else settings.warm_start,
    }
