"""A search space restricted to a run: choices that its data cannot serve are left out, each with a note, instead of refused;
and to one student: what every check of one student reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from distilbench.encoders.student import aliases
from distilbench.errors import InputError
from distilbench.methods.method import Possible
from distilbench.search.space import GIVEN, Range, SearchSpace, Value

Check = Callable[[Possible], None]
"""Raises InputError where the run cannot serve every possible value of the parameters that it is given."""


def restrict_space(space: SearchSpace, check: Check, keep: Collection[str] = ()) -> SearchSpace:
    """The space without the choices that `check` refuses, of every parameter but those in `keep`.

    A choice is left out where `check` refuses it and accepts another one of the same parameter, the other numbers being the
    smallest. Words and switches are looked at before numbers: which examples there are comes before how many are needed.
    Where all choices are refused, all stay, and the caller's own check says why. A range (low to high) is never changed.

    A parameter with one choice left is fixed. Settings to try first lose a word that was left out, and the number nearest to
    one takes its place; those of an output dimension that was left out go.
    """
    searched = [n for n, r in space.parameters.items() if r.choices is not None and n not in keep]
    for name in sorted(searched, key=lambda n: space.parameters[n].is_numeric):
        refused = {
            value: why for value in space.parameters[name].choices or () if (why := _refusal(space, check, name, value))
        }
        if refused and len(refused) < len(space.parameters[name].choices or ()):
            space = _without(space, name, refused)
    return space


def within_width(space: SearchSpace, native: int) -> SearchSpace:
    """The space with `native` as its output dimension where all of its own are above that width."""
    if min(space.dimensions) <= native:
        return space
    wide = ", ".join(map(str, space.dimensions))
    note = f"output_dim {native}, since teacher or student has no more, for {wide}"
    update: dict[str, Any] = {"requested": space.requested or space.parameters, "notes": (*space.notes, note)}
    if "output_dim" in space.fixed:
        return space.model_copy(update={**update, "fixed": {**space.fixed, "output_dim": native}})
    narrow = space.parameters["output_dim"].model_copy(update={"choices": (native,)})
    update["parameters"] = {**space.parameters, "output_dim": narrow}
    narrowed = ({n: v for n, v in setting.items() if n != "output_dim"} for setting in space.enqueue)
    update["enqueue"] = tuple(setting for setting in narrowed if setting)
    return space.model_copy(update=update)


def space_for_student(space: SearchSpace, student: str) -> SearchSpace:
    """The space where the student is this one: its own ranges and steps, and what is searched under conditions on it."""
    fixed = {**space.fixed, "student": student}
    parameters: dict[str, Range] = {}
    for name, r in ((name, r) for name, r in space.parameters.items() if name != "student"):
        if not r.meets("student", student):
            fixed[name] = space.defaults[name]
            continue
        _, own = space.searched(name, fixed)
        when = {other: values for other, values in (r.when or {}).items() if other != "student"}
        parameters[name] = own.model_copy(update={"when": when or None, "students": None})
    budget = space.budget.model_copy(update={"steps": space.budget.steps_of(fixed), "student_steps": None})
    settings = (_setting_for_student(setting, student, parameters) for setting in space.enqueue)
    return _with_parameters(space, parameters, fixed, settings, budget=budget)


def _with_parameters(
    space: SearchSpace,
    parameters: dict[str, Range],
    fixed: dict[str, Any],
    settings: Iterable[dict[str, Any]],
    **update: Any,
) -> SearchSpace:
    """The space with fewer searched parameters; settings to try first of which nothing is left go."""
    return space.model_copy(
        update={
            "parameters": parameters,
            "fixed": fixed,
            "defaults": {n: value for n, value in space.defaults.items() if n in parameters},
            "enqueue": tuple(setting for setting in settings if setting),
            **update,
        }
    )


def _setting_for_student(setting: Mapping[str, Any], student: str, parameters: Mapping[str, Range]) -> dict[str, Any]:
    """A setting to try first, for this student; {} where it is for another one, or cannot be had here."""
    if setting.get("student", student) not in aliases(student):
        return {}
    rest = {name: value for name, value in setting.items() if name != "student"}
    return rest if all(name in parameters and parameters[name].holds(v) for name, v in rest.items()) else {}


def for_each_student(space: SearchSpace, default: str, check: Callable[[SearchSpace, str], None]) -> None:
    """`check` the space of every student that is searched; where none is, the space as it is, of the run's `default`.

    An InputError of `check` names the student.
    """
    if not space.students:
        check(space, default)
        return
    for student in space.students:
        try:
            check(space_for_student(space, student), student)
        except InputError as error:
            said = str(error)
            raise InputError(said if student in said else f"student {student}: {said}") from None


def restrict_setting(setting: Mapping[str, Any], parameters: Mapping[str, Range]) -> dict[str, Any]:
    """The setting with values that the restricted parameters still allow; {} if none remain."""
    restricted: dict[str, Any] = {}
    for name, value in setting.items():
        r = parameters.get(name)
        if r is not None and any(one.holds(value) for one in (r.students or {}).values()):
            restricted[name] = value
        elif r is None or (r.choices is not None and value not in r.choices):
            if name in GIVEN:
                return {}
            if r is not None and r.is_numeric:
                restricted[name] = r.nearest(value)
        else:
            restricted[name] = value
    return restricted if restricted.keys() - GIVEN else {}


def _refusal(space: SearchSpace, check: Check, name: str, value: Value) -> str:
    """The reason that `value` of a parameter is refused; "" if it is not."""

    def possible(other: str) -> list[Any]:
        if other == name:
            return [value]
        r, values = space.parameters.get(other), space.possible(other)
        return [min(values)] if r is not None and r.choices is not None and r.is_numeric else values

    try:
        check(possible)
    except InputError as error:
        return str(error)
    return ""


def _without(space: SearchSpace, name: str, refused: Mapping[Value, str]) -> SearchSpace:
    r = space.parameters[name]
    choices = tuple(c for c in r.choices or () if c not in refused)
    parameters, fixed = dict(space.parameters), dict(space.fixed)
    if len(choices) == 1 and name != "output_dim" and not (r.when or r.students):
        del parameters[name]
        fixed[name] = choices[0]
    else:
        parameters[name] = r.model_copy(update={"choices": choices, "students": _left_of_students(r, refused)})
    for other, parameter in space.parameters.items():
        if name in (parameter.when or {}):
            left = parameter.when_without(name, tuple(refused))
            if left is None:
                del parameters[other]
                fixed[other] = space.defaults[other]
            else:
                parameters[other] = parameter.model_copy(update={"when": left})
    values = {v: str(v).lower() if isinstance(v, bool) else str(v) for v in refused}
    notes = (*space.notes, *(f"without {name} {values[v]}: {why}" for v, why in refused.items()))
    settings = (restrict_setting(setting, parameters) for setting in space.enqueue)
    requested = space.requested or space.parameters
    return _with_parameters(space, parameters, fixed, settings, requested=requested, notes=notes)


def _left_of_students(r: Range, refused: Mapping[Value, str]) -> dict[str, Range] | None:
    """The ranges of single students without the choices that were refused; one that would lose all is that of the others."""
    left = {}
    for student, own in (r.students or {}).items():
        choices = None if own.choices is None else tuple(c for c in own.choices if c not in refused)
        if choices != ():
            left[student] = own.model_copy(update={"choices": choices})
    return left or None
