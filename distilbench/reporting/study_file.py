"""The file of a report: every record that its pages are made of, compressed. `distilbench report` reads it again.

Comparisons are computed from kept predictions, which stay with the run (0.3 MB a row). Their results are a few numbers and
some examples a row: written down, they let the pages be built again without the run.
"""

from __future__ import annotations

import lzma
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, TypeAdapter

from distilbench.errors import InputError
from distilbench.prepare.layer_ranking import LayerRanking
from distilbench.records import ScoreRecord, TrialRecord, read_json_lines
from distilbench.reporting.comparison import Comparison, ReportPart
from distilbench.reporting.runs import Record, is_run, merged, run_folders, run_records
from distilbench.stage_times import StageTiming
from distilbench.storage.files import atomic_path

RECORDS = "records.jsonl.xz"


class RunRecord(ReportPart):
    """A run as its folder describes it: what `run_facts.RunFacts` cannot take from trials and scores."""

    kind: Literal["run"] = "run"
    schema_version: Literal[1] = 1
    run: str
    config: dict[str, Any] = Field(default={})
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


class ReportRecord(ReportPart):
    """The report's title and notes, and how its rows compared when it was written."""

    kind: Literal["report"] = "report"
    schema_version: Literal[1] = 1
    title: str
    notes: list[str]
    comparison: Comparison


Line = TrialRecord | ScoreRecord | RunRecord | ReportRecord
LINES: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])


class Study(NamedTuple):
    """The contents of one or more sources. `folders` are the runs among them, which may keep settings and predictions.

    `report` is what a single file says of title, notes and comparisons, None in all other cases: tie letters of two
    leaderboards do not make those of their union.
    """

    records: tuple[Record, ...]
    runs: tuple[RunRecord, ...] = ()
    report: ReportRecord | None = None
    folders: tuple[Path, ...] = ()


def write_study(
    path: Path,
    records: Sequence[TrialRecord | ScoreRecord],
    runs: Sequence[RunRecord] = (),
    report: ReportRecord | None = None,
) -> None:
    """Write the file whole, or not at all. The same contents give the same bytes."""
    lines = [*records, *runs, *([] if report is None else [report])]
    payload = b"".join(line.model_dump_json().encode() + b"\n" for line in lines)
    with atomic_path(path) as temporary:
        temporary.write_bytes(
            lzma.compress(payload, preset=9 | lzma.PRESET_EXTREME)
        )  # a fifth smaller, in twice the time


def read_study(sources: Sequence[Path]) -> Study:
    """The records of run folders, files of records (`.jsonl`, compressed or not) and folders of reports, as one study.

    A teacher or baseline that several sources scored on the same sets is the first's.
    """
    parts: list[tuple[Path, Sequence[Record]]] = []
    runs: list[RunRecord] = []
    reports: list[ReportRecord] = []
    folders: list[Path] = []
    for source in sources:
        if not source.exists():
            raise InputError(f"{source}: no such path; expected a run's folder, a file of records or a report's folder")
        file = records_file(source)
        if file is None:
            own = run_folders([source])
            folders += own
            parts += [(folder, run_records(folder)) for folder in own]
            continue
        lines = list(read_json_lines(file, LINES))
        if not any(isinstance(line, ScoreRecord) for line in lines):
            raise InputError(f"{file}: no score records in it; expected the records of a report")
        parts.append((file, [line for line in lines if isinstance(line, TrialRecord | ScoreRecord)]))
        runs += [line for line in lines if isinstance(line, RunRecord)]
        reports += [line for line in lines if isinstance(line, ReportRecord)]
    report = reports[0] if len(parts) == len(reports) == 1 else None
    return Study(tuple(merged(parts)), tuple(runs), report, tuple(dict.fromkeys(folders)))


def records_file(source: Path) -> Path | None:
    """The file of records that `source` is, or as a report's folder holds; None for the folder of a run, or of several."""
    if source.is_file():
        return source
    inside = source / RECORDS
    return inside if inside.is_file() and not is_run(source) else None
