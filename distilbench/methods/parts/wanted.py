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
    )
