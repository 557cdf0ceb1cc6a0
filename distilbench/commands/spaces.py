"""The search space of a method, restricted to the options and the corpus of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from distilbench.commands.corpus import load_corpus
from distilbench.commands.run_folder import check_student_encoder
from distilbench.data.corpus import Corpus
from distilbench.data.requirements import Requirements
from distilbench.data.triplets import triplets_file
from distilbench.encoders.student import is_static
from distilbench.errors import InputError, naming
from distilbench.methods import get_method, method_names
from distilbench.methods.method import Method, Possible
from distilbench.search.restrict_space import for_each_student, restrict_space, space_for_student, within_width
from distilbench.search.space import SearchSpace
from distilbench.search.space_files import SpaceFile, load_space, space_file
from distilbench.settings.encoders import DEFAULT_STUDENT
from distilbench.settings.run import PreparationSettings, SpaceSettings


def space_and_corpus(
    settings: SpaceSettings,
    name: str,
    console: Console,
    corpora: dict[Requirements, Corpus] | None = None,
) -> tuple[SearchSpace, Corpus]:
    """The search space of a method, restricted to what the run has, and a corpus that has what it needs.

    `corpora` are those that were read before, for other methods; the one that is read is added.
    """
    method, (path, shipped) = get_method(name), space_of(settings, name)

    def native(students: Sequence[str]) -> int:
        return _one_width(method, settings, students or [settings.student])

    space = load_space(path, name, method.params_type, native)
    if method.trains_encoder:
        space = _with_students(settings, space, path, shipped)
    space = fitted_to_options(settings, space)
    corpora, needs = {} if corpora is None else corpora, method.needs(space.possible)
    if needs not in corpora:
        corpora[needs] = load_corpus(settings, needs, console)
    with naming(path):
        return fitted_to_corpus(settings, space, corpora[needs], shipped=shipped), corpora[needs]


def _with_students(settings: PreparationSettings, space: SearchSpace, path: Path, shipped: bool) -> SearchSpace:
    """The space of the students that can be trained.

    Where it has several, `--student` names the one; of a space that comes along those are left out that the teacher does not
    have, such as three layers of two.
    """
    method = get_method(space.method)

    def check(possible: Possible) -> None:
        for student in possible("student"):
            check_trained_student(settings, method, student)

    if "student" not in space.parameters:
        space = space_for_student(space, space.students[0]) if space.students else space
    elif settings.student != DEFAULT_STUDENT:
        space = space_for_student(space, settings.student)
    if not space.students:
        check_trained_student(settings, method, settings.student)
        return space
    if shipped:
        space = restrict_space(space, check, keep=[name for name in space.parameters if name != "student"])
    with naming(path):
        check(space.possible)
    return space


def _one_width(method: type[Method], settings: PreparationSettings, students: Sequence[str]) -> int:
    """The output dimension that `native` stands for."""
    widths = {student: method.native_dim(settings.teacher_encoder, student) for student in students}
    if len(set(widths.values())) > 1:
        told = ", ".join(f"{student} {width}" for student, width in widths.items())
        raise InputError(f"output_dim: native: the students have several widths ({told}); expected numbers")
    return next(iter(widths.values()))


def check_trained_student(settings: PreparationSettings, method: type[Method], student: str) -> None:
    """Check that a method that trains an encoder can train this one, whatever its hyper-parameters."""
    if is_static(student) and not method.takes_static:
        names = ", ".join(name for name in method_names() if get_method(name).takes_static)
        raise InputError(f"--student static: {method.title} needs an encoder's hidden states; expected one of {names}")
    check_student_encoder(settings, student)


def space_of(settings: SpaceSettings, method: str) -> SpaceFile:
    """The file of a method's search space."""
    data, static = settings.data is not None, is_static(settings.student)
    return space_file(method, settings.space, data=data, static=static)


def fitted_to_options(settings: PreparationSettings, space: SearchSpace) -> SearchSpace:
    """The space without choices that need augmented sentences or triplets where the command gives none."""
    method, data = get_method(space.method), settings.sets_folder

    def copies(possible: Possible) -> None:
        if method.needs(possible).augmentation and not settings.augment:
            raise InputError("--augment is not given")

    def triplets(possible: Possible) -> None:
        if not method.needs(possible).triplets:
            return
        if data is None:
            raise InputError("--text alone has no triplets")
        if triplets_file(data) is None:
            raise InputError(f"{data} has no triplets")

    return restrict_space(restrict_space(space, copies), triplets)


def fitted_to_corpus(
    settings: PreparationSettings, space: SearchSpace, corpus: Corpus, *, shipped: bool
) -> SearchSpace:
    """The space without choices that the corpus is too small for; one that comes with the package also without output
    dimensions that teacher or student do not have.
    """
    method = get_method(space.method)
    teacher, several = settings.teacher_encoder, bool(space.students)
    native = min(method.native_dim(teacher, student) for student in space.students or [settings.student])

    def check(possible: Possible) -> None:
        if not several:
            method.check_student(possible, settings.student, native)
        method.check_corpus(possible, corpus, native)

    def check_one(of_one: SearchSpace, student: str) -> None:
        width = method.native_dim(teacher, student)
        method.check_student(of_one.possible, student, width)
        method.check_corpus(of_one.possible, corpus, width)

    if shipped:
        space = within_width(space, native)
    space = restrict_space(space, check, keep=("student",) if shipped else ("student", "output_dim"))
    for_each_student(space, settings.student, check_one)
    return space


def space_notes(space: SearchSpace) -> list[str]:
    """A line for each choice that was left out of a space."""
    return [f"Search space of {space.method}: {note}" for note in space.notes]
