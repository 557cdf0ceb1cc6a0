"""Measured rates: what one worker does in a second, on one kind of device."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Device = Literal["cpu", "cuda"]
Seconds = float


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PhaseRate(_Part):
    """A phase of a method's training."""

    batch: int = Field(ge=1)
    step_s: Seconds = Field(ge=0, allow_inf_nan=False)
    """The seconds of one optimiser step of `batch` examples."""


class Training(_Part):
    """One method's trainings, each on one worker."""

    phases: dict[str, PhaseRate]
    """By the phase's name; "" is all phases together."""
    begin_s: Seconds = Field(default=0.0, ge=0, allow_inf_nan=False)
    """From being given a trial to its first step, on a worker that is warm."""
    judge_s: Seconds = Field(default=0.0, ge=0, allow_inf_nan=False)
    """To judge it on dev at a rung, and to keep a checkpoint."""
    embed_per_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Sentences that a student embeds in a second."""
    finish_s: Seconds | None = Field(default=None, ge=0, allow_inf_nan=False)
    """To save a student once it is trained; where `embed_per_s` is not known, to embed what is evaluated too."""


def rate_name(method: str, student: str | None) -> str:
    """What the rate of a method's trainings is called; `student` is the one that its hyper-parameters name, if they do."""
    return method if student is None else f"{method}, {student}"


class Rates(_Part):
    """What one worker does, beside as many others as share its machine; None is not measured."""

    schema_version: Literal[1] = 1
    source: str
    """Where they come from: "probe", or the run."""
    measured_at: str
    """UTC, ISO 8601."""
    device: Device
    device_name: str
    """The GPU's name, or the CPU's architecture."""
    cpus: int
    side_by_side: int
    """Workers at work at once while it was measured."""
    teacher: str
    """The encoder whose rate `encode_per_s` is."""
    start_s: Seconds = Field(default=0.0, ge=0, allow_inf_nan=False)
    """What the command takes to start: imports, the corpus, Ray."""
    worker_s: Seconds = Field(default=0.0, ge=0, allow_inf_nan=False)
    """From asking for a worker until it has what it works with: a process, its imports, an encoder."""
    encode_per_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Sentences."""
    tokenise_per_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    augment_per_s: dict[str, float] = {}
    """Sentences, by operation."""
    pca_row_s: Seconds | None = Field(default=None, ge=0, allow_inf_nan=False)
    """The driver's seconds for one training sentence, of at most `data.calibration.SAMPLE`."""
    pca_s: Seconds = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Beside the rows: the eigendecomposition."""
    training: dict[str, Training] = {}
    """By method, and where the search space names students by both (`rate_name`)."""
    driver_s: Seconds = Field(default=0.0, ge=0, allow_inf_nan=False)
    """What the driver, which is one process, spends on each trial."""
    row_s: Seconds | None = Field(default=None, ge=0, allow_inf_nan=False)
    """To score one encoder on every set, quantised too; in the driver."""
    report_s: Seconds = Field(default=0.0, ge=0, allow_inf_nan=False)

    def of(self, method: str, student: str | None) -> Training | None:
        """The rates of a method with one student; those of the method alone where no others were measured."""
        return self.training.get(rate_name(method, student)) or self.training.get(method)
