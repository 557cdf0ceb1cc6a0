"""The budget of a sweep: trials, steps, rungs, the stopping rule and the confirmation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from distilbench.choices import Stopping
from distilbench.encoders.student import setting_for


class Confirmation(BaseModel):
    """After the search: the best trials of each output dimension are trained again, and only then scored on test."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    top: int = Field(default=1, ge=1)
    """Trials of each output dimension, by their dev objective."""
    seeds: int = Field(default=3, ge=1)
    """Trainings of each, its own in the search being the first."""


class Budget(BaseModel):
    """The budget of a sweep."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    trials: int = Field(ge=1)
    steps: int = Field(ge=1)
    """Optimiser steps of one trial at most."""
    student_steps: dict[str, Annotated[int, Field(ge=1)]] | None = None
    """Optimiser steps for some students, by their names in the search space."""
    rungs: int = Field(default=3, ge=1, le=10)
    eta: int = Field(default=3, ge=2)
    """Rungs are a factor eta apart. Of the trials of one output dimension at a rung, ASHA lets the best 1/eta go on."""
    stopping: Stopping = "halving"
    """Which trials stop at a rung: all but the best 1/eta, judged in cohorts (halving) or at once (asha); those below the
    median; none. Where no trial can wait for later ones, halving is asha (`search.stopping.stopping_for`)."""
    start: bool = True
    """Whether a student is judged before its first step too, so that its start (rung 0) can be its result. No verdict is
    made there."""
    confirm: Confirmation = Confirmation()

    def steps_of(self, params: Mapping[str, Any]) -> int:
        """Optimiser steps at most of a trial with these hyper-parameters."""
        return setting_for(params.get("student") or "", self.student_steps) or self.steps

    def rung_steps(self, total: int) -> list[int]:
        """Steps at which a trial of `total` steps reports: total / eta^(rungs-1), ..., total / eta, total."""
        return sorted({max(1, total // self.eta**k) for k in range(self.rungs)})
