"""Records -> the leaderboard, its index costs and its trials, as plain tuples that a test or a page can read.

Every score is x 100. A missing value is None, and an average is missing as soon as one of its sets is: two rows never
show averages over different sets.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from distilbench.records import IndexCost, Score, ScoreRecord, TrialRecord, selection_groups

Variant = Literal["all", "wmean"]
VARIANTS: tuple[Variant, ...] = ("all", "wmean")
"""How an STS set with several subsets becomes one value: concatenated, or the mean weighted by subset size."""

AVERAGE, DEV = "sts_average", "dev"


class Column(NamedTuple):
    """One score column. `by_variant`: whether its values differ between "all" and "wmean"."""

    key: str
    group: str
    title: str
    help: str
    by_variant: bool


class Cell(NamedTuple):
    """A score x 100 and the percentage of the teacher's own score that it is; None where there is none."""

    value: float | None
    retention: float | None


MISSING = Cell(None, None)


class Row(NamedTuple):
    """One encoder. `values[variant]` is parallel to the leaderboard's columns.

    `pareto`: no other row of the same corpus has a test average at least as high in as few bytes per vector, one of the
    two strictly better. `best_in_dim`: the highest test average of its dimension, the teacher apart, where there are
    at least two rows to compare.
    """

    anchor: str
    record: ScoreRecord
    values: Mapping[Variant, tuple[Cell, ...]]
    pareto: Mapping[Variant, bool]
    best_in_dim: Mapping[Variant, bool]


class Leaderboard(NamedTuple):
    """Teachers first, then by test average, highest first; rows without an average last."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    sts_sets: tuple[str, ...]
    dev_sets: tuple[str, ...]
    retrieval_sets: tuple[str, ...]
    has_wmean: bool
    one_seed: bool
    """True while no two rows differ in their seed alone: then there is nothing to compute an interval from."""

    def cell(self, row: Row, key: str, variant: Variant = "all") -> Cell:
        """The row's cell in the column `key`; an empty cell when there is no such column."""
        for column, cell in zip(self.columns, row.values[variant], strict=True):
            if column.key == key:
                return cell
        return MISSING


class Highlight(NamedTuple):
    """One of the few figures at the head of the page."""

    title: str
    row: Row
    cell: Cell


class IndexRow(NamedTuple):
    """One FAISS index of one row of the leaderboard."""

    row: Row
    cost: IndexCost


class TrialTable(NamedTuple):
    """The trials worth listing. `total` and `states` count all of them, listed or not."""

    shown: tuple[TrialRecord, ...]
    total: int
    states: Mapping[str, int]
    runs: tuple[str, ...]


def leaderboard(records: Iterable[TrialRecord | ScoreRecord]) -> Leaderboard:
    """The leaderboard of the score records in `records`; trials are passed over.

    A record written twice under the same run and id counts once, the last one.
    """
    latest = {(r.run, r.record_id): r for r in records if isinstance(r, ScoreRecord)}
    scores = list(latest.values())
    sts_sets = _sets(scores, "sts", "test")
    dev_sets = tuple(selection_groups(_sets(scores, "sts", "dev")))
    retrieval_sets = _sets(scores, "retrieval", "test")
    wmean_sets = {s.set for r in scores for s in r.scores if _is_sts(s, "test") and s.variant == "wmean"}
    columns = _columns(sts_sets, dev_sets, retrieval_sets)

    raw = {
        id(record): {
            variant: _values(record, variant, sts_sets, dev_sets, retrieval_sets, wmean_sets) for variant in VARIANTS
        }
        for record in scores
    }
    averages = {variant: {key: values[variant][0] for key, values in raw.items()} for variant in VARIANTS}
    pareto = {variant: _pareto(scores, averages[variant]) for variant in VARIANTS}
    best = {variant: _best_in_dim(scores, averages[variant]) for variant in VARIANTS}

    rows = []
    for record in scores:
        teacher = _teacher_of(record, scores)
        cells = {}
        for variant in VARIANTS:
            own = raw[id(record)][variant]
            reference = raw[id(teacher)][variant] if teacher else [None] * len(own)
            cells[variant] = tuple(Cell(v, _percent(v, r)) for v, r in zip(own, reference, strict=True))
        rows.append(
            Row(
                anchor=_anchor(record),
                record=record,
                values=cells,
                pareto={variant: id(record) in pareto[variant] for variant in VARIANTS},
                best_in_dim={variant: id(record) in best[variant] for variant in VARIANTS},
            )
        )
    rows.sort(key=_order)
    return Leaderboard(
        columns=columns,
        rows=tuple(rows),
        sts_sets=sts_sets,
        dev_sets=dev_sets,
        retrieval_sets=retrieval_sets,
        has_wmean=bool(wmean_sets),
        one_seed=max(_seeds(scores).values(), default=1) == 1,
    )


def highlights(board: Leaderboard) -> tuple[Highlight, ...]:
    """Up to three rows to read first, by test average ("all"): teacher, best compressed, smallest that keeps 95 %."""
    scored = [(row, cell) for row in board.rows if (cell := board.cell(row, AVERAGE)).value is not None]
    teachers = [pair for pair in scored if pair[0].record.role == "teacher"]
    others = [pair for pair in scored if pair[0].record.role != "teacher"]
    close = [pair for pair in others if (pair[1].retention or 0) >= 95]
    found = []
    if teachers:
        found.append(Highlight("Teacher", *max(teachers, key=lambda pair: pair[1].value or 0)))
    if others:
        found.append(Highlight("Highest test average", *max(others, key=lambda pair: pair[1].value or 0)))
    if close:
        smallest = min(close, key=lambda pair: (pair[0].record.bytes_per_vector, -(pair[1].value or 0)))
        found.append(Highlight("Fewest bytes that keep 95 %", *smallest))
    return tuple(found)


def notices(board: Leaderboard) -> tuple[str, ...]:
    """What a reader has to know before comparing two rows, one sentence or two each."""
    rows, found = board.rows, []
    if not rows:
        return ("There is no score record yet: nothing to rank.",)
    if board.one_seed:
        found.append("One seed: no interval. Each row is a single run, so small differences may be chance.")
    else:
        found.append("Some encoders were run with several seeds. Each seed is a row of its own; no mean is taken.")
    if board.sts_sets:
        names = ", ".join(board.sts_sets)
        sets = f"{len(board.sts_sets)} sets" if len(board.sts_sets) > 1 else "one set"
        found.append(f"The test average is the mean Spearman correlation x 100 over {sets}: {names}.")
    averages = [board.cell(row, AVERAGE) for row in rows]
    without = sum(cell.value is None for cell in averages)
    if without:
        found.append(f"Without an average, since a set is missing there: {without} of {len(rows)} rows.")
    orphans = sum(cell.value is not None and cell.retention is None for cell in averages)
    if orphans:
        found.append(f"Without retention, since their teacher has no row on the same corpus: {orphans} rows.")
    corpora = {row.record.corpus_fingerprint for row in rows}
    if len(corpora) > 1:
        found.append(
            f"The rows come from {len(corpora)} different corpora. The Pareto front and the best of a dimension are "
            "taken within each; do not compare rows across them."
        )
    return tuple(found)


def demonstration_rows(board: Leaderboard) -> int:
    """How many rows were scored on the generated demonstration corpus."""
    return sum(row.record.demonstration for row in board.rows)


def index_rows(board: Leaderboard) -> tuple[IndexRow, ...]:
    """Every index of every row, in the leaderboard's order."""
    return tuple(IndexRow(row, cost) for row in board.rows for cost in row.record.indexes)


def unique_trials(records: Iterable[TrialRecord | ScoreRecord]) -> tuple[TrialRecord, ...]:
    """The trials by run (in order of appearance) and number; of a trial recorded twice, the last record."""
    latest: dict[str, dict[int, TrialRecord]] = {}
    for record in records:
        if isinstance(record, TrialRecord):
            latest.setdefault(record.run, {})[record.number] = record
    return tuple(trials[number] for trials in latest.values() for number in sorted(trials))


def trial_table(records: Iterable[TrialRecord | ScoreRecord], limit: int = 300) -> TrialTable:
    """All trials when there are at most `limit`; else those with the highest objective and a sixth without any.

    Raises:
        ValueError: `limit` is below 1.
    """
    if limit < 1:
        raise ValueError(f"limit is {limit}, expected 1 or more")
    trials = unique_trials(records)
    shown = trials
    if len(trials) > limit:
        ranked = sorted((t for t in trials if finite(t.objective) is not None), key=lambda t: -(t.objective or 0.0))
        silent = [t for t in trials if finite(t.objective) is None][: limit // 6]
        kept = {(t.run, t.number) for t in [*ranked[: limit - len(silent)], *silent]}
        shown = tuple(t for t in trials if (t.run, t.number) in kept)
    runs = tuple(dict.fromkeys(t.run for t in trials))
    return TrialTable(shown, len(trials), dict(Counter(t.state for t in trials)), runs)


def finite(value: float | None) -> float | None:
    """`value`, or None where it is missing, NaN or infinite."""
    return value if value is not None and math.isfinite(value) else None


def _columns(sts: Sequence[str], dev: Sequence[str], retrieval: Sequence[str]) -> tuple[Column, ...]:
    columns = []
    names = ", ".join(sts)
    columns.append(Column(AVERAGE, "Test STS", "Average", f"Mean Spearman x 100 over {names or 'no set'}", True))
    columns += [Column(f"sts:{name}", "Test STS", name, f"{name} test, Spearman x 100", True) for name in sts]
    if dev:
        help_text = f"{', '.join(dev)} dev, Spearman x 100. Used to select the student: not a result"
        columns.append(Column(DEV, "Selection", "Dev", help_text, False))
    for name in retrieval:
        group = f"Retrieval, {name}, exact"
        columns.append(Column(f"mrr10:{name}", group, "MRR@10", f"{name} test, MRR@10 x 100, exact search", False))
        columns.append(
            Column(f"recall100:{name}", group, "Recall@100", f"{name} test, Recall@100 x 100, exact search", False)
        )
    return tuple(columns)


def _values(
    record: ScoreRecord,
    variant: Variant,
    sts_sets: Sequence[str],
    dev_sets: Sequence[str],
    retrieval_sets: Sequence[str],
    wmean_sets: set[str],
) -> list[float | None]:
    """The record's scores in the order of `_columns`."""
    found = {(s.task, s.set, s.split, s.metric, s.variant): finite(s.value) for s in record.scores}
    # A set that has no weighted mean in any record has a single subset: its "all" is its weighted mean.
    sts = [found.get(("sts", name, "test", "spearman", variant if name in wmean_sets else "all")) for name in sts_sets]
    values = [_mean(sts), *sts]
    if dev_sets:
        values.append(_mean([found.get(("sts", name, "dev", "spearman", "all")) for name in dev_sets]))
    flat = {c.set: c for c in record.indexes if c.kind == "flat" and c.split == "test"}
    for name in retrieval_sets:
        exact = flat.get(name)
        mrr10 = found.get(("retrieval", name, "test", "mrr@10", "all"))
        recall100 = found.get(("retrieval", name, "test", "recall@100", "all"))
        values.append(finite(exact.mrr10) if mrr10 is None and exact else mrr10)
        values.append(finite(exact.recall100) if recall100 is None and exact else recall100)
    return values


def _sets(records: Iterable[ScoreRecord], task: str, split: str) -> tuple[str, ...]:
    """Names of the sets any record has, in order of first appearance."""
    names: dict[str, None] = {}
    for record in records:
        names.update(dict.fromkeys(s.set for s in record.scores if s.task == task and s.split == split))
        if task == "retrieval":
            names.update(dict.fromkeys(c.set for c in record.indexes if c.kind == "flat" and c.split == split))
    return tuple(names)


def _is_sts(score: Score, split: str) -> bool:
    return score.task == "sts" and score.split == split


def _teacher_of(record: ScoreRecord, records: Iterable[ScoreRecord]) -> ScoreRecord | None:
    """The teacher's row on the same corpus: of the same run if there is one, else the most recent."""
    candidates = [
        r
        for r in records
        if r.role == "teacher" and (r.teacher, r.corpus_fingerprint) == (record.teacher, record.corpus_fingerprint)
    ]
    return max(candidates, key=lambda r: (r.run == record.run, r.provenance.created_at), default=None)


def _pareto(records: Sequence[ScoreRecord], averages: Mapping[int, float | None]) -> set[int]:
    """`id`s of the records that no other one dominates (fewer bytes, higher average)."""

    def front(group: list[ScoreRecord]) -> set[int]:
        kept, best, best_bytes = set(), -math.inf, -1
        for r in sorted(group, key=lambda r: (r.bytes_per_vector, -(averages[id(r)] or 0.0))):
            value = averages[id(r)] or 0.0
            if value > best or (value == best and r.bytes_per_vector == best_bytes):
                kept.add(id(r))
                best, best_bytes = value, r.bytes_per_vector
        return kept

    return _within(records, averages, lambda r: r.corpus_fingerprint, front)


def _best_in_dim(records: Sequence[ScoreRecord], averages: Mapping[int, float | None]) -> set[int]:
    """`id`s of the records with the highest average of their dimension; ties are all kept."""

    def best(group: list[ScoreRecord]) -> set[int]:
        top = max(averages[id(r)] or 0.0 for r in group)
        return {id(r) for r in group if (averages[id(r)] or 0.0) == top} if len(group) > 1 else set()

    students = [r for r in records if r.role != "teacher"]
    return _within(students, averages, lambda r: f"{r.corpus_fingerprint} {r.dim}", best)


def _within(
    records: Iterable[ScoreRecord],
    averages: Mapping[int, float | None],
    key: Callable[[ScoreRecord], str],
    pick: Callable[[list[ScoreRecord]], set[int]],
) -> set[int]:
    """`pick` applied to each group of records that have an average."""
    groups: dict[str, list[ScoreRecord]] = {}
    for record in records:
        if averages[id(record)] is not None:
            groups.setdefault(key(record), []).append(record)
    return set().union(*(pick(group) for group in groups.values()))


def _seeds(records: Iterable[ScoreRecord]) -> Counter[str]:
    """Number of distinct seeds of each encoder, an encoder being everything but its seed."""
    seeds = set()
    for r in records:
        encoder = (r.role, r.method, r.dim, r.bytes_per_vector, r.teacher, r.start, r.corpus_fingerprint)
        seeds.add((json.dumps([*encoder, r.hyperparameters], sort_keys=True, default=str), r.seed))
    return Counter(encoder for encoder, _ in seeds)


def _order(row: Row) -> tuple[bool, bool, float, str]:
    average = row.values["all"][0].value
    return row.record.role != "teacher", average is None, -(average or 0.0), row.record.label


def _anchor(record: ScoreRecord) -> str:
    """A fragment that stays the same from one report to the next, whatever characters the id has."""
    return "r-" + hashlib.sha256(f"{record.run}\0{record.record_id}".encode()).hexdigest()[:12]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else None


def _percent(value: float | None, teacher: float | None) -> float | None:
    return 100.0 * value / teacher if value is not None and teacher is not None and teacher > 0 else None
