"""The page of one run: its rows, the figures of its search, its trials, its settings and where they come from."""

from __future__ import annotations

from collections.abc import Sequence

from distilbench.records import ScoreRecord, TrialRecord
from distilbench.reporting import table
from distilbench.reporting.pages import render_html
from distilbench.reporting.plots import search_plots
from distilbench.reporting.run_facts import RunFacts
from distilbench.stored import by_bytes

MAX_TRIALS = 300
"""Trials listed in the page; records.jsonl.gz has them all."""


def render_run(
    run: RunFacts,
    records: Sequence[TrialRecord | ScoreRecord],
    board: table.Leaderboard,
    title: str,
    *,
    live: bool = False,
) -> str:
    """The HTML of the run's page; `records` are those of this run. A `live` one is without what takes seconds."""
    plots, absent = search_plots(records, importance=not live)
    trials = table.trial_table(records, MAX_TRIALS)
    return render_html(
        "run.html.j2",
        "../",
        title=title,
        run=run,
        board=board,
        rows=[row for row in board.rows if row.record.run == run.run],
        trials=trials,
        coded=any(by_bytes(t.params) for t in trials.shown),
        diagnostics=table.DIAGNOSTICS,
        plots=plots,
        absent=absent,
    )
