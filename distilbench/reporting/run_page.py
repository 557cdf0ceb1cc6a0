"""The page of one run: its rows, the figures of its search, its trials, its settings and where they come from."""

from __future__ import annotations

from collections.abc import Sequence

from distilbench.records import ON_DEMONSTRATION, ScoreRecord, TrialRecord
from distilbench.reporting.board import Leaderboard
from distilbench.reporting.comparison import NOT_COMPARED, Comparison
from distilbench.reporting.pages import render_html
from distilbench.reporting.plots import search_plots
from distilbench.reporting.recommendation import answer_of_run, kept_spread, rows_of_run
from distilbench.reporting.run_facts import RunFacts
from distilbench.reporting.trainings import DIAGNOSTICS, trial_table

MAX_TRIALS = 300
"""Trials listed in the page; records.jsonl.xz has them all."""


def render_run(
    run: RunFacts,
    records: Sequence[TrialRecord | ScoreRecord],
    board: Leaderboard,
    title: str,
    *,
    compared: Comparison = NOT_COMPARED,
) -> str:
    """The HTML of the run's page; `records` are those of this run."""
    plots, absent = search_plots(records)
    trials = trial_table(records, MAX_TRIALS)
    rows = rows_of_run(board, run.run)
    return render_html(
        "run.html.j2",
        "../",
        title=title,
        run=run,
        board=board,
        answer=answer_of_run(board, run.run, compared),
        on_demonstration=ON_DEMONSTRATION,
        rows=rows,
        spreads={row.anchor: kept_spread(board, row) for row in (*rows.shown, *rows.others)},
        trials=trials,
        diagnostics=DIAGNOSTICS,
        plots=plots,
        absent=absent,
    )
