"""The page of one encoder: every number of it, where it comes from, how to load it and how to make it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from distilbench.progress.tally import finite
from distilbench.records import AS_IT_CAME
from distilbench.reporting.board import Column, Leaderboard, Row
from distilbench.reporting.code_overlap import below_overlap
from distilbench.reporting.comparison import Comparison
from distilbench.reporting.loading import can_be_built, export_command, is_nested, load_code
from distilbench.reporting.pages import render_html
from distilbench.reporting.run_facts import run_file
from distilbench.reporting.trainings import Trainings, reproduce_command

FOLDER = "encoders"

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


def encoder_file(row: Row) -> str:
    """Where the row's page lies in the report."""
    return f"{FOLDER}/{row.anchor}.html"


def render_encoder(row: Row, board: Leaderboard, compared: Comparison, trainings: Trainings, title: str) -> str:
    """The HTML of the row's page."""
    folder = f"runs/{row.record.run}/{row.record.model}"
    return render_html(
        "encoder.html.j2",
        "../",
        title=title,
        row=row,
        board=board,
        headline=headline(row, board.columns),
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


def headline(row: Row, columns: Sequence[Column]) -> list[tuple[Column, int]]:
    """The leaderboard's columns that the row has a value in, with their places."""
    return [(c, i) for i, c in enumerate(columns) if row.values[i].value is not None]


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
