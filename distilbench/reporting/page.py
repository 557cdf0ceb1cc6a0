"""Records -> a folder with a leaderboard that opens from disk, offline, and the data behind it."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from distilbench.events import INTERRUPTED, Event
from distilbench.progress.tally import finite
from distilbench.records import ScoreRecord, TrialRecord
from distilbench.reporting.board import CostRow, Leaderboard, competes, index_rows, leaderboard, notices
from distilbench.reporting.board_figures import board_plots
from distilbench.reporting.choice import answer
from distilbench.reporting.comparison import NOT_COMPARED, Comparison, compare_rows, tie_notices
from distilbench.reporting.drawing import script_json
from distilbench.reporting.exports import EXPORTS, write_exports
from distilbench.reporting.formats import index_setting, set_name
from distilbench.reporting.frame import LEADING_GROUPS, board_columns, page_columns
from distilbench.reporting.lines import encoder_lines
from distilbench.reporting.pages import (
    ENCODERS,
    encoder_file,
    render_encoder,
    render_html,
    render_run,
    write_assets,
)
from distilbench.reporting.run_facts import RUNS, RunFacts, Trainings, run_facts
from distilbench.reporting.runs import read_runs
from distilbench.reporting.serving import below_overlap, code_overlap, serving_costs
from distilbench.reporting.study_file import RECORDS, ReportRecord, RunRecord, read_study, write_study
from distilbench.storage.files import DiskFull, write_changed

EVERY_S = 20.0
"""Between two writes of a live page, and longer where writing takes long: not more than SHARE of the driver's time."""
SHARE = 0.05
INDEX_HEADINGS = (
    ("Encoder", "text", ""),
    ("Set", "text", ""),
    ("Index", "text", ""),
    ("Setting", "text", "nlist and nprobe of IVF, and what else the index depends on"),
    ("Documents", "number", ""),
    ("Size", "number", "Bytes of the serialised index"),
    ("Build,\u00a0s", "number", ""),
    ("ms / 1,000 queries", "number", ""),
    ("Overlap,\u00a0%", "number", "Share of the exact index's first 10 documents that this one returns"),
    ("MRR@10", "number", ""),
    ("Recall@100", "number", ""),
    ("Threads", "number", ""),
)
"""Columns of the table of all indexes: title, kind, help."""


class LivePage:
    """Writes the report of the runs in `folders` into `report` when a stage begins, and now and then as trials end.

    Ties, and what `write_report` leaves out of a live page, are left to the end.
    """

    def __init__(self, report: Path, title: str, folders: Sequence[Path]) -> None:
        self.report, self.title, self.folders = report, title, tuple(folders)
        self.due = 0.0

    def __call__(self, event: Event) -> None:
        """Write the page when a stage begins, and when a trial has ended and the last page is old.

        At the end of all, the whole report follows; after an interruption nothing shall take time.
        """
        if event.stage not in ("", "done", INTERRUPTED) or (event.record and time.monotonic() >= self.due):
            self._write()

    def _write(self) -> None:
        began = time.monotonic()
        with contextlib.suppress(OSError, DiskFull):  # what only shows the sweep does not end it
            records = read_runs(self.folders, unfinished=True)
            if records:
                write_report(records, self.report, title=self.title, folders=self.folders, live=True)
        self.due = time.monotonic() + max(EVERY_S, (time.monotonic() - began) / SHARE)


def write_report(
    records: Sequence[TrialRecord | ScoreRecord],
    folder: Path,
    *,
    title: str,
    notes: Sequence[str] = (),
    folders: Sequence[Path] = (),
    live: bool = False,
    compared: Comparison | None = None,
    described: Sequence[RunRecord] = (),
) -> Path:
    """Write the report of `records` into `folder` (created if missing) and return the path of its index.html.

    Beside the page: a page for each row (`encoders/`) and each run (`runs/`), records.jsonl.xz (`study_file`: every record
    given, and what was computed from predictions), the exports, and the style, script and Plotly of all pages. Each file is
    written under a temporary name and renamed, index.html last, so a reader never meets half a file; an earlier report there
    is replaced. `notes` are paragraphs of plain text for the head of the page, `folders` those of the runs, with their
    settings and the predictions that rows are compared by. `live`: the runs go on, so what takes seconds (exports,
    comparisons) is left to the end. `compared` and `described` are what a file of records says in place of `folders`; a
    comparison of other rows than these is not taken.
    """
    folder.mkdir(parents=True, exist_ok=True)
    board = leaderboard(records)
    runs = run_facts(records, board, folders, described)
    if compared is None or not compared.is_of(board):
        compared = NOT_COMPARED if live else compare_rows(board, folders)
    report_record = None if live else ReportRecord(title=title, notes=list(notes), comparison=compared)
    write_study(folder / RECORDS, records, [run.described for run in runs], report_record)
    if not live:
        write_exports(board, compared, folder)
    index = render_page(records, board, title=title, notes=notes, compared=compared, runs=runs, live=live)
    write_assets(folder)
    _write_pages(records, board, folder, title, compared, runs)
    write_changed(folder / "index.html", index)
    return folder / "index.html"


def report_from(sources: Sequence[Path], folder: Path, *, title: str | None = None) -> Path:
    """Write the report of `sources` (`study_file.read_study`) into `folder` and return the path of its index.html.

    From a single file of records, title, notes and comparisons are those that it says. Otherwise comparisons come from
    the predictions that the runs keep, and the title from the names of the sources.
    """
    study = read_study(sources)
    report, folders = study.report, list(study.folders)
    return write_report(
        study.records,
        folder,
        title=title or (report.title if report else ", ".join(_name(source) for source in sources)),
        notes=report.notes if report else (),
        folders=folders,
        compared=report.comparison if report else None,
        described=study.runs,
    )


def _name(source: Path) -> str:
    """A source's name in a title: without the endings of a file of records."""
    name = source.resolve().name
    return name.removesuffix(".xz").removesuffix(".jsonl")


def _write_pages(
    records: Sequence[TrialRecord | ScoreRecord],
    board: Leaderboard,
    folder: Path,
    title: str,
    compared: Comparison,
    runs: Sequence[RunFacts],
) -> None:
    """The pages of rows and runs; those of an earlier report that has others are removed."""
    trainings = Trainings(records)
    by_run: dict[str, list[TrialRecord | ScoreRecord]] = {}
    for record in records:
        by_run.setdefault(record.run, []).append(record)
    written = set()
    for row in board.rows:
        written.add(folder / encoder_file(row))
        write_changed(folder / encoder_file(row), render_encoder(row, board, compared, trainings, title))
    for run in runs:
        written.add(folder / run.file)
        write_changed(folder / run.file, render_run(run, by_run[run.run], board, title, compared=compared))
    for pattern in (f"{ENCODERS}/r-*.html", f"{RUNS}/s-*.html"):
        for page in folder.glob(pattern):
            if page not in written:
                page.unlink()


def render_page(
    records: Sequence[TrialRecord | ScoreRecord],
    board: Leaderboard,
    *,
    title: str,
    notes: Sequence[str] = (),
    compared: Comparison = NOT_COMPARED,
    runs: Sequence[RunFacts] = (),
    live: bool = False,
) -> str:
    """The HTML of the leaderboard. It names no other host and no other file than its neighbours in the folder."""
    indexes = index_rows(board)
    serving = serving_costs(board)
    chosen = answer(board, compared, serving)
    lines = encoder_lines(board, chosen.rows, compared)
    columns = page_columns(board_columns(board, compared, serving))
    groups = [(name, list(own)) for name, own in itertools.groupby(columns, lambda column: column.group)]
    taken = chosen.rows if chosen.chosen else ()
    plots = board_plots(board, serving, indexes, taken)
    return render_html(
        "index.html.j2",
        "",
        title=title,
        notes=notes,
        board=board,
        answer=chosen,
        taken=taken,
        lines=lines,
        others=sum(line.kind == "other" for line in lines),
        corpus=next(iter(board.corpora), ""),
        teachers=dict.fromkeys(row.name for row in board.rows if not competes(row.record)),
        columns=columns,
        groups=[(name, len(own)) for name, own in groups],
        details=[name for name, _ in groups if name not in LEADING_GROUPS],
        firsts={own[0].name for name, own in groups if name not in LEADING_GROUPS},
        serving=serving,
        compared=compared,
        costs=[row for row in board.rows if row.record.cost],
        notices=(*notices(board), *tie_notices(compared)),
        lost={row.anchor: below_overlap(row) for row in board.rows},
        kept={row.anchor: own.overlap10_with_flat for row in board.rows if (own := code_overlap(row))},
        demonstrations=sum(row.record.demonstration for row in board.rows),
        indexes=indexes,
        index_headings=INDEX_HEADINGS,
        every_index=Markup(script_json(every_index(indexes))),
        trials=sum(run.trials for run in runs),
        sentences=sorted({run.described.sentences for run in runs if run.described.sentences}),
        runs=runs,
        newest=max((record.provenance.created_at for record in records), default=""),
        plots=plots,
        exports={} if live else EXPORTS,
    )


def every_index(indexes: Sequence[CostRow]) -> list[list[Any]]:
    """All indexes as the script of the page lists them: a row's anchor, then a value for each of `INDEX_HEADINGS`."""

    def numbers(index: CostRow, *fields: str) -> list[float | None]:
        values = (finite(index.measured[field].value) for field in fields)
        return [None if value is None else float(f"{value:.5g}") for value in values]

    return [
        [
            i.row.anchor,
            i.row.name,
            set_name(i.cost.set, i.cost.split),
            f"{i.cost.kind} (exact)" if i.cost.kind == "flat" else i.cost.kind,
            index_setting(i.cost),
            i.cost.documents,
            *numbers(i, "bytes", "build_s", "ms_per_1000_queries", "overlap10_with_flat", "mrr10", "recall100"),
            i.cost.threads,
        ]
        for i in indexes
    ]
