"""A report from what is there of its runs: their folders, or the file of records of an earlier report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from distilbench.reporting.board import leaderboard
from distilbench.reporting.page import write_report
from distilbench.reporting.study_file import read_study


def report_from(sources: Sequence[Path], folder: Path, *, title: str | None = None) -> Path:
    """Write the report of `sources` (`study_file.read_study`) into `folder` and return the path of its index.html.

    From a single file of records, title, notes and comparisons are those that it says. Otherwise comparisons come from
    the predictions that the runs keep, and the title from the names of the sources.
    """
    study = read_study(sources)
    report, folders = study.report, list(study.folders)
    same = report is not None and report.comparison.is_of(leaderboard(study.records))
    return write_report(
        study.records,
        folder,
        title=title or (report.title if report else ", ".join(_name(source) for source in sources)),
        notes=report.notes if report else (),
        folders=folders,
        compared=report.comparison if report and same else None,
        described=study.runs,
    )


def _name(source: Path) -> str:
    """A source's name in a title: without the endings of a file of records."""
    name = source.resolve().name
    return name.removesuffix(".xz").removesuffix(".jsonl")
