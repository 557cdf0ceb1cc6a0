"""A search space of several students, seen as the space of one of them: what every check of one student reads."""

from __future__ import annotations

from collections.abc import Callable

from distilbench.encoders.student import names_of
from distilbench.errors import InputError
from distilbench.search.space import Range, SearchSpace, is_within


def of_student(space: SearchSpace, student: str, *, named: bool = True) -> SearchSpace:
    """The space where the student is this one: its own ranges and steps, and what is searched under conditions on it.

    With `named` False its trials do not name the student: it is the run's own.
    """
    fixed = {**space.fixed, "student": student} if named else dict(space.fixed)
    drawn = {**fixed, "student": student}
    parameters: dict[str, Range] = {}
    for name, r in space.parameters.items():
        if name == "student":
            continue
        _, own = space.searched(name, drawn)
        if not r.meets("student", student):
            fixed[name] = space.defaults[name]
            continue
        when = {other: values for other, values in (r.when or {}).items() if other != "student"}
        parameters[name] = own.model_copy(update={"when": when or None, "students": None})
    steps = space.budget.steps_of(drawn)
    one = space.model_copy(
        update={
            "parameters": parameters,
            "fixed": fixed,
            "integers": {n: whole for n, whole in space.integers.items() if n in parameters},
            "defaults": {n: value for n, value in space.defaults.items() if n in parameters},
            "budget": space.budget.model_copy(update={"steps": steps, "student_steps": None}),
        }
    )
    return one.model_copy(update={"enqueue": tuple(s for s in map(_without_student(one, student), space.enqueue) if s)})


def _without_student(space: SearchSpace, student: str) -> Callable[[dict[str, object]], dict[str, object]]:
    def setting(of_all: dict[str, object]) -> dict[str, object]:
        """A setting to try first, for this student; {} where it is for another one, or cannot be had here."""
        if of_all.get("student", student) not in names_of(student):
            return {}
        rest = {name: value for name, value in of_all.items() if name != "student"}
        inside = all(name in space.parameters and is_within(space.parameters[name], v) for name, v in rest.items())
        return rest if inside else {}

    return setting


def for_each_student(space: SearchSpace, own: str, check: Callable[[SearchSpace, str], None]) -> None:
    """`check` the space of every student that is searched; where none is, the space as it is, of the run's `own`.

    Raises:
        InputError: as `check` does; the message names the student.
    """
    if not space.students:
        check(space, own)
        return
    for student in space.students:
        try:
            check(of_student(space, student), student)
        except InputError as error:
            said = str(error)
            raise InputError(said if student in said else f"student {student}: {said}") from None
