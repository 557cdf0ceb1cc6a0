"""Settings of a sweep, as the command line gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from distilbench.data.folder import Limits
from distilbench.encoder import EncoderSpec


class SweepSettings(BaseModel):
    """Everything that one `sweep` command decides."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    method: str
    data: Path | None = None
    """A data folder; None is the built-in demonstration corpus of `corpus_size` training pairs."""
    corpus_size: int = 4000
    limits: Limits = Limits()
    teacher: EncoderSpec = EncoderSpec("all-MiniLM-L6-v2")
    vectors: Literal["float16", "float32"] = "float16"
    """Precision in which the teacher's embeddings are stored."""
    student: str = "half"
    space: Path | None = None
    """A search space; None is `search_spaces/METHOD.yaml`."""
    trials: int | None = Field(default=None, ge=1)
    """Trials in all; None is the search space's number."""
    seed: int = Field(default=0, ge=0)
    name: str | None = None
    """The run's name; None is METHOD-CORPUS-TEACHER."""
    runs: Path = Path("runs")
    reports: Path = Path("reports")
    store: Path
    address: str | None = None
    """A Ray cluster; None starts one on this machine."""
    cpus: int | None = Field(default=None, ge=1)
    """CPUs of the cluster started on this machine; None is all."""
    dashboard: bool = True
    gpus_per_trial: float | None = Field(default=None, ge=0)
    """None is a quarter of a GPU where there is one."""
