"""The flat columns of a leaderboard, defined once, and the files that have them: CSV, JSON and Parquet."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from distilbench.records import ScoreRecord
from distilbench.reporting import table
from distilbench.reporting.comparison import NOT_COMPARED, Comparison
from distilbench.reporting.exports.grid import csv_of
from distilbench.reporting.neighbours import kept_neighbours, lost_neighbours
from distilbench.reporting.serving import serving_costs

Kind = Literal["text", "integer", "number", "flag"]
SEEDS = "seeds"
"""Where the JSON has what differs between the seeds of a row."""


class FlatColumn(NamedTuple):
    """A column: `value` of a row is of `kind` or None; with `per_seed` it is a list of such values, one per seed.

    `path` is where the JSON has it: keys from the row's object inwards.
    """

    name: str
    kind: Kind
    path: tuple[str, ...]
    value: Callable[[table.Row], Any]
    per_seed: bool = False


def flat_columns(board: table.Leaderboard, compared: Comparison = NOT_COMPARED) -> tuple[FlatColumn, ...]:
    """All columns: what the row is, its scores unrounded, its standing, and where it comes from.

    Scores are means over `NAME:seeds` seeds, `NAME:interval95` is half the width of their 95 % interval; of one seed,
    `NAME:low95` and `NAME:high95` end the bootstrap interval over the set's items. `tie_difference` is the difference
    in test score to the first row of the tie group, `tie_low` and `tie_high` end its interval. `neighbours_lost` says
    why a coded row is not recommended, and is empty where nothing is known against it.
    """

    def of(name: str, kind: Kind = "text", path: tuple[str, ...] = ()) -> FlatColumn:
        return FlatColumn(name, kind, path or (name,), lambda row: getattr(row.record, name))

    def each(name: str, kind: Kind, value: Callable[[ScoreRecord], Any]) -> FlatColumn:
        return FlatColumn(
            name, kind, (SEEDS, name), lambda row: [value(seed.record) for seed in row.seeds], per_seed=True
        )

    def standing(name: str, kind: Kind, path: str, value: Callable[[table.Row], Any]) -> FlatColumn:
        return FlatColumn(name, kind, (path, name.removeprefix(f"{path}_")), value)

    def tie(name: str, kind: Kind) -> FlatColumn:
        def value(row: table.Row) -> Any:
            place = compared.ties.get(row.anchor)
            return place and getattr(place.difference, "value" if name == "difference" else name)

        return standing(f"tie_{name}", kind, "tie", value)

    columns = [of("label"), of("configuration"), of("role"), of("method"), of("dim", "integer"), of("quantisation")]
    columns += [of("bytes_per_vector", "integer"), of("parameters", "integer")]
    columns += [each("seed", "integer", lambda r: r.seed)]
    columns += [FlatColumn("seeds", "integer", ("seed_count",), lambda row: len(row.seeds))]
    columns += _score_columns(board)
    columns += _cost_columns(board)
    columns += [
        FlatColumn("pareto", "flag", ("pareto",), lambda row: row.pareto["all"]),
        FlatColumn("best_in_bytes", "flag", ("best_in_bytes",), lambda row: row.best_in_bytes["all"]),
        FlatColumn("chosen_on_dev", "flag", ("chosen_on_dev",), lambda row: row.chosen),
        FlatColumn("kept_neighbours_percent", "number", ("neighbours", "kept_percent"), _neighbour_overlap),
        FlatColumn("neighbours_lost", "text", ("neighbours", "lost"), lost_neighbours),
        standing("tie_group", "text", "tie", lambda row: (t := compared.ties.get(row.anchor)) and t.group),
        *(tie("difference", "number"), tie("low", "number"), tie("high", "number")),
        *(of("teacher"), of("start"), of("corpus", path=("corpus", "name"))),
        of("corpus_fingerprint", path=("corpus", "fingerprint")),
        of("demonstration", "flag", ("corpus", "demonstration")),
        of("run"),
        each("trial", "integer", lambda r: r.trial),
        each("record_id", "text", lambda r: r.record_id),
        each("commit", "text", lambda r: r.provenance.commit),
        each("created_at", "text", lambda r: r.provenance.created_at),
        each("model", "text", lambda r: r.model),
    ]
    return tuple(columns)


def leaderboard_csv(board: table.Leaderboard, compared: Comparison = NOT_COMPARED) -> str:
    """The flat columns as CSV; an empty cell where a value is missing.

    What differs between the seeds of a row (seed, trial, record_id, ...) is listed in their order, joined by ";".
    """
    columns = flat_columns(board, compared)
    rows: list[Sequence[object]] = [[column.name for column in columns]]
    for row in board.rows:
        rows.append([_joined(c.value(row)) if c.per_seed else c.value(row) for c in columns])
    return csv_of(rows)


def leaderboard_json(board: table.Leaderboard, compared: Comparison = NOT_COMPARED) -> str:
    """A list of one object per row, each on a line of its own.

    It has the flat columns by their paths, the hyper-parameters, and an object for each seed. A number that is not
    finite, which only a hyper-parameter can be, is a text.
    """
    columns = flat_columns(board, compared)
    rows = []
    for row in board.rows:
        fields: dict[str, Any] = {"name": row.name}
        seeds: list[dict[str, Any]] = [{} for _ in row.seeds]
        for column in columns:
            value = column.value(row)
            if column.per_seed:
                for seed, seed_value in zip(seeds, value, strict=True):
                    seed[column.path[-1]] = seed_value
                continue
            place = fields
            for key in column.path[:-1]:
                place = place.setdefault(key, {})
            place[column.path[-1]] = value
        rows.append({**fields, "hyperparameters": _finite(row.record.hyperparameters), SEEDS: seeds})
    lines = (json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":")) for row in rows)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def write_parquet(board: table.Leaderboard, path: Path, compared: Comparison = NOT_COMPARED) -> None:
    """The flat columns with their types, under the names of the CSV; a column of several seeds holds lists."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64(), "flag": pa.bool_()}
    names, arrays = [], []
    for column in flat_columns(board, compared):
        kind = types[column.kind]
        names.append(column.name)
        values = [column.value(row) for row in board.rows]
        arrays.append(pa.array(values, type=pa.list_(kind) if column.per_seed else kind))
    whole = pa.Table.from_arrays(arrays, names=names)
    # Many columns of few rows: what describes a column takes more than the column.
    pq.write_table(whole, path, compression="zstd", use_dictionary=False, write_statistics=False)


def _score_columns(board: table.Leaderboard) -> list[FlatColumn]:
    whats: dict[str, tuple[str, Kind]] = {
        "": ("value", "number"),
        "retention_percent": ("retention", "number"),
        "interval95": ("interval", "number"),
        "seeds": ("seeds", "integer"),
        "low95": ("low", "number"),
        "high95": ("high", "number"),
    }
    columns = []
    for place, column in enumerate(board.columns):
        for variant in table.VARIANTS if column.by_variant and board.has_wmean else table.VARIANTS[:1]:
            name = column.key if not column.by_variant else f"{column.key}:{variant}"
            for what, (field, kind) in whats.items():
                path = ("scores", column.key, variant, what or "value")
                value = _cell_field(place, variant, field)
                columns.append(FlatColumn(f"{name}:{what}" if what else name, kind, path, value))
    return columns


def _cost_columns(board: table.Leaderboard) -> list[FlatColumn]:
    """Size and time of the row's own exact index (`serving.serving_costs` says of which set), and its speed."""
    rows = serving_costs(board).rows

    def of(name: str) -> FlatColumn:
        return FlatColumn(name, "number", ("cost", name), lambda row: getattr(rows[row.anchor], name).value)

    return [of("index_bytes"), of("ms_per_1000_queries"), of("sentences_per_s")]


def _neighbour_overlap(row: table.Row) -> float | None:
    neighbours = kept_neighbours(row)
    return None if neighbours is None else neighbours.overlap


def _cell_field(place: int, variant: table.Variant, field: str) -> Callable[[table.Row], Any]:
    return lambda row: getattr(row.values[variant][place], field)


def _joined(values: Sequence[object]) -> str:
    """One value per seed; nothing at all where no seed has one."""
    texts = ["" if value is None else str(value) for value in values]
    return ";".join(texts) if any(texts) else ""


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _finite(part) for key, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value
