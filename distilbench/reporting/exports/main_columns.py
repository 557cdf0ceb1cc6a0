"""The leaderboard's main columns, rounded: what is read on paper."""

from __future__ import annotations

from distilbench.records import ON_DEMONSTRATION
from distilbench.reporting import table
from distilbench.reporting.comparison import NOT_COMPARED, Comparison
from distilbench.reporting.exports.grid import MISSING, Grid, Head, Line, Section
from distilbench.reporting.lines import encoder_lines
from distilbench.reporting.neighbours import lost_neighbours
from distilbench.reporting.recommended import answer, main_retrieval
from distilbench.reporting.serving import ServingCosts, serving_costs
from distilbench.selection import STS

SHOWN_SETS = 7
"""STS sets that have a column of their own; of more, none has."""


def leaderboard_grid(board: table.Leaderboard, compared: Comparison = NOT_COMPARED) -> Grid:
    """One line per row: what it is, its test average, retention, retrieval, classification, cost, sets, compared, tie group.

    First the line of each encoder, as on the page, then the other forms and baselines; above them what the page recommends.
    Columns that no row has a value for are left out.
    """
    serving = serving_costs(board)
    chosen = answer(board, compared, serving)
    lines = encoder_lines(board, chosen.rows, compared).lines
    head = [Head(title, number=False) for title in ("Encoder", "Role", "Method", "Vectors")]
    head += [Head("Dim"), Head("Bytes"), *map(Head, _titles(board))]
    head += [Head("Seeds"), Head("Tie group", number=False)]

    def cells(row: table.Row) -> tuple[str, ...]:
        r, place = row.record, compared.ties.get(row.anchor)
        what = [table.told(row), r.role, r.method, r.quantisation, f"{r.dim}", f"{r.bytes_per_vector}"]
        return (*what, *_values(board, row, serving), f"{len(row.seeds)}", place.group if place else MISSING)

    heads = [cells(line.row) for line in lines if line.kind != "other"]
    rest = [cells(row) for line in lines for row in (line.codes if line.kind != "other" else line.rows)]
    every = [*heads, *rest]
    filled = [i for i in range(len(head)) if not every or any(row[i] != MISSING for row in every)]

    def section(title: str, rows: list[tuple[str, ...]]) -> Section:
        return Section(title, tuple(Line(tuple(row[i] for i in filled)) for row in rows))

    sections = [section("", heads), *([section("Other codes and baselines", rest)] if rest else [])]
    return Grid(
        "Leaderboard",
        tuple(head[i] for i in filled),
        tuple(sections),
        tuple(_notes(board, compared, serving)),
        chosen.sentences(),
    )


def _shown_columns(board: table.Leaderboard) -> list[table.Column]:
    """Classification (its mean, or its only set), the STS sets where they are few, and dev."""
    classified = [c for c in board.columns if c.key == "classification_average"]
    classified = classified or [c for c in board.columns if c.key.startswith("classification:")][:1]
    sets = [c for c in board.columns if c.key.startswith("sts:")]
    dev = [c for c in board.columns if c.key == table.DEV]
    return [*classified, *(sets if len(sets) <= SHOWN_SETS else []), *dev]


def _titles(board: table.Leaderboard) -> list[str]:
    """The titles of `_values`."""
    named = [("Classification" if c.key.startswith("classification") else c.title) for c in _shown_columns(board)]
    costs = ["ms per 1,000 queries", "Index MB", "Sentences/s", "Parameters"]
    return [board.columns[0].title, "Retention %", "MRR@10", "Recall@100", *costs, *named]


def _values(board: table.Leaderboard, row: table.Row, serving: ServingCosts) -> list[str]:
    average, own = row.values["all"][0], serving.rows[row.anchor]
    found = main_retrieval(row, None, serving)
    places = {c.key: i for i, c in enumerate(board.columns)}
    return [
        shown_cell(average),
        shown_number(average.retention, 1),
        shown_number(found.mrr10.value if found else None),
        shown_number(found.recall100.value if found else None),
        shown_number(own.ms_per_1000_queries.value, 1),
        shown_number(own.index_bytes.value, 2, 1e-6),
        shown_number(own.sentences_per_s.value, 0),
        f"{row.record.parameters}",
        *(shown_number(row.values["all"][places[c.key]].value) for c in _shown_columns(board)),
    ]


def _notes(board: table.Leaderboard, compared: Comparison, serving: ServingCosts) -> list[str]:
    notes = [f"Scores are x 100. The average is over {', '.join(board.sts_sets)} (test)."] if board.sts_sets else []
    if board.selection != STS:
        notes = [f"Scores are x 100: {board.selection.title} of the test sets."]
    if serving.setting is not None:
        notes.append(f"Retrieval and its cost: {serving.searched}.")
    if compared.ties:
        notes.append("A tie group is of the rows of as many bytes per vector that cannot be told from the first of it.")
    if any(c.key == table.DEV for c in board.columns):
        notes.append("Dev chose the students: it is not a result.")
    demonstration = sum(row.record.demonstration for row in board.rows)
    if demonstration:
        rows = "All rows" if demonstration == len(board.rows) else f"{demonstration} of {len(board.rows)} rows"
        notes.append(f"{rows} are scored {ON_DEMONSTRATION}.")
    if lost := [table.told(row) for row in board.rows if lost_neighbours(row)]:
        notes.append(f"Neighbours lost, not recommended: {'; '.join(lost)}.")
    return notes


def shown_cell(cell: table.Cell, digits: int = 2, scale: float = 1.0) -> str:
    """A mean with its interval over seeds, where it has one: "75.21 ± 0.34"."""
    half = f" ± {cell.interval * scale:.{digits}f}" if cell.interval is not None else ""
    return shown_number(cell.value, digits, scale) + half


def shown_number(value: float | None, digits: int = 2, scale: float = 1.0) -> str:
    """Rounded; "-" where there is none."""
    return MISSING if value is None else f"{value * scale:.{digits}f}"
