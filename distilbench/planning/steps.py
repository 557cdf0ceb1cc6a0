"""How long a trial trains, before there is an instance of its method (which has an encoder loaded and embeddings read)."""

from __future__ import annotations

from typing import Any

from distilbench.methods import get_method
from distilbench.training.length import Examples, PhaseSteps


def phase_steps(method: str, params: dict[str, Any], examples: Examples, budget: int) -> list[PhaseSteps]:
    """The phases of one training under these hyper-parameters (defaults included), shortened to `budget` steps.

    A method that does not say how long it trains is taken to use the whole budget.
    """
    phases = get_method(method).planned(params, examples)
    if phases is None:
        return [PhaseSteps("", budget, int(params["batch_size"]))]
    total = sum(phase.steps for phase in phases)
    if total <= budget:
        return phases
    return [phase._replace(steps=max(1, phase.steps * budget // total)) for phase in phases]
