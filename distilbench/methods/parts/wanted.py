"""What methods ask of the preparation."""

from __future__ import annotations

from collections.abc import Sequence

from distilbench.methods.method import Method, Possible
from distilbench.prepare.stage import Wanted


def wanted_by(methods: Sequence[tuple[type[Method], Possible]]) -> Wanted:
    """What any of `methods` asks for, each with the values that its hyper-parameters may have."""
    needs = [method.needs(possible) for method, possible in methods]
    return Wanted(
        augmentation=any(need.augmentation for need in needs),
        tokens=any(method.trains_encoder for method, _ in methods),
        logits=any(method.needs_logits(possible) for method, possible in methods),
        negatives=tuple(sorted({kind for need in needs for kind in need.negatives})),
        nearest=max((need.nearest for need in needs), default=0),
        students=tuple(dict.fromkeys(s for method, possible in methods for s in students_of(method, possible))),
    )


def students_of(method: type[Method], possible: Possible) -> tuple[str | None, ...]:
    """The students that a method trains; None is the run's own, which a method without that parameter trains too."""
    if not method.trains_encoder:
        return ()
    return tuple(possible("student")) if "student" in method.params_type.model_fields else (None,)
