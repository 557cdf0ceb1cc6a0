"""Records -> a folder with a leaderboard that opens from disk, offline, and the data behind it.

Its pages are made from our templates: one of the leaderboard, one of each row and of each run.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from distilbench.evaluation.indexes import FINDS
from distilbench.events import INTERRUPTED, Event
from distilbench.progress.tally import finite
from distilbench.records import ON_DEMONSTRATION, Score, ScoreRecord, TrialRecord
from distilbench.reporting.board import CostRow, Leaderboard, Row, competes, index_rows, leaderboard, notices
from distilbench.reporting.board_figures import board_plots
from distilbench.reporting.choice import answer, answer_of_run
from distilbench.reporting.columns import Value
from distilbench.reporting.comparison import NOT_COMPARED, Comparison, compare_rows, tie_notices
from distilbench.reporting.drawing import DARK_OF, script_json
from distilbench.reporting.exports import EXPORTS, write_exports
from distilbench.reporting.formats import FILTERS, binary, count, fixed, index_setting, set_name, short, tenth
from distilbench.reporting.lines import encoder_lines
from distilbench.reporting.loading import can_be_built, export_command, is_nested, load_code
from distilbench.reporting.markdown import TEMPLATES, template_environment
from distilbench.reporting.page_rows import page_rows
from distilbench.reporting.run_facts import RUNS, RunFacts, Trainings, commands, listed_trials, run_facts, run_file
from distilbench.reporting.runs import read_runs
from distilbench.reporting.search_figures import search_plots
from distilbench.reporting.serving import below_overlap, serving_costs
from distilbench.reporting.study_file import RECORDS, ReportRecord, RunRecord, read_study, write_study
from distilbench.storage.files import DiskFull, write_changed

PLOTLY_FILE, STYLE_FILE, SCRIPT_FILE, BOARD_FILE = "plotly.min.js", "report.css", "report.js", "board.js"
POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file: 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
"""Scripts and styles come from files of the report alone. Plotly styles what it draws inline; `file:` since a page opened
from disk is of no origin, and so never its own 'self'."""
ENCODERS = "encoders"
"""The folder of the pages of rows."""
MAX_TRIALS = 300
"""Trials listed in a run's page; records.jsonl.xz has them all."""
DIAGNOSTICS = {"effective_rank": "Effective rank", "variance": "Variance"}
"""Rung metrics that tell a collapsed student: columns of the trial table where a trial has them."""
BUNDLE = TEMPLATES / "plotly-cartesian.min.js.gz"
"""A third of the whole Plotly: the charts that the figures use (PLOTLY.md beside it says where it comes from)."""
EVERY_S = 20.0
"""Between two writes of a live page, and longer where writing takes long: not more than SHARE of the driver's time."""
SHARE = 0.05


def _number(value: float | None, written: Callable[[float], str]) -> str | tuple[str, float]:
    """A number's text, and what sorts it where the text does not."""
    text = "" if value is None else written(value)
    return text if value is None or text.replace(".", "").isdigit() else (text, float(f"{value:.5g}"))


def _mean(field: str, written: Callable[[float], str] = fixed) -> Callable[[CostRow], str | tuple[str, float]]:
    return lambda index: _number(finite(index.measured[field]), written)


INDEX_COLUMNS: tuple[tuple[str, str, str, Callable[[CostRow], Any]], ...] = (
    ("Encoder", "text", "", lambda index: index.row.name),
    ("Set", "text", "", lambda index: set_name(index.cost.set, index.cost.split)),
    ("Index", "text", "", lambda index: "flat (exact)" if index.cost.kind == "flat" else index.cost.kind),
    ("Setting", "text", "nlist and nprobe of IVF, and what else the index depends on", lambda i: index_setting(i.cost)),
    ("Documents", "number", "", lambda index: _number(index.cost.documents, count)),
    ("Size", "number", "Bytes of the serialised index", _mean("bytes", binary)),
    ("Build,\u00a0s", "number", "", _mean("build_s", short)),
    ("ms / 1,000 queries", "number", "", _mean("ms_per_1000_queries", short)),
    (
        "Overlap,\u00a0%",
        "number",
        "Share of the exact index's first 10 documents that this one returns",
        _mean("overlap10_with_flat", tenth),
    ),
    ("MRR@10", "number", "", _mean("mrr10")),
    ("Recall@100", "number", "", _mean("recall100")),
    ("Threads", "number", "", lambda index: _number(index.cost.threads, str)),
)
"""Columns of the table of all indexes: title, kind, help, and how an index gives its text, with what sorts it if need be."""


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
    board = leaderboard(records)
    runs = run_facts(records, board, folders, described)
    if compared is None or not compared.is_of(board):
        compared = NOT_COMPARED if live else compare_rows(board, folders)
    report = Pages(records, board, title, notes, compared, runs, live)
    folder.mkdir(parents=True, exist_ok=True)
    report_record = None if live else ReportRecord(title=title, notes=list(notes), comparison=compared)
    write_study(folder / RECORDS, records, [run.described for run in runs], report_record)
    if not live:
        write_exports(board, compared, folder)
    pages = {f"{ENCODERS}/{row.anchor}.html": report.encoder(row) for row in board.rows}
    pages |= {run.file: report.run(run) for run in runs}
    index = report.index()
    for name in (STYLE_FILE, SCRIPT_FILE, BOARD_FILE):
        write_changed(folder / name, (TEMPLATES / name).read_text("utf-8"))
    write_changed(folder / PLOTLY_FILE, plotly_script())
    for file, text in pages.items():
        write_changed(folder / file, text)
    for page in (*folder.glob(f"{ENCODERS}/r-*.html"), *folder.glob(f"{RUNS}/s-*.html")):
        if page.relative_to(folder).as_posix() not in pages:  # of an earlier report that has others
            page.unlink()
    write_changed(folder / "index.html", index)
    return folder / "index.html"


def report_from(sources: Sequence[Path], folder: Path, *, title: str | None = None) -> Path:
    """Write the report of `sources` (`study_file.read_study`) as `write_report` does, and return the path of its page.

    From a single file of records, title, notes and comparisons are those that it says. Otherwise comparisons come from
    the predictions that the runs keep, and the title from the names of the sources.
    """
    study = read_study(sources)
    names = [source.resolve().name.removesuffix(".xz").removesuffix(".jsonl") for source in sources]
    return write_report(
        study.records,
        folder,
        title=title or (study.report.title if study.report else ", ".join(names)),
        notes=study.report.notes if study.report else (),
        folders=study.folders,
        compared=study.report.comparison if study.report else None,
        described=study.runs,
    )


@dataclass(frozen=True)
class Pages:
    """The HTML of a report's pages. They name no other host and no other file than their neighbours in the folder."""

    records: Sequence[TrialRecord | ScoreRecord]
    board: Leaderboard
    title: str
    notes: Sequence[str] = ()
    compared: Comparison = NOT_COMPARED
    runs: Sequence[RunFacts] = ()
    live: bool = False

    def index(self) -> str:
        """The leaderboard."""
        board, compared, rows = self.board, self.compared, self.board.rows
        indexes, serving = index_rows(board), serving_costs(board)
        chosen = answer(board, compared, serving)
        taken = chosen.rows if chosen.chosen else ()
        lines = encoder_lines(board, chosen.rows, compared)
        cells = [[index.row.anchor, *(read(index) for *_, read in INDEX_COLUMNS)] for index in indexes]
        return render_html(
            "index.html.j2",
            "",
            title=self.title,
            notes=self.notes,
            board=board,
            answer=chosen,
            page=page_rows(board, compared, serving, lines, taken),
            encoders=len(lines),
            teachers=dict.fromkeys(row.name for row in rows if not competes(row.record)),
            serving=serving,
            notices=(*notices(board), *tie_notices(compared)),
            demonstrations=sum(row.record.demonstration for row in rows),
            indexes=indexes,
            wider=[index for index in indexes if FINDS in index.cost.setting],
            index_headings=[column[:3] for column in INDEX_COLUMNS],
            every_index=Markup(script_json(cells)),
            trials=sum(run.trials for run in self.runs),
            sentences=sorted({run.described.sentences for run in self.runs if run.described.sentences}),
            runs=self.runs,
            newest=max((record.provenance.created_at for record in self.records), default=""),
            plots=board_plots(board, serving, taken),
            exports={} if self.live else EXPORTS,
        )

    @cached_property
    def _trainings(self) -> Trainings:
        return Trainings(self.records)

    def encoder(self, row: Row) -> str:
        """The page of a row: every number of it, where it comes from, how to load it and how to make it again."""
        r, folder = row.record, f"runs/{row.record.run}/{row.record.model}"
        return render_html(
            "encoder.html.j2",
            "../",
            title=self.title,
            row=row,
            board=self.board,
            headline=[column for column in self.board.columns if row.cells[column.key].value is not None],
            place=self.compared.ties.get(row.anchor),
            examples=self.compared.examples.get(row.anchor),
            resamples=self.compared.resamples,
            tasks=score_lines(row),
            again=commands(row, self._trainings),
            load=load_code(r, folder, folder, cut=is_nested(r)) if r.model and not r.documents else "",
            built=can_be_built(r) and not r.model,
            export=export_command(r, row.anchor),
            lost=below_overlap(row),
            run_page=run_file(r.run),
        )

    def run(self, run: RunFacts) -> str:
        """The page of a run: what to take of it, the figures of its search, its trials and settings."""
        records = [record for record in self.records if record.run == run.run]
        plots, absent = search_plots(records)
        trials = listed_trials(records, MAX_TRIALS)
        measured = {key for t in trials for rung in t.rungs for key in rung.metrics}
        return render_html(
            "run.html.j2",
            "../",
            title=self.title,
            run=run,
            board=self.board,
            answer=answer_of_run(self.board, run.run, self.compared),
            trials=trials,
            diagnostics={key: heading for key, heading in DIAGNOSTICS.items() if key in measured},
            plots=plots,
            absent=absent,
        )


@cache
def _environment() -> jinja2.Environment:
    environment = template_environment()
    environment.filters.update(FILTERS)
    environment.globals.update(
        policy=Markup(POLICY.replace("'", "&#39;")),
        dark_of=json.dumps(DARK_OF),
        plotly_file=PLOTLY_FILE,
        style_file=STYLE_FILE,
        script_file=SCRIPT_FILE,
        board_file=BOARD_FILE,
        records_file=RECORDS,
        on_demonstration=ON_DEMONSTRATION,
    )
    return environment


def render_html(template: str, root: str, **values: Any) -> str:
    """The HTML of a page; `root` is the way to the report's folder, "" or "../"."""
    return _environment().get_template(template).render(root=root, **values)


def plotly_script() -> str:
    """The JavaScript of Plotly."""
    return gzip.decompress(BUNDLE.read_bytes()).decode()


def score_lines(row: Row) -> dict[str, list[tuple[Score, list[Value]]]]:
    """Every score by task: the first seed's that has it, and the value of each seed in the order of the row's."""
    by_key: dict[tuple[str, ...], dict[int, Score]] = {}
    for place, seed in enumerate(row.seeds):
        for s in seed.record.scores:
            by_key.setdefault((s.task, s.set, s.split, s.metric, s.variant), {})[place] = s
    tasks: dict[str, list[tuple[Score, list[Value]]]] = {}
    for (task, *_), of_seed in by_key.items():
        values = [Value(None)] * len(row.seeds)
        for place, s in of_seed.items():
            values[place] = Value(finite(s.value), s.low, s.high)
        tasks.setdefault(task, []).append((next(iter(of_seed.values())), values))
    return tasks
