"""The numbers of a leaderboard as its page carries them: once, a row a line.

The page's script makes the table, the answer for a reader's own limits, the figures, comparisons and files of these rows,
of the sets that are chosen, and of the limits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from distilbench.evaluation.examples import Examples
from distilbench.reporting.board import Leaderboard, Row, t_quantile, teacher_row, told
from distilbench.reporting.choice import FASTER, FEW_BYTES, KEPT_PERCENT, candidates, costs_told
from distilbench.reporting.columns import DEV, HEADLINES, TASKS, TEST, Column, dev_columns, scores_of, value_of
from distilbench.reporting.comparison import Comparison
from distilbench.reporting.drawing import script_json
from distilbench.reporting.formats import signed
from distilbench.reporting.frame import BoardColumn, board_columns, page_columns
from distilbench.reporting.lines import EncoderLine
from distilbench.reporting.loading import export_command
from distilbench.reporting.serving import ServingCosts, below_overlap
from distilbench.selection import TITLES


class PageRows(NamedTuple):
    """What the page's script reads: `about` the columns and what numbers mean, `rows` as JSON lines, in the order of lines.

    `groups` are the groups of columns that unfold. `sets` are the columns of the sets that a reader can choose, by the title
    of their task; at first the keys of `chosen` are, by which students are selected.
    """

    about: Markup
    rows: Markup
    groups: tuple[str, ...]
    sets: dict[str, list[Column]]
    chosen: frozenset[str]


def page_rows(
    board: Leaderboard, compared: Comparison, costs: ServingCosts, lines: Sequence[EncoderLine], taken: Sequence[Row]
) -> PageRows:
    """Describe the leaderboard to its page's script; `taken` are the rows that the page recommends."""
    columns = board_columns(board, compared, costs)
    shown, sets, chosen = page_columns(columns), _sets(board), _chosen(board)
    records = [seed.record for row in board.rows for seed in row.seeds]
    devs = dev_columns(records, {column.keys[0][0]: column.keys[0][3] for column in sets})
    about = {
        "title": board.selection.title,
        "score": board.columns[0].help,
        "columns": [_described(column) for column in shown],
        "chosen": chosen,
        "sets": {column.key: {"task": column.keys[0][0], "name": _named(column)} for column in sets},
        "t": {n: t_quantile(n) for n in range(2, 1 + max((len(row.seeds) for row in board.rows), default=1))},
        "keeps": KEPT_PERCENT,
        "few": FEW_BYTES,
        "faster": FASTER,
        "taken": [row.anchor for row in taken],
        "searched": costs.searched,
        "documents": costs.setting[2] if costs.setting else None,
        "oneSeed": board.one_seed,
        "quantised": board.quantised,
        "demonstration": all(row.record.demonstration for row in board.rows),
    }
    tasks: dict[str, list[Column]] = {}
    for column in sets:
        tasks.setdefault(TASKS[column.keys[0][0]][0].removeprefix("Test "), []).append(column)
    unfolding = dict.fromkeys(c.group for c in shown if not any(o.group == c.group and "page" in o.on for o in shown))
    return PageRows(
        Markup(script_json(about)),
        Markup("\n".join(script_json(row) for row in _rows(board, compared, costs, columns, devs, lines))),
        tuple(unfolding),
        tasks,
        frozenset(chosen),
    )


def _described(column: BoardColumn) -> dict[str, Any]:
    """The column as the script has it; `written` names the function that writes a number."""
    told = {"name": column.name, "title": column.title, "help": column.help, "group": column.group, "kind": column.kind}
    more = {"keys": column.keys, "shares": column.shares, "dev": column.dev}
    return told | more | {"written": column.written.__name__, "leads": "page" in column.on}


def _rows(
    board: Leaderboard,
    compared: Comparison,
    costs: ServingCosts,
    columns: Sequence[BoardColumn],
    devs: Sequence[Column],
    lines: Sequence[EncoderLine],
) -> Iterator[dict[str, Any]]:
    """Each row's plain values by the names that files call them, its scores of each seed, and how it is shown and chosen."""
    plain = [c for c in columns if not c.keys and c.name not in ("rank", "kept_percent", "standing", "hyperparameters")]
    corpora = board.corpora
    usable = {row.anchor for row in candidates(board.rows)}
    alike: dict[str, list[str]] = {}
    for one, other in map(tuple, compared.alike):
        alike.setdefault(one, []).append(other)
        alike.setdefault(other, []).append(one)
    for line in lines:
        for row in (line.row, *line.codes):
            teacher, r = teacher_row(row, board.rows), row.record
            described = {column.name: column.value(row) for column in plain} | {
                "told": told(row),
                "kind": line.kind if row is line.row else "code",
                "costs": costs_told(row, board, costs),
                "tie": _tie(compared, row),
                "usable": row.anchor in usable,
                "lost": below_overlap(row),
                "teacher_id": teacher.anchor if teacher else None,
                "corpus_place": corpora.index(row.compared_on),
                "export": export_command(r, row.anchor),
                "hyperparameters": json.loads(json.dumps(r.hyperparameters, default=str)),
                "scores": _scores(board, devs, row),
                "ends": _ends(row) if len(row.seeds) == 1 else {},
                "alike": sorted(alike.get(row.anchor, [])),
                "draws": compared.draws.get(row.anchor, {}),
                "losses": _losses(compared.examples.get(row.anchor)),
            }
            yield {name: value for name, value in described.items() if value not in (None, "", [], {})}


def _tie(compared: Comparison, row: Row) -> str:
    """The difference to the first row of its tie group, with its interval."""
    place = compared.ties.get(row.anchor)
    if place is None or place.leader == row.anchor:
        return ""
    return f"{signed(place.difference.value)} ({signed(place.difference.low)} to {signed(place.difference.high)})"


def _losses(examples: Examples | None) -> str:
    """What leads from the row to its losses."""
    if examples is None:
        return ""
    lost, won = (sum(getattr(of_set, what) for of_set in examples.searches.values()) for what in ("lost", "won"))
    return f"{lost:,} lost, {won:,} won" if examples.searches else "pairs that moved"


def _scores(board: Leaderboard, devs: Sequence[Column], row: Row) -> dict[str, list[float | None]]:
    """By the key of a column its value of each seed; nothing where no seed has one."""
    seeds = [scores_of(seed.record) for seed in row.seeds]
    found = {column.key: [seed.score(column.key) for seed in row.seeds] for column in board.columns}
    found |= {column.key: [value_of(column, scores).value for scores in seeds] for column in devs}
    return {key: values for key, values in found.items() if any(value is not None for value in values)}


def _ends(row: Row) -> dict[str, tuple[float | None, float | None]]:
    return {key: (cell.low, cell.high) for key, cell in row.cells.items() if cell.low is not None}


def _single(board: Leaderboard) -> list[Column]:
    return [column for column in board.columns if len(column.keys) == 1 and column.key not in (TEST, DEV)]


def _sets(board: Leaderboard) -> list[Column]:
    """The columns of test sets: of each task by the metric that students are selected by, else by its first or headline."""
    selected: dict[str, str] = {part.kind: part.metric for part in board.selection.parts}
    sets = []
    for task, (_, metrics) in TASKS.items():
        metric = selected.get(task, next((m for m in metrics if m in HEADLINES), metrics[0]))
        sets += [c for c in _single(board) if (c.keys[0][0], *c.keys[0][2:]) == (task, "test", metric)]
    return sets


def _named(column: Column) -> str:
    return f"{column.keys[0][1]} ({TITLES[column.keys[0][3]]})"


def _chosen(board: Leaderboard) -> dict[str, float]:
    """The columns that the test score is the weighted mean of; itself where its sets have none."""
    columns = {column.keys[0]: column.key for column in _single(board)}
    test = board.columns[0]
    if not all(key in columns for key in test.keys):
        return {TEST: 1.0}
    return {columns[key]: weight for key, weight in zip(test.keys, test.weights, strict=True)}
