"""A paper's table filled in: measured rows of a leaderboard beside the published ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from distilbench.progress.tally import finite
from distilbench.records import ON_DEMONSTRATION, EncoderCost, IndexCost
from distilbench.reporting import table
from distilbench.reporting.budget import latency_of
from distilbench.reporting.exports.grid import MISSING, Grid, Head, Line, Section
from distilbench.reporting.exports.main_columns import shown_cell, shown_number
from distilbench.reporting.exports.paper_tables import UNCOMPRESSED, Block, PaperColumn, PaperTable
from distilbench.reporting.exports.rows import representatives
from distilbench.reporting.published import WHOLE, Published, ScoreKey
from distilbench.reporting.table import SEVEN, Cell, mean_cell

QUORA = ("quora", "quora-duplicates")
BATCH = 32
"""The batch size of `EncoderCost.sentences_per_second_32`."""
_PHASES = {"psi": " (ψ phase)", "f": " (f phase)", "total": ""}


class _Entry(NamedTuple):
    """A line before it is shown, and what blocks ask about it. `student` and `teacher` are last parts of names."""

    name: str
    method: str
    student: str
    teacher: str
    params: Mapping[str, Any]
    values: Mapping[ScoreKey, Cell]
    source: str
    published: bool
    joins: bool = False
    """Whether entries of one name and source are one line where they have no score in common."""


class Measured(NamedTuple):
    """The rows to show, and by anchor what all tables read of them."""

    rows: tuple[table.Row, ...]
    runs: int
    values: Mapping[str, Mapping[ScoreKey, Cell]]
    indexes: Mapping[str, Sequence[table.IndexRow]]
    clusters: Mapping[str, Sequence[table.ClusterRow]]


def measured_rows(board: table.Leaderboard) -> Measured:
    """What the tables are filled with."""
    rows = representatives(board)
    indexes: dict[str, list[table.IndexRow]] = {}
    for index in table.index_rows(board):
        indexes.setdefault(index.row.anchor, []).append(index)
    clusters: dict[str, list[table.ClusterRow]] = {}
    for cluster in table.cluster_rows(board):
        clusters.setdefault(cluster.row.anchor, []).append(cluster)
    values = {row.anchor: _values(row, board, indexes.get(row.anchor, ())) for row in rows}
    return Measured(rows, len({row.record.run for row in rows}), values, indexes, clusters)


def paper_grid(paper_table: PaperTable, measured: Measured, published: Sequence[Published]) -> Grid | None:
    """The table with the measured rows that fit; None where none does.

    In each block the published rows come first, in the paper's order, then the measured ones in the leaderboard's.
    """
    of_table = [r for r in published if r.paper.startswith(f"{paper_table.paper} ") and paper_table.number in r.tables]
    entries = [e for row in of_table for e in _published_entries(paper_table, row)]
    entries += [e for row in measured.rows for e in _measured_entries(paper_table, row, measured)]
    scored = {key for column in paper_table.columns for key in column.keys if key.task != "encoder"}
    entries = _merged([e for e in entries if not scored.isdisjoint(e.values)], scored)
    blocks: dict[Block, list[_Entry]] = {block: [] for block in paper_table.blocks}
    for entry in entries:
        block = next((block for block in blocks if _fits(entry, block)), None)
        if block is not None:
            blocks[block].append(entry)
    if all(entry.published for entries in blocks.values() for entry in entries):
        return None
    head = (Head("Model", number=False), *(Head(c.title) for c in paper_table.columns), Head("From", number=False))
    sections = [
        Section(block.title, tuple(_line(paper_table, entry) for entry in entries))
        for block, entries in blocks.items()
        if entries
    ]
    demonstration = any(row.record.demonstration for row in measured.rows)
    notes = (*paper_table.notes, *([f"Measured rows are scored {ON_DEMONSTRATION}."] if demonstration else []))
    return Grid(paper_table.title, head, tuple(sections), notes)


def _values(row: table.Row, board: table.Leaderboard, indexes: Iterable[table.IndexRow]) -> dict[ScoreKey, Cell]:
    """Everything that a table may ask of a row, means over its seeds."""
    cells: dict[ScoreKey, Cell] = {}
    by_key: dict[tuple[str, ...], list[float | None]] = {}
    for seed in row.seeds:
        for s in seed.record.scores:
            if s.task != "sts" and s.variant == "all":
                by_key.setdefault((s.task, s.set, s.metric, s.split), []).append(finite(s.value))
    for (task, name, metric, split), values in sorted(by_key.items()):  # test after dev
        key = _score_key(task, name, metric, split)
        if key is not None:
            cells[key] = mean_cell(values)
    for variant in table.VARIANTS:
        for column, cell in zip(board.columns, row.values[variant], strict=True):
            if column.key == table.AVERAGE and set(board.sts_sets) == set(SEVEN):
                cells[ScoreKey("sts", WHOLE, "spearman", variant)] = cell
            elif column.key.startswith("sts:"):
                cells[ScoreKey("sts", column.key.removeprefix("sts:"), "spearman", variant)] = cell
    r = row.record
    cells[ScoreKey("encoder", "", "dim")] = Cell(r.dim, None)
    if r.parameters:
        cells[ScoreKey("encoder", "", "parameters")] = Cell(r.parameters, None)
    cells[ScoreKey("encoder", "", "sentences/s")] = _cost(row, "sentences_per_second_32")
    for index in indexes:
        if index.cost.kind == "flat" and _plain(index.cost.set) == "msmarco":
            size = index.measured["bytes"].value
            cells[ScoreKey("index", "msmarco", "GB", "flat")] = Cell(None if size is None else size / 1e9, None)
    return {key: cell for key, cell in cells.items() if cell.value is not None}


def _score_key(task: str, name: str, metric: str, split: str) -> ScoreKey | None:
    """What a score is called in a table; None of a dev score, except of MNLI's matched set and MS MARCO, as in the papers."""
    if task == "pairs" and name == "MNLI":
        return ScoreKey(task, name, metric, "matched" if split == "dev" else "mismatched")
    if task == "retrieval" and _plain(name) == "msmarco":
        return ScoreKey(task, "msmarco", metric)
    return ScoreKey(task, name, metric) if split == "test" else None


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def _published_entries(paper_table: PaperTable, row: Published) -> list[_Entry]:
    values = {key: Cell(value, None) for key, value in row.scores.items()}
    last = row.student.rsplit("/", 1)[-1]
    entry = _Entry(
        row.name,
        row.method,
        student=last,
        teacher=row.teacher.rsplit("/", 1)[-1] or last,
        params=row.params,
        values=values,
        source=f"published: {paper_table.paper}, table {paper_table.number}",
        published=True,
        joins=True,
    )
    if paper_table.view == "clusters":
        return _split(entry, {"implicit": "", "k-means": " + kmeans"}, ScoreKey("clusters", "quora", "accuracy"))
    if paper_table.view in ("all pairs", "catalogue"):
        return _split(entry, _PHASES, ScoreKey("efficiency", paper_table.view, "s"))
    return [entry]


def _split(entry: _Entry, suffixes: Mapping[str, str], needed: ScoreKey) -> list[_Entry]:
    """An entry for each variant that has the score `needed`; there its variant, and one that is of all, is "all"."""
    parts = []
    for variant, suffix in suffixes.items():
        variant_values = {
            k._replace(variant="all"): v for k, v in entry.values.items() if k.variant in (variant, "all")
        }
        if needed._replace(variant=variant) in entry.values:
            parts.append(entry._replace(name=entry.name + suffix, values=variant_values))
    return parts


def _measured_entries(paper_table: PaperTable, row: table.Row, measured: Measured) -> list[_Entry]:
    r = row.record
    uncompressed = r.role in ("teacher", "encoder")
    notes = [f"run {r.run}"] if measured.runs > 1 else []
    notes += [f"teacher {r.teacher}"] if r.teacher and not uncompressed else []
    notes += [f"start {r.start}"] if r.start and not uncompressed else []
    notes += [f"{len(row.seeds)} seeds"] if len(row.seeds) > 1 else []
    notes += [f"{name} {r.hyperparameters[name]}" for name in paper_table.named_parameters if name in r.hyperparameters]
    entry = _Entry(
        row.name,
        UNCOMPRESSED if uncompressed else r.method,
        student=r.start.rsplit("/", 1)[-1],
        teacher=(r.teacher or r.label).rsplit("/", 1)[-1],
        params=r.hyperparameters,
        values=measured.values[row.anchor],
        source=", ".join(["measured", *notes]),
        published=False,
    )
    if paper_table.view == "index":
        return [one for index in measured.indexes.get(row.anchor, ()) if (one := _of_index(entry, index)) is not None]
    if paper_table.view == "clusters":
        return [one for c in measured.clusters.get(row.anchor, ()) if (one := _of_clusters(entry, c)) is not None]
    if paper_table.view == "all pairs":
        return _of_all_pairs(entry)
    if paper_table.view == "catalogue":
        return [one for index in measured.indexes.get(row.anchor, ()) for one in _of_catalogue(entry, row, index)]
    if r.method == "dse" and "task" in r.hyperparameters:
        frozen = "Frozen, " if r.hyperparameters.get("frozen") else ""
        alpha = r.hyperparameters.get("alpha", 0.5)
        return [entry._replace(name=f"DSE ({frozen}alpha = {alpha:g}), d={r.dim}", joins=True)]
    return [entry]


def _of_index(entry: _Entry, index: table.IndexRow) -> _Entry | None:
    cost, measured = index.cost, index.measured
    if cost.kind != "ivf" or cost.set != "quora-duplicates" or cost.device != "cpu":
        return None
    size = measured["bytes"].value
    values = {"mrr@10": measured["mrr10"], "ms per 1,000 queries": measured["ms_per_1000_queries"]}
    values |= {"MB": Cell(None if size is None else size / 1e6, None)}
    threads = f"{cost.threads} {'thread' if cost.threads == 1 else 'threads'}"
    setting = f"nlist {cost.nlist}, nprobe {cost.nprobe}, {_searched(cost)}, {threads}"
    return entry._replace(
        values={
            ScoreKey("index", cost.set, metric, "ivf"): cell
            for metric, cell in values.items()
            if cell.value is not None
        },
        source=f"{entry.source}, {setting}",
    )


def _of_clusters(entry: _Entry, cluster_row: table.ClusterRow) -> _Entry | None:
    cost = cluster_row.cost
    if cost.set not in QUORA:
        return None
    fit, assign = cluster_row.measured["fit_s"].value, cluster_row.measured["assign_s"].value
    clustering = None if fit is None or assign is None else fit + assign
    values = {"accuracy": cluster_row.measured["accuracy"], "clustering s": Cell(clustering, None)}
    split = "" if cost.split == "test" else f" ({cost.split})"
    return entry._replace(
        name=entry.name + (" + kmeans" if cost.kind == "k-means" else ""),
        values={ScoreKey("clusters", "quora", name): cell for name, cell in values.items() if cell.value is not None},
        source=f"{entry.source}, {cost.clusters} clusters, {cost.set}{split}, {cost.documents} documents",
    )


def _of_all_pairs(entry: _Entry) -> list[_Entry]:
    speed = entry.values.get(ScoreKey("encoder", "", "sentences/s"))
    if speed is None or not speed.value:
        return []
    values = {"s": 1000 / speed.value, "batch": float(BATCH), "s per batch": BATCH / speed.value}
    cells = {ScoreKey("efficiency", "all pairs", metric): Cell(value, None) for metric, value in values.items()}
    return [entry._replace(name=entry.name + _PHASES["psi"], values=cells)]


def _of_catalogue(entry: _Entry, row: table.Row, index: table.IndexRow) -> list[_Entry]:
    """Embedding the query, the exact search, and both, of one set."""
    search_ms, one_ms = index.measured["ms_per_1000_queries"].value, _cost(row, "p50_ms").value or latency_of(row)
    if index.cost.kind != "flat" or search_ms is None or one_ms is None:
        return []
    seconds = {"psi": one_ms / 1000, "f": search_ms / 1e6}
    seconds["total"] = sum(seconds.values())
    description = f"{entry.source}, {_searched(index.cost)}"
    return [
        entry._replace(
            name=entry.name + _PHASES[phase],
            values={ScoreKey("efficiency", "catalogue", "s"): Cell(value, None)},
            source=description,
        )
        for phase, value in seconds.items()
    ]


def _searched(cost: IndexCost) -> str:
    return f"{cost.set}{'' if cost.split == 'test' else f' ({cost.split})'}, {cost.documents} documents"


def _cost(row: table.Row, field: str) -> Cell:
    costs: list[EncoderCost | None] = [seed.record.cost for seed in row.seeds]
    return mean_cell([finite(getattr(cost, field)) for cost in costs if cost is not None])


def _merged(entries: Iterable[_Entry], scored: Set[ScoreKey]) -> list[_Entry]:
    """Entries that join are one line: a row of DSE's table 1 or IBKD's table 4 is a model for each task.

    What they have beside the scores of the table is the first's.
    """
    merged: list[_Entry] = []
    places: dict[tuple[object, ...], list[int]] = {}
    for entry in entries:
        keys = scored & entry.values.keys()
        same = places.setdefault((entry.name, entry.source, entry.method, entry.published), [])
        free = next((i for i in same if entry.joins and keys.isdisjoint(merged[i].values)), None)
        if free is None:
            same.append(len(merged))
            merged.append(entry)
        else:
            merged[free] = merged[free]._replace(values={**entry.values, **merged[free].values})
    return merged


def _fits(entry: _Entry, block: Block) -> bool:
    def set_to(name: str, expected: object) -> bool:
        value = entry.params.get(name)
        return bool(value) is expected if isinstance(expected, bool) else value == expected

    return (
        entry.method in block.methods
        and block.student in ("", entry.student)
        and block.teacher in ("", entry.teacher)
        and all(set_to(name, expected) for name, expected in block.settings)
    )


def _line(paper_table: PaperTable, entry: _Entry) -> Line:
    cells = (_shown(column, entry.values) for column in paper_table.columns)
    return Line((entry.name, *cells, entry.source), entry.published)


def _shown(column: PaperColumn, values: Mapping[ScoreKey, Cell]) -> str:
    cells = [values.get(key, table.MISSING) for key in column.keys]
    if all(cell.value is None for cell in cells):
        return MISSING
    if len(cells) > 1:
        return "/".join(shown_number(cell.value, column.digits, column.scale) for cell in cells)
    value = cells[0].value or 0.0
    if column.shown == "millions":
        return f"{value / 1e6:.{0 if value >= 1e7 else 1}f}M"
    if column.shown == "time":
        return _time(value)
    return shown_cell(cells[0], column.digits, column.scale)


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.3g} s" if seconds >= 0.01 else f"{1000 * seconds:.3g} ms"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
