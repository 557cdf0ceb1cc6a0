"""The columns of a leaderboard, defined once: its page, its files, the terminal and Python all show these.

A metric of a set is a column by itself (`columns.TASKS` names the metrics of each task); `columns.HEADLINES` are those that
have a column over all sets, on every view.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from distilbench.reporting import formats
from distilbench.reporting.board import Cell, Leaderboard, Row, mean_cell, percent
from distilbench.reporting.columns import DEV, HEADLINES, STS_AVERAGE, TASKS, Column, mean_of
from distilbench.reporting.comparison import NOT_COMPARED, Comparison
from distilbench.reporting.serving import (
    ServingCosts,
    below_overlap,
    code_overlap,
    encoder_cost,
    model_bytes,
    serving_costs,
)
from distilbench.selection import TITLES

if TYPE_CHECKING:
    import pandas as pd

SHOWN_SETS = 7
"""STS sets that have a column of their own in a report; of more, none has."""
LEADING_GROUPS = ("Quality", "Search", "Size and speed")
"""Groups of the page's columns that are always shown."""
NONE = "—"
DTYPES = {"text": "str", "integer": "Int64", "number": "float64", "flag": "boolean", "list": "object"}
Kind = Literal["text", "integer", "number", "flag", "list"]
REPORT, LEADS, EVERYWHERE = ("report",), ("page", "report"), ("page", "report", "terminal")
"""Views that show a column beside files and Python: leaderboard.md and .tex, the page unfolded or not, a run's last table."""


@dataclass(frozen=True)
class BoardColumn:
    """A column: `read` gives a row's value of the `kind`, or a `Cell` with its interval; "list" has a value for each seed.

    `name` is what files and Python call it, `title` what people read, and `written` how a number is shown there. On the page
    it stands in `group` ("": not there), and is folded away with it unless "page" is among the views that it is `on`.
    """

    name: str
    title: str
    read: Callable[[Row], Any]
    kind: Kind = "number"
    written: Callable[[float], str] = formats.fixed
    help: str = ""
    group: str = ""
    on: tuple[str, ...] = ()
    dev: bool = False
    shares: bool = False
    """Whether the page has the percentage of the teacher's below the number."""
    keys: tuple[str, ...] = ()
    """Of a score the columns of `Leaderboard.columns` that it is the mean of; of several, those that the row's corpus has."""

    def cell(self, row: Row) -> Cell:
        """The number with its interval; of a plain value the value alone."""
        value = self.read(row)
        return value if isinstance(value, Cell) else Cell(value, None, seeds=len(row.seeds))

    def value(self, row: Row) -> Any:
        """What files and Python have, unrounded; None where there is none."""
        return self.cell(row).value

    def text(self, row: Row, missing: str = NONE) -> str:
        """What people read."""
        value = self.value(row)
        if value is None or value == "":
            return missing
        return self.written(value) if self.kind in ("number", "integer") else str(value)


def board_columns(
    board: Leaderboard, compared: Comparison = NOT_COMPARED, costs: ServingCosts | None = None
) -> tuple[BoardColumn, ...]:
    """Return all columns of `board`, in the order of the page; `costs` are `serving_costs(board)`."""
    costs = costs or serving_costs(board)
    columns = [*_about(board), *_quality(board), *_cost(costs), *_standing(compared)]
    columns += [_score(board, column) for column in board.columns[1:]]
    columns += _origin()
    names: dict[str, int] = {}
    unique = []
    for column in columns:
        count = names[column.name] = names.get(column.name, 0) + 1
        unique.append(column if count == 1 else replace(column, name=f"{column.name}_{count}"))
    return tuple(unique)


def board_frame(board: Leaderboard, compared: Comparison = NOT_COMPARED) -> pd.DataFrame:
    """A row for each encoder and code of the leaderboard, in its order: the teacher, then by test score.

    Scores are x 100, means over `seeds` seeds. `test` is the test score, `test_interval` half the width of its 95 % interval
    over seeds, `test_low` and `test_high` the ends of the bootstrap interval of one seed; other scores likewise, where a row
    has them. `kept_percent` is what the test score is of the teacher's. `mrr10` is the mean over the retrieval sets; then
    comes every score of every set, such as `sts_STS12` and `mrr10_quora`. `id` names the row to `student` and to
    `distilbench export`. What differs between seeds is a list.
    """
    import pandas as pd

    series: dict[str, pd.Series[Any]] = {}
    for column in board_columns(board, compared):
        cells = [column.cell(row) for row in board.rows]
        series[column.name] = pd.Series([cell.value for cell in cells], dtype=DTYPES[column.kind])
        for name in ("interval", "low", "high"):
            ends = [getattr(cell, name) for cell in cells]
            if column.name == "test" or any(end is not None for end in ends):
                series[f"{column.name}_{name}"] = pd.Series(ends, dtype="float64")
    return pd.DataFrame(series)


def page_columns(columns: Iterable[BoardColumn]) -> list[BoardColumn]:
    """The columns that the page shows, those of the leading groups first."""
    order = {name: place for place, name in enumerate((*LEADING_GROUPS, "About"))}
    return sorted((c for c in columns if c.group), key=lambda column: order.get(column.group, len(order)))


def filled(columns: Iterable[BoardColumn], rows: Sequence[Row]) -> list[BoardColumn]:
    """The columns that some row has a value for."""
    return [column for column in columns if any(column.value(row) not in (None, "") for row in rows)]


_count = formats.count
_at: Callable[[str], Callable[[Row], Any]] = attrgetter


def _about(board: Leaderboard) -> list[BoardColumn]:
    coded, size = "About" if board.quantised else "", "Size and speed"
    dim, code = "Dimension of the vectors", "What the vectors are stored as"
    parameters, stored = "Parameters of the encoder", "Bytes per vector"
    again = "Bytes of a vector on disk, by which what the code finds is ranked again"
    ranked = size if any(row.record.disk_bytes for row in board.rows) else ""
    fitting = "Processor seconds, of all threads, that the code took to fit"
    fitted = "Cost" if any(row.record.fit_s for row in board.rows) else ""
    return [
        BoardColumn("id", "Id", _at("anchor"), "text"),
        BoardColumn("name", "Encoder", _at("name"), "text"),
        BoardColumn("role", "Role", _at("record.role"), "text", on=REPORT),
        BoardColumn("method", "Method", _at("record.method"), "text", group="About", on=REPORT),
        BoardColumn("dim", "Dim", _at("record.dim"), "integer", _count, dim, "About", REPORT),
        BoardColumn("code", "Code", _at("record.quantisation"), "text", str, code, coded, REPORT),
        BoardColumn("bytes", "Bytes", _at("record.bytes_per_vector"), "integer", _count, stored, size, EVERYWHERE),
        BoardColumn("disk_bytes", "On disk", _on_disk, "integer", _count, again, ranked, REPORT),
        BoardColumn("fit_s", "Fit,\u00a0s", _at("record.fit_s"), "number", formats.short, fitting, fitted),
        BoardColumn("parameters", "Params", _at("record.parameters"), "integer", _count, parameters, "About", REPORT),
        BoardColumn("seeds", "Seeds", lambda row: len(row.seeds), "integer", _count, on=REPORT),
    ]


def _on_disk(row: Row) -> int | None:
    return row.record.disk_bytes or None


def _quality(board: Leaderboard) -> Iterator[BoardColumn]:
    test = _score(board, board.columns[0])
    told = f"{test.help}, with its 95 % interval"
    ranks = _ranks(board)
    place = "Of all rows on the same sets, by the test score"
    yield BoardColumn("rank", "Rank", lambda row: ranks.get(row.anchor), "integer", _count, place, "Quality", ("page",))
    yield replace(test, name="test", help=told, group="Quality", on=EVERYWHERE, shares=False)
    shares = "Quality" if any(row.test.retention is not None for row in board.rows) else ""
    share = "Of the teacher's own test score"
    yield BoardColumn("kept_percent", "Kept,\u00a0%", _kept, "number", formats.tenth, share, shares, EVERYWHERE)
    for metric in TASKS["retrieval"][1]:
        column = searched_column(board, metric)
        if column.title == test.title:  # what selects leads already
            yield column
            continue
        leads = bool(column.keys) and metric in HEADLINES
        yield replace(column, group="Quality" if leads else "", on=EVERYWHERE if leads else REPORT)


def searched_column(board: Leaderboard, metric: str) -> BoardColumn:
    """The mean of a retrieval metric over the sets, without a place on the page."""
    sets = [c for c in board.columns if c.key.startswith(f"{metric.replace('@', '')}:")]
    names = ", ".join(c.group.split(",")[1].strip() for c in sets)
    told = f"What the row's own index finds in {names}, x 100"
    keys = tuple(c.key for c in sets)
    read = _mean_over(board, keys)
    return BoardColumn(metric.replace("@", ""), TITLES[metric], read, help=told, shares=True, keys=keys)


def _ranks(board: Leaderboard) -> dict[str, int]:
    """By a row's anchor its place among the rows with a test score on its corpus; equal scores share one."""
    scores: dict[str, list[float]] = {}
    tested = [(row, row.test.value) for row in board.rows if row.test.value is not None]
    for row, value in tested:
        scores.setdefault(row.compared_on, []).append(value)
    return {row.anchor: 1 + sum(other > value for other in scores[row.compared_on]) for row, value in tested}


def _cost(costs: ServingCosts) -> list[BoardColumn]:
    def of(name: str) -> Callable[[Row], Any]:
        return lambda row: getattr(costs.rows[row.anchor], name)

    def measured(name: str) -> Callable[[Row], Any]:
        return lambda row: getattr(encoder_cost(row), name, None)

    search, size, more = "Search" if costs.searched else "", "Size and speed", "Cost" if costs.speed else ""
    queries, index = f"Milliseconds for 1,000 queries, {costs.searched}", f"Bytes of the index of {costs.searched}"
    stored = "Bytes that loading the model needs; where that was not measured, 4 for each parameter"
    times = "Sentences per second, times the teacher's" if costs.speed else ""
    alone, ms = "One sentence at a time, from text to vector, on one thread", "Latency of one sentence, milliseconds"
    timed, short, binary = size if costs.speed else "", formats.short, formats.binary

    def number(name: str, title: str, read: Callable[[Row], Any], told: str, group: str) -> BoardColumn:
        return BoardColumn(name, title, read, "number", short, told, group)

    per_query = number("ms_per_1000_queries", "ms / 1,000", of("ms_per_1000_queries"), queries, search)
    return [
        replace(per_query, on=EVERYWHERE),
        replace(number("index_bytes", "Index", of("index_bytes"), index, search), on=LEADS, written=binary),
        replace(number("times_teacher", "× teacher", of("times_teacher"), times, timed), on=LEADS),
        replace(number("model_bytes", "Model", model_bytes, stored, size), on=LEADS, written=binary),
        replace(number("sentences_per_second", "Sentences/s", of("sentences_per_s"), costs.speed, more), on=REPORT),
        number("sentences_per_second_1", "Sentences/s, 1", measured("sentences_per_second_1"), alone, more),
        number(
            "speed_spread", "Known to", measured("spread"), "By how much the measured speeds differ, as a share", more
        ),
        number("tokenising", "Tokenizer", measured("tokenising"), "Its share of the time in batches", more),
        number("p50_ms", "p50, ms", measured("p50_ms"), ms, more),
        number("p95_ms", "p95, ms", measured("p95_ms"), ms, more),
    ]


def _standing(compared: Comparison) -> list[BoardColumn]:
    def tie(name: str) -> Callable[[Row], Any]:
        value = attrgetter(name)
        return lambda row: (place := compared.ties.get(row.anchor)) and value(place)

    def kept(row: Row) -> float | None:
        own = code_overlap(row)
        return None if own is None else own.overlap10_with_flat

    ties = (
        "Rows of as many bytes per vector with the same letter cannot be told from the group's first row (a: the highest "
        "test average): the 95 % interval of their difference holds 0. Below the letter: that difference and its interval"
    )
    marks, about = "Pareto front, best of its size, chosen and confirmed", "About" if compared.ties else ""
    return [
        BoardColumn("standing", "Standing", _marks, "text", str, marks, "About"),
        BoardColumn("front", "Front", _at("pareto"), "flag"),
        BoardColumn("best_in_bytes", "Best in its bytes", _at("best_in_bytes"), "flag"),
        BoardColumn("chosen_on_dev", "Chosen on dev", _at("chosen"), "flag"),
        BoardColumn("tie_group", "Tie group", tie("group"), "text", str, ties, about, REPORT),
        BoardColumn("tie_low", "Low", tie("difference.low")),
        BoardColumn("tie_high", "High", tie("difference.high")),
        BoardColumn("tie_difference", "Difference", tie("difference.value")),
        BoardColumn("kept_neighbours_percent", "Neighbours kept, %", kept),
        BoardColumn("neighbours_lost", "Neighbours lost", below_overlap, "text"),
    ]


def _origin() -> Iterator[BoardColumn]:
    texts = ("label", "configuration", "teacher", "start", "documents", "corpus", "corpus_fingerprint")
    kinds: dict[str, Kind] = dict.fromkeys(texts, "text")
    kinds |= {"demonstration": "flag", "run": "text", "trial": "integer"}
    for name, kind in kinds.items():
        yield BoardColumn(name, name.capitalize(), _at(f"record.{name}"), kind)
    for path in ("seed", "record_id", "model", "provenance.commit", "provenance.created_at"):
        name = path.removeprefix("provenance.")
        yield BoardColumn(name, name.capitalize(), _of_seeds(path), "list")
    yield BoardColumn("hyperparameters", "Hyper-parameters", _hyperparameters, "text")


def _of_seeds(path: str) -> Callable[[Row], Any]:
    value = attrgetter(f"record.{path}")
    return lambda row: [value(seed) for seed in row.seeds]


def _score(board: Leaderboard, column: Column) -> BoardColumn:
    keys = [c.key for c in board.columns]
    name = re.sub(r"\W+", "_", column.key.replace("@", ""))
    classified = [key for key in keys if key.startswith("classification")][:1]
    few = sum(key.startswith("sts:") for key in keys) <= SHOWN_SETS
    reported = column.key in (DEV, *classified) or (few and column.key.startswith("sts:") and STS_AVERAGE not in keys)
    on = ("report", "terminal") if column.key == DEV else REPORT if reported else ()
    score = BoardColumn(name, column.title, lambda row: row.cells[column.key], help=column.help, group=column.group)
    if column.key == STS_AVERAGE:
        score, on = replace(score, title="STS", group="Quality"), LEADS
    return replace(score, on=on, dev=column.dev, shares=True, keys=(column.key,))


def _mean_over(board: Leaderboard, keys: Sequence[str]) -> Callable[[Row], Cell]:
    """The mean over the sets that the row's corpus has; missing as soon as one of them is."""
    of_corpus: dict[str, set[str]] = {}
    for row in board.rows:
        there = {key for key in keys if row.cells[key].value is not None}
        of_corpus.setdefault(row.compared_on, set()).update(there)

    def read(row: Row) -> Cell:
        own = [key for key in keys if key in of_corpus[row.compared_on]]
        seeds = [mean_of([(1 / len(own), seed.values[key]) for key in own]) for seed in row.seeds]
        mean = mean_cell(seed.value for seed in seeds)
        shares = [(row.cells[key].value, row.cells[key].retention) for key in own]
        teacher = [100 * value / share for value, share in shares if value is not None and share]
        whole = math.fsum(teacher) / len(own) if own and len(teacher) == len(own) else None
        ends = (seeds[0].low, seeds[0].high) if len(seeds) == 1 else (None, None)
        kept = percent(mean.value, whole), percent(mean.interval, whole)
        return mean._replace(retention=kept[0], kept_interval=kept[1], low=ends[0], high=ends[1])

    return read


def _kept(row: Row) -> Cell:
    """The share of the teacher's test score, and half of its interval over seeds."""
    return Cell(row.test.retention, None, row.test.kept_interval, row.test.seeds)


def _marks(row: Row) -> str:
    marks = {
        "Pareto": row.pareto,
        f"best in {row.record.bytes_per_vector:,} bytes": row.best_in_bytes,
        "chosen on dev": row.chosen,
        f"confirmed with {len(row.seeds)} seeds": row.confirmed,
    }
    return ", ".join(mark for mark, applies in marks.items() if applies)


def _hyperparameters(row: Row) -> str:
    return json.dumps(row.record.hyperparameters, ensure_ascii=False, default=str)
