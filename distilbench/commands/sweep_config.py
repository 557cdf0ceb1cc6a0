"""What a method's run in a sweep is bound to, and what of it may be another when the command is repeated."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from distilbench.commands.afford import ASKED
from distilbench.commands.run import portable_student, run_config
from distilbench.data.corpus import Corpus
from distilbench.encoders.student import said_of
from distilbench.search.space import SearchSpace
from distilbench.settings.sweep import SweepSettings

GROWS = frozenset({"trials", "confirm", "enough"})
"""Settings that a run may be repeated with another value of: they add trials, or trainings of the chosen ones, or end the
search before its last trial."""
LATENCY = "of text, in batches of 32, beside a reference"
"""How the objective is measured; earlier versions read token ids, in batches of so many tokens, while trials ran."""
STUDENT = "student."
"""Begins the keys of a run's configuration that are students of its search space."""
STUDENT_STEPS = "budget.student_steps"


def sweep_config(
    settings: SweepSettings,
    space: SearchSpace,
    corpus: Corpus,
    enqueued: Sequence[dict[str, Any]] = (),
    asked_steps: int | None = None,
) -> dict[str, Any]:
    """What the numbers of a method's run depend on; `asked_steps` are those of the space where its trials have fewer."""
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
        **({"paper_steps": space.paper_steps} if space.paper_steps else {}),
        **{f"budget.{k}": v for k, v in budget.items() if k not in ("trials", "confirm")},
        "trials": space.budget.trials,
        "confirm": budget["confirm"],
        **({"transfer": True} if settings.transfer else {}),
        **({"enough": settings.enough} if settings.enough else {}),
        **({ASKED: asked_steps} if asked_steps else {}),
        "earlier": str(settings.warm_start) if settings.warm_start else None,
    }


def _students_config(space: SearchSpace) -> dict[str, Any]:
    """The students that the space names, each by its content."""
    return {f"{STUDENT}{student}": portable_student(student) for student in space.students}


def of_students_added(differing: Collection[str], bound: Mapping[str, Any], config: Mapping[str, Any]) -> set[str]:
    """Which keys that differ are of students that one of the two does not name: trials of the others mean the same."""
    added = {key for key in differing if key.startswith(STUDENT) and (key not in bound or key not in config)}
    named = {key for key in {*bound, *config} if key.startswith(STUDENT)}
    before, now = (
        {key: said_of(key.removeprefix(STUDENT), c.get(STUDENT_STEPS)) for key in named} for c in (bound, config)
    )
    steps_differ = {key for key in named if before[key] != now[key]}
    return added | ({STUDENT_STEPS} if steps_differ <= added else set())
