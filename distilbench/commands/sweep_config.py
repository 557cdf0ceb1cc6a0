"""The configuration that a method's run is bound to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distilbench.commands.run_folder import portable_student, run_config
from distilbench.data.corpus import Corpus
from distilbench.search.space import SearchSpace
from distilbench.settings.sweep import SweepSettings

GROWS = frozenset({"trials", "confirm"})
"""Settings that a run may be repeated with another value of: they add trials, or trainings of the chosen ones."""
LATENCY = "of text, in batches of 32, beside a reference"
"""How the objective is measured."""


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
        **_students_config(space),
        "parameters": {n: r.model_dump(mode="json", exclude_none=True) for n, r in space.parameters.items()},
        "fixed": space.fixed,
        "enqueue": [*space.enqueue, *enqueued],
        **{f"budget.{k}": v for k, v in budget.items() if k not in ("trials", "confirm")},
        "trials": space.budget.trials,
        "confirm": budget["confirm"],
        "warm_start": None if settings.warm_start_file else settings.warm_start,
    }


def _students_config(space: SearchSpace) -> dict[str, Any]:
    """The students that the space names, each by its content."""
    return {f"student.{student}": portable_student(student) for student in space.students}
