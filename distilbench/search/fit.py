"""A search space fitted to a run: choices that its data cannot serve are left out, each with a note, instead of refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from distilbench.errors import InputError
from distilbench.methods.method import Possible
from distilbench.search.space import GIVEN, Range, SearchSpace, StudentRange, Value, is_within

Check = Callable[[Possible], None]
"""Raises InputError where the run cannot serve every possible value of the parameters that it is given."""


def fitted(space: SearchSpace, check: Check, keep: Collection[str] = ()) -> SearchSpace:
    """The space without the choices that `check` refuses, of every parameter but those in `keep`.

    A choice is left out where `check` refuses it and accepts another one of the same parameter, the other numbers being the
    smallest. Words and switches are looked at before numbers: which examples there are comes before how many are needed.
    Where all choices are refused, all stay, and the caller's own check says why. A range (low to high) is never changed.

    A parameter with one choice left is fixed. Settings to try first lose a word that was left out, and the number nearest to
    one takes its place; those of an output dimension that was left out go.
    """
    searched = [n for n, r in space.parameters.items() if r.choices is not None and n not in keep]
    for name in sorted(searched, key=lambda n: _are_numbers(space.parameters[n])):
        refused = {
            value: why for value in space.parameters[name].choices or () if (why := _refusal(space, check, name, value))
        }
        if refused and len(refused) < len(space.parameters[name].choices or ()):
            space = _without(space, name, refused)
    return space


def within(space: SearchSpace, native: int) -> SearchSpace:
    """The space with `native` as its output dimension where all of its own are above that width."""
    if min(space.dimensions) <= native:
        return space
    wide = ", ".join(map(str, space.dimensions))
    note = f"output_dim {native}, since teacher or student has no more, for {wide}"
    common_update: dict[str, Any] = {"asked": space.asked or space.parameters, "notes": (*space.notes, note)}
    if "output_dim" in space.fixed:
        return space.model_copy(update={**common_update, "fixed": {**space.fixed, "output_dim": native}})
    narrow = space.parameters["output_dim"].model_copy(update={"choices": (native,)})
    narrowed = tuple({n: v for n, v in s.items() if n != "output_dim"} for s in space.enqueue)
    parameters = {**space.parameters, "output_dim": narrow}
    return space.model_copy(
        update={**common_update, "parameters": parameters, "enqueue": tuple(s for s in narrowed if s)}
    )


def adapted(setting: Mapping[str, Any], space: SearchSpace) -> dict[str, Any]:
    """A setting of the space as it was asked for, for what was left of it; {} where nothing of it is left."""
    adapted_setting: dict[str, Any] = {}
    for name, value in setting.items():
        r = space.parameters.get(name)
        own = [] if r is None else (r.students or {}).values()
        if any(is_within(one, value) for one in own):
            adapted_setting[name] = value
        elif r is None or (r.choices is not None and value not in r.choices):
            if name in GIVEN:
                return {}
            if r is not None and _are_numbers(r):
                adapted_setting[name] = _nearest(r, value)
        else:
            adapted_setting[name] = value
    return adapted_setting if adapted_setting.keys() - GIVEN else {}


def _refusal(space: SearchSpace, check: Check, name: str, value: Value) -> str:
    """Why `value` of a parameter is refused; "" where it is not."""

    def possible(other: str) -> list[Any]:
        if other == name:
            return [value]
        r = space.parameters.get(other)
        values = space.possible(other)
        return [min(values)] if r is not None and r.choices is not None and _are_numbers(r) else values

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
        update = {"choices": choices, "paper": _left_of_paper(r, choices), "students": _left_of_students(r, refused)}
        parameters[name] = r.model_copy(update=update)
    for other, parameter in space.parameters.items():
        if name in (parameter.when or {}):
            left = parameter.when_without(name, tuple(refused))
            if left is None:
                del parameters[other]
                fixed[other] = space.defaults[other]
            else:
                parameters[other] = parameter.model_copy(update={"when": left})
    fits = space.model_copy(
        update={
            "parameters": parameters,
            "fixed": fixed,
            "integers": {n: whole for n, whole in space.integers.items() if n in parameters},
            "defaults": {n: value for n, value in space.defaults.items() if n in parameters},
            "asked": space.asked or space.parameters,
            "notes": (*space.notes, *(f"without {name} {_value_text(v)}: {why}" for v, why in refused.items())),
        }
    )
    return fits.model_copy(update={"enqueue": tuple(s for s in (adapted(s, fits) for s in space.enqueue) if s)})


def _left_of_students(r: Range, refused: Mapping[Value, str]) -> dict[str, StudentRange] | None:
    """The ranges of single students without the choices that were refused; one that would lose all is that of the others."""
    left = {}
    for student, own in (r.students or {}).items():
        choices = None if own.choices is None else tuple(c for c in own.choices if c not in refused)
        if choices != ():
            left[student] = own.model_copy(update={"choices": choices})
    return left or None


def _left_of_paper(r: Range, choices: tuple[Value, ...]) -> Any:
    """The published value among the choices that are left: itself, the nearest number, or none."""

    def left(value: Value) -> Value | None:
        if value in choices:
            return value
        return _nearest(r.model_copy(update={"choices": choices}), value) if _are_numbers(r) else None

    if isinstance(r.paper, dict):
        return {d: remaining for d, value in r.paper.items() if (remaining := left(value)) is not None} or None
    return None if r.paper is None else left(r.paper)


def _nearest(r: Range, value: Any) -> Value:
    return min(r.choices or (), key=lambda c: abs(float(c) - float(value)))


def _are_numbers(r: Range) -> bool:
    return all(isinstance(c, int | float) and not isinstance(c, bool) for c in r.choices or ())


def _value_text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
