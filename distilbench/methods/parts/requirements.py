"""What methods ask of the corpus and of the preparation, with the values that their hyper-parameters may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distilbench.data.requirements import Requirements
from distilbench.methods.method import Method, Possible


def requirements_of(methods: Sequence[tuple[type[Method], Possible]]) -> Requirements:
    """What any of `methods` asks for, each with its possible values."""
    needs = Requirements()
    for method, possible in methods:
        needs |= replace(method.needs(possible), students=students_of(method, possible))
    return needs


def students_of(method: type[Method], possible: Possible) -> tuple[str | None, ...]:
    """The students that a method trains; None is the run's own, which a method without that parameter trains too."""
    if not method.trains_encoder:
        return ()
    return tuple(possible("student")) if "student" in method.params_type.model_fields else (None,)
