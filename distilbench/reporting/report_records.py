"""What a report's file of records says beside trials and scores: its runs' settings, and how its rows compare.

Comparisons are computed from kept predictions, which stay with the run (0.3 MB a row). Their results are a few numbers a row:
written down, they let the pages be built again without the run. Rows are named by their anchors (`table.Row.anchor`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from distilbench.prepare.ranked_layers import LayerRanking
from distilbench.records import ScoreRecord, TrialRecord
from distilbench.stage_times import Took

TiesWithin = Literal["bytes", "dimension"]
"""Which rows tie letters are of: those with as many bytes per vector, or those of one dimension and quantisation."""


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
    timings: tuple[Took, ...] = ()
    """How long its stages took, and how much memory."""
    ranking: LayerRanking | tuple[LayerRanking, ...] | None = None
    """Those that chose the layers of its students: one as it is, as in records of before; several as a list."""

    @property
    def rankings(self) -> tuple[LayerRanking, ...]:
        """All of them."""
        return (self.ranking,) if isinstance(self.ranking, LayerRanking) else self.ranking or ()


class TieRow(_Part):
    """A row's place in its tie group (`bootstrap.Tie`); `leader` is the anchor of the group's first row."""

    row: str
    leader: str
    group: str = Field(pattern="^[a-z]+$")
    difference: float
    low: float
    high: float
    ahead: float = Field(ge=0, le=1)


class PairedDifference(_Part):
    """A paired difference (`statistics.Difference`), its 95 % interval and two-sided p."""

    value: float
    low: float
    high: float
    p: float = Field(ge=0, le=1)


class PairedRow(_Part):
    """A row minus the reference, by column; None where one of the two has no such items."""

    row: str
    of: list[PairedDifference | None]


class PairedTable(_Part):
    """Rows beside one reference row (`differences.Differences`)."""

    reference: str
    columns: list[str]
    rows: list[PairedRow]

    @model_validator(mode="after")
    def _whole(self) -> PairedTable:
        if any(len(row.of) != len(self.columns) for row in self.rows):
            raise ValueError(f"expected {len(self.columns)} differences a row, one for each column")
        return self


class DevAlike(_Part):
    """Rows with the same dev pairs, and which two of them (positions in `rows`) their dev scores do not tell apart."""

    rows: list[str]
    alike: list[tuple[int, int]]

    @model_validator(mode="after")
    def _inside(self) -> DevAlike:
        if any(not 0 <= place < len(self.rows) for pair in self.alike for place in pair):
            raise ValueError(f"expected positions of {len(self.rows)} rows, from 0")
        return self


class ReportRecord(_Part):
    """The report's title and notes, and what the kept predictions of its rows said when it was written.

    `seeds` has the anchor of each seed of each row: the comparisons are of these, and of no other leaderboard.
    """

    kind: Literal["report"] = "report"
    schema_version: Literal[1] = 1
    title: str
    notes: list[str]
    seeds: list[str]
    resamples: int
    ties: list[TieRow]
    ties_within: TiesWithin = "dimension"
    """Not said in reports of earlier versions, whose letters are of a dimension and quantisation."""
    without: list[str]
    """Names of rows of which not every seed's predictions were there."""
    other_pairs: list[str]
    """Names of rows whose test pairs are not those of the other rows on their corpus."""
    paired: list[PairedTable]
    dev: list[DevAlike]


Line = TrialRecord | ScoreRecord | RunRecord | ReportRecord
LINES: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])
