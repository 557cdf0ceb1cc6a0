"""The pages of a report from our templates, and the policy that keeps all else out of them."""

from __future__ import annotations

import gzip
import json
import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from distilbench.progress.tally import finite
from distilbench.records import AS_IT_CAME, ON_DEMONSTRATION, ScoreRecord, TrialRecord
from distilbench.reporting.board import Leaderboard, Row
from distilbench.reporting.choice import answer_of_run, rows_of_run
from distilbench.reporting.comparison import NOT_COMPARED, Comparison
from distilbench.reporting.drawing import DARK_OF
from distilbench.reporting.formats import FILTERS
from distilbench.reporting.loading import can_be_built, export_command, is_nested, load_code
from distilbench.reporting.run_facts import RunFacts, Trainings, listed_trials, reproduce_command, run_file
from distilbench.reporting.search_figures import search_plots
from distilbench.reporting.serving import below_overlap
from distilbench.reporting.study_file import RECORDS
from distilbench.storage.files import write_changed

PLOTLY_FILE, STYLE_FILE, SCRIPT_FILE = "plotly.min.js", "report.css", "report.js"
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

_TEMPLATES = Path(__file__).parent / "templates"
BUNDLE = _TEMPLATES / "plotly-cartesian.min.js.gz"
"""A third of the whole Plotly: the charts that the figures use (PLOTLY.md beside it says where it comes from)."""

Measured = tuple[float | None, float | None, float | None]
"""A score x 100 and the ends of its bootstrap interval."""


class ScoreLine(NamedTuple):
    """One score of a row: `of` has each seed's, in the order of the row's seeds."""

    set: str
    split: str
    metric: str
    variant: str
    n: int
    of: tuple[Measured, ...]


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    environment.globals.update(
        policy=Markup(POLICY.replace("'", "&#39;")),
        dark_of=json.dumps(DARK_OF),
        plotly_file=PLOTLY_FILE,
        style_file=STYLE_FILE,
        script_file=SCRIPT_FILE,
        records_file=RECORDS,
        on_demonstration=ON_DEMONSTRATION,
    )
    return environment


def render_html(template: str, root: str, **values: Any) -> str:
    """The HTML of a page; `root` is the way to the report's folder, "" or "../"."""
    return _environment().get_template(template).render(root=root, **values)


def write_assets(folder: Path) -> None:
    """The style, the script and Plotly, once for all pages of a report."""
    for name in (STYLE_FILE, SCRIPT_FILE):
        write_changed(folder / name, (_TEMPLATES / name).read_text("utf-8"))
    write_changed(folder / PLOTLY_FILE, plotly_script())


def plotly_script() -> str:
    """The JavaScript of Plotly."""
    return gzip.decompress(BUNDLE.read_bytes()).decode()


def encoder_file(row: Row) -> str:
    """Where the row's page lies in the report."""
    return f"{ENCODERS}/{row.anchor}.html"


def render_encoder(row: Row, board: Leaderboard, compared: Comparison, trainings: Trainings, title: str) -> str:
    """The page of a row: every number of it, where it comes from, how to load it and how to make it again."""
    folder = f"runs/{row.record.run}/{row.record.model}"
    return render_html(
        "encoder.html.j2",
        "../",
        title=title,
        row=row,
        board=board,
        headline=[(c, i) for i, c in enumerate(board.columns) if row.values[i].value is not None],
        place=compared.ties.get(row.anchor),
        resamples=compared.resamples,
        tasks=score_lines(row),
        again=commands(row, trainings),
        load=load_code(row.record, folder, folder, cut=is_nested(row.record)) if row.record.model else "",
        built=can_be_built(row.record) and not row.record.model,
        export=export_command(row.record, row.anchor),
        lost=below_overlap(row),
        run_page=run_file(row.record.run),
    )


def score_lines(row: Row) -> dict[str, list[ScoreLine]]:
    """Every score of every seed, by task."""
    by_key: dict[tuple[str, ...], dict[int, tuple[int, Measured]]] = {}
    for place, seed in enumerate(row.seeds):
        for s in seed.record.scores:
            by_seed = by_key.setdefault((s.task, s.set, s.split, s.metric, s.variant), {})
            by_seed[place] = s.n, (finite(s.value), s.low, s.high)
    tasks: dict[str, list[ScoreLine]] = {}
    for (task, *key), by_seed in by_key.items():
        cells = tuple(by_seed[place][1] if place in by_seed else (None, None, None) for place in range(len(row.seeds)))
        n = next(iter(by_seed.values()))[0]
        tasks.setdefault(task, []).append(ScoreLine(key[0], key[1], key[2], key[3], n, cells))
    return tasks


def commands(row: Row, trainings: Trainings) -> list[str]:
    """Commands that make the row's numbers again, from the folder that holds `runs/`; none where they cannot be told."""
    r = row.record
    if r.start == AS_IT_CAME:
        return [shlex.join(["distilbench", "evaluate", r.source or r.label, "--data", "DIR"])]
    trainings_of_seeds = [trainings.of(seed.record) for seed in row.seeds]
    return [reproduce_command(training) for training in trainings_of_seeds if training is not None]


def render_run(
    run: RunFacts,
    records: Sequence[TrialRecord | ScoreRecord],
    board: Leaderboard,
    title: str,
    *,
    compared: Comparison = NOT_COMPARED,
) -> str:
    """The page of a run: its rows, the figures of its search, its trials and settings; `records` are those of this run."""
    plots, absent = search_plots(records)
    trials = listed_trials(records, MAX_TRIALS)
    measured = {key for t in trials for rung in t.rungs for key in rung.metrics}
    shown, others = rows_of_run(board, run.run)
    return render_html(
        "run.html.j2",
        "../",
        title=title,
        run=run,
        board=board,
        answer=answer_of_run(board, run.run, compared),
        rows=shown,
        others=others,
        trials=trials,
        diagnostics={key: heading for key, heading in DIAGNOSTICS.items() if key in measured},
        plots=plots,
        absent=absent,
    )
