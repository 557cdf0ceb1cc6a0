"""The leaderboard's main columns, rounded: what is read on paper."""

from __future__ import annotations

from distilbench.records import ON_DEMONSTRATION
from distilbench.reporting import table
from distilbench.reporting.exports.grid import MISSING, Grid, Head, Line, Section
from distilbench.reporting.neighbours import lost_neighbours
from distilbench.reporting.ties import NO_TIES, WITHIN, Ties
from distilbench.selection import STS

SHOWN_SETS = 7
"""STS sets that have a column of their own; of more, none has."""


def leaderboard_grid(board: table.Leaderboard, ties: Ties = NO_TIES) -> Grid:
    """One line per row: what it is and costs, its test average with its interval, retention, STS sets, dev, tie group.

    Columns that no row has a value for are left out.
    """
    texts = ("Encoder", "Role", "Method", "Vectors")
    sizes = ("Dim", "Bytes", "Parameters")
    sets = [c for c in board.columns if c.key.startswith("sts:")]
    sets = sets if len(sets) <= SHOWN_SETS else []
    dev = [c for c in board.columns if c.key == table.DEV]
    head = [Head(title, number=False) for title in texts] + [Head(title) for title in sizes]
    head += [Head(board.columns[0].title), Head("Retention %"), *(Head(c.title) for c in [*sets, *dev])]
    head += [Head("Seeds"), Head("Tie group", number=False)]
    places = {c.key: i for i, c in enumerate(board.columns)}
    lines = []
    for row in board.rows:
        r, cells = row.record, row.values["all"]
        average, place = cells[0], ties.rows.get(row.anchor)
        line = [row.name, r.role, r.method, r.quantisation, f"{r.dim}", f"{r.bytes_per_vector}", f"{r.parameters}"]
        line += [shown_cell(average), shown_number(average.retention, 1)]
        line += [shown_number(cells[places[c.key]].value) for c in [*sets, *dev]]
        line += [f"{len(row.seeds)}", place.tie.group if place else MISSING]
        lines.append(tuple(line))
    filled = [i for i in range(len(head)) if not lines or any(line[i] != MISSING for line in lines)]
    notes = [f"Scores are x 100. The average is over {', '.join(board.sts_sets)} (test)."] if board.sts_sets else []
    if board.selection != STS:
        notes = [f"Scores are x 100: {board.selection.title} of the test sets."]
    if ties.rows:
        notes.append(f"A tie group is of the rows of {WITHIN[ties.within]} that cannot be told from the first of it.")
    if dev:
        notes.append("Dev chose the students: it is not a result.")
    demonstration = sum(row.record.demonstration for row in board.rows)
    if demonstration:
        rows = "All rows" if demonstration == len(board.rows) else f"{demonstration} of {len(board.rows)} rows"
        notes.append(f"{rows} are scored {ON_DEMONSTRATION}.")
    if lost := [table.told(row) for row in board.rows if lost_neighbours(row)]:
        notes.append(f"Neighbours lost, not recommended: {'; '.join(lost)}.")
    return Grid(
        "Leaderboard",
        tuple(head[i] for i in filled),
        (Section("", tuple(Line(tuple(line[i] for i in filled)) for line in lines)),),
        tuple(notes),
    )


def shown_cell(cell: table.Cell, digits: int = 2, scale: float = 1.0) -> str:
    """A mean with its interval over seeds, where it has one: "75.21 ± 0.34"."""
    half = f" ± {cell.interval * scale:.{digits}f}" if cell.interval is not None else ""
    return shown_number(cell.value, digits, scale) + half


def shown_number(value: float | None, digits: int = 2, scale: float = 1.0) -> str:
    """Rounded; "-" where there is none."""
    return MISSING if value is None else f"{value * scale:.{digits}f}"
