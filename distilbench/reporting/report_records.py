"""What a report's file of records says beside trials and scores: its runs' settings, and how its rows compare.

Comparisons are computed from kept predictions, which stay with the run (0.3 MB a row). Their results are a few numbers a row:
written down, they let the pages be built again without the run.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from distilbench.prepare.ranked_layers import LayerRanking
from distilbench.records import ScoreRecord, TrialRecord
from distilbench.reporting.comparison import Comparison
from distilbench.stage_times import StageTiming


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class RunRecord(_Part):
    """A run as its folder describes it: what `run_facts.RunFacts` cannot take from trials and scores."""

    kind: Literal["run"] = "run"
    schema_version: Literal[1] = 1
    run: str
    config: dict[str, Any] = {}
    """Its config.json by dotted keys."""
    stage: str = ""
    wanted: int | None = None
    """Trials that the sweep wants, as its progress file says."""
    sentences: int | None = None
    """Distinct sentences that its students are trained on."""
    timings: tuple[StageTiming, ...] = ()
    """How long its stages took, and how much memory."""
    rankings: tuple[LayerRanking, ...] = ()
    """Those that chose the layers of its students."""


class ReportRecord(_Part):
    """The report's title and notes, and how its rows compared when it was written."""

    kind: Literal["report"] = "report"
    schema_version: Literal[1] = 1
    title: str
    notes: list[str]
    comparison: Comparison


Line = TrialRecord | ScoreRecord | RunRecord | ReportRecord
LINES: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])
