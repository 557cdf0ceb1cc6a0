"""What a sweep may spend: trials, steps, where trials are judged and which of them go on, and the confirmation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from distilbench.choices import Resource, Stopping
from distilbench.encoders.student import said_of
from distilbench.training.params import sweep_field

OLD_RESOURCE = "fidelity"
"""The name of `Budget.resource` in earlier search spaces and runs."""


class Confirmation(BaseModel):
    """After the search: the best trials of each output dimension are trained again, and only then scored on test."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    top: int = Field(default=1, ge=1)
    """Trials of each output dimension, by their dev objective."""
    seeds: int = Field(default=3, ge=1)
    """Trainings of each, its own in the search being the first."""
    front: bool = False
    """With several objectives: only where no trial is better and costs no more, those of the methods before included."""


class Budget(BaseModel):
    """What a sweep may spend."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    trials: int = Field(ge=1)
    steps: int = Field(ge=1)
    """Optimiser steps of one trial at most."""
    student_steps: dict[str, Annotated[int, Field(ge=1)]] | None = None
    """The same of students that have another number of steps, by their names in the search space."""
    rungs: int = Field(default=3, ge=1, le=10)
    eta: int = Field(default=3, ge=2)
    """Rungs are a factor eta apart. Of the trials of one output dimension at a rung, ASHA lets the best 1/eta go on."""
    stopping: Stopping = sweep_field("asha", sweep="halving")
    """Which trials stop at a rung: all but the best 1/eta, judged in cohorts (halving) or at once (asha); those below the
    median; none. Where no trial can wait for later ones, halving is asha (`search.stopping.stopping_for`)."""
    resource: Resource = "steps"
    """What a rung has less of than the next: steps alone, or also the training examples that it draws from."""
    patience: int | None = Field(default=None, ge=1)
    """A student gets no more trials once so many of its trials in a row have moved nothing (`search.moving`)."""
    start: bool = sweep_field(False, sweep=True)
    """Whether a student is judged before its first step too, so that its start (rung 0) can be its result. No verdict is
    made there."""
    confirm: Confirmation = Confirmation()

    @model_validator(mode="before")
    @classmethod
    def _read_old_name(cls, fields: Any) -> Any:
        """`resource` was called `fidelity` in earlier files."""
        if isinstance(fields, dict) and OLD_RESOURCE in fields and "resource" not in fields:
            return {"resource" if name == OLD_RESOURCE else name: value for name, value in fields.items()}
        return fields

    def steps_of(self, params: Mapping[str, Any]) -> int:
        """Optimiser steps at most of a trial with these hyper-parameters."""
        return said_of(params.get("student") or "", self.student_steps) or self.steps

    def rung_steps(self, total: int) -> list[int]:
        """Steps at which a trial of `total` steps reports: total / eta^(rungs-1), ..., total / eta, total."""
        return sorted({max(1, total // self.eta**k) for k in range(self.rungs)})

    def data_shares(self, total: int) -> list[tuple[int, float]]:
        """From which share of the examples the batches up to each rung's step are drawn; [] where it is always all."""
        if self.resource == "steps" or total == 0:
            return []
        return [(step, step / total) for step in self.rung_steps(total)]
