"""Records -> the leaderboard, its index costs and its trials, as plain tuples that a test or a page can read.

Every score is x 100. Records that differ only in their seed are one row, whose cells are means over seeds. A missing
value is None.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from scipy.stats import t as student_t

from distilbench.codes import FAISS_PEER, code_of
from distilbench.progress.tally import finite
from distilbench.records import SEARCHES, IndexCost, ScoreRecord, TrialRecord
from distilbench.reporting.columns import DEV, TEST, Column, Value, columns_of, scores_of, value_of
from distilbench.reporting.names import row_names
from distilbench.search.objectives import pareto_front
from distilbench.selection import BY_RETRIEVAL, STS, Selection

CONFIDENCE = 0.95


class Cell(NamedTuple):
    """A score x 100, the mean over the `seeds` seeds that have it; None where there is none.

    `retention` is its percentage of the teacher's own mean, `interval` as in the function of that name, `kept_interval` the
    same in percent of the teacher's mean. `low` and `high` end the 95 % bootstrap interval over the set's items, where there
    is one seed.
    """

    value: float | None
    retention: float | None
    interval: float | None = None
    seeds: int = 0
    low: float | None = None
    high: float | None = None
    kept_interval: float | None = None


MISSING = Cell(None, None)


class SeedScores(NamedTuple):
    """One seed's record of a row, and its own values by the columns' keys."""

    anchor: str
    record: ScoreRecord
    values: Mapping[str, Value]

    def score(self, key: str) -> float | None:
        """Its score in the column `key`; None where there is no such column."""
        return self.values[key].value if key in self.values else None


class Row(NamedTuple):
    """One encoder with all its seeds, lowest first. `cells` are by the columns' keys.

    `record` is the first seed's: what identifies the encoder is the same in every seed's. `name` is what the row is
    called: its name in the comparison file, or its label, with the start where rows of one label have several and the trial
    where two rows of a run share one. `compared_on` is what rows are compared within: the test sets of the selection's kinds.

    `pareto`: no other row `beside` it has a test score at least as high in as few bytes per vector, one of the two strictly
    better. `best_in_bytes`: the highest test score of the rows with as many bytes per vector (`competes`), whatever
    dimension and code made them, where there are at least two to compare. Both go by the means. `chosen`: of the trials of a
    sweep that compete (`rivals`), the one with the highest dev objective.
    """

    anchor: str
    record: ScoreRecord
    seeds: tuple[SeedScores, ...]
    cells: Mapping[str, Cell]
    name: str
    compared_on: str
    chosen: bool = False
    pareto: bool = False
    best_in_bytes: bool = False

    @property
    def test(self) -> Cell:
        """The test score of what students are selected by."""
        return self.cells[TEST]

    @property
    def dev(self) -> Cell:
        """Its dev score, which chooses students; an empty cell where no row has one."""
        return self.cells.get(DEV, MISSING)

    @property
    def confirmed(self) -> bool:
        """Whether it is a trial of a sweep that other seeds have repeated."""
        return self.record.trial is not None and len(self.seeds) > 1


class Leaderboard(NamedTuple):
    """Teachers first, then by test score, highest first; rows without one last."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    selection: Selection
    """What the students of all rows are selected by, and what the test score is of."""

    @property
    def one_seed(self) -> bool:
        """Whether no row has two seeds: then there is nothing to compute an interval from."""
        return all(len(row.seeds) == 1 for row in self.rows)

    @property
    def quantised(self) -> bool:
        """Whether a row's vectors are anything but float32."""
        return any(row.record.quantisation != "float32" for row in self.rows)

    @property
    def anchors(self) -> list[str]:
        """The anchors of all seeds of all rows."""
        return sorted(seed.anchor for row in self.rows for seed in row.seeds)

    @property
    def corpora(self) -> list[str]:
        """What rows are compared on, that of most rows first."""
        return [corpus for corpus, _ in Counter(row.compared_on for row in self.rows).most_common()]


class CostRow(NamedTuple):
    """One measured index of one row.

    `cost` is the first seed's, `measured` has the means over the seeds that measured the same one, by field name.
    """

    row: Row
    cost: IndexCost
    measured: Mapping[str, float | None]


def leaderboard(records: Iterable[TrialRecord | ScoreRecord]) -> Leaderboard:
    """Make the leaderboard of the score records in `records`, whose trials say which students were chosen.

    A record written twice under the same run and id counts once, the last one; so does a seed of the same encoder.
    """
    records = list(records)
    latest = {(r.run, r.record_id): r for r in records if isinstance(r, ScoreRecord)}
    encoders: dict[str, dict[int, ScoreRecord]] = {}
    for record in latest.values():
        encoders.setdefault(_encoder(record), {})[record.seed] = record
    scored = [record for seeds in encoders.values() for record in seeds.values()]
    selection = _selection(scored)
    columns = columns_of(scored, selection)
    rows = [_row([seeds[seed] for seed in sorted(seeds)], columns, selection) for seeds in encoders.values()]
    names = row_names([row.record for row in rows])
    (pareto, best), chosen = _pareto_and_best(rows), _chosen(rows, records)
    rows = [
        row._replace(
            cells=_with_retention(row, teacher_row(row, rows)),
            name=name,
            pareto=row.anchor in pareto,
            best_in_bytes=row.anchor in best,
            chosen=row.anchor in chosen,
        )
        for row, name in zip(rows, names, strict=True)
    ]
    return Leaderboard(columns, tuple(sorted(rows, key=_order)), selection)


def _row(records: Sequence[ScoreRecord], columns: Sequence[Column], selection: Selection) -> Row:
    """A row without its name and its marks."""
    seeds = []
    for record in records:
        scores = scores_of(record)
        values = {column.key: value_of(column, scores) for column in columns}
        seeds.append(SeedScores(_anchor(record), record, values))
    cells = {column.key: mean_cell([seed.score(column.key) for seed in seeds]) for column in columns}
    if len(seeds) == 1:
        cells = {key: cells[key]._replace(low=own.low, high=own.high) for key, own in seeds[0].values.items()}
    return Row(seeds[0].anchor, records[0], tuple(seeds), cells, "", records[0].compared_on(selection.kinds))


def _with_retention(row: Row, teacher: Row | None) -> dict[str, Cell]:
    cells = {}
    for key, own in row.cells.items():
        whole = None if teacher is None else teacher.cells[key].value
        cells[key] = own._replace(retention=percent(own.value, whole), kept_interval=percent(own.interval, whole))
    return cells


def mean_cell(values: Iterable[float | None]) -> Cell:
    """The mean and interval of one score's values, one per seed; seeds without it (None) are left out. No retention."""
    present = [value for value in values if value is not None]
    if not present:
        return MISSING
    return Cell(math.fsum(present) / len(present), None, interval(present), len(present))


def interval(values: Sequence[float]) -> float | None:
    """Half-width of the 95 % confidence interval of the mean of `values` (Student's t); None for fewer than two.

    The values are taken as independent and normally distributed around the mean.
    """
    n = len(values)
    return t_quantile(n) * statistics.stdev(values) / math.sqrt(n) if n > 1 else None


@cache
def t_quantile(n: int) -> float:
    """Student's t of the interval of `n` values: scipy takes longer for one than all else that a cell needs."""
    return float(student_t.ppf((1 + CONFIDENCE) / 2, n - 1))


def notices(board: Leaderboard) -> tuple[str, ...]:
    """What a reader has to know before comparing two rows, one sentence or two each."""
    rows = board.rows
    if not rows:
        return ("There is no score record yet: nothing to rank.",)
    lines = [_seeds_notice(board)]
    if any(row.test.value is not None for row in rows):
        students = any(row.record.role == "student" for row in rows)
        across = " of their queries among the teacher's documents" if board.selection.by_teacher else ""
        chosen = f"Students were selected by {board.selection.title}{across} on dev. " if students else ""
        lines.append(f"{chosen}The test score is {board.columns[0].help}.")
        if without := sum(row.test.value is None for row in rows):
            lines.append(f"Without a test score, since a set is missing there: {without} of {len(rows)} rows.")
    if any(row.record.documents for row in rows):
        lines.append(
            "Rows with the teacher's documents are pairs: the student embeds queries, and its teacher has embedded the "
            "documents. They have scores of searches alone; marks and ties compare them among themselves."
        )
    known = Counter(name for name, _ in {item for row in rows for item in row.record.sets.items()})
    searches = {name.removeprefix(SEARCHES): digests for name, digests in known.items() if name.startswith(SEARCHES)}
    if differing := [name.replace("/", " ") for name, digests in searches.items() if digests > 1]:
        lines.append(
            f"Other documents, queries or judgements in some rows: {', '.join(sorted(differing))}. Scores of these sets, and "
            "what is chosen by them, do not compare from run to run."
        )
    if len(board.corpora) > 1:
        lines.append(
            f"The rows come from {len(board.corpora)} different corpora. The Pareto front and the best in so many bytes "
            "are taken within each; do not compare rows across them."
        )
    return tuple(lines)


def _seeds_notice(board: Leaderboard) -> str:
    """Over how many seeds the rows are, and what their intervals mean."""
    if all(row.record.role in ("teacher", "encoder") for row in board.rows):
        return "Below a score stands its 95 % bootstrap interval over the items of its set."
    if board.one_seed:
        return "One seed: no interval. Each row is a single run, so small differences may be chance."
    counts = sorted({len(row.seeds) for row in board.rows} - {1})
    several = sum(len(row.seeds) > 1 for row in board.rows)
    seeds = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    others = " Small differences of the other rows, which have one seed, may be chance." * (several < len(board.rows))
    return (
        f"{several} of {len(board.rows)} rows are means over {seeds} seeds, ± half the width of the 95 % confidence interval "
        "(Student's t over seeds). It covers the seed, not the choice of training or test sentences. Settings of a sweep "
        f"were chosen on dev by the training of one seed, and then trained again with the others.{others}"
    )


def index_rows(board: Leaderboard) -> tuple[CostRow, ...]:
    """Every index of every row, in the leaderboard's order."""
    fields = ("build_s", "bytes", "ms_per_1000_queries", "mrr10", "recall100", "overlap10_with_flat")
    lines = []
    for row in board.rows:
        groups: dict[str, list[IndexCost]] = {}
        for cost in (cost for seed in row.seeds for cost in seed.record.indexes):
            groups.setdefault(cost.model_dump_json(exclude=set(fields)), []).append(cost)
        for costs in groups.values():
            measured = {f: mean_cell(finite(float(getattr(cost, f))) for cost in costs).value for f in fields}
            lines.append(CostRow(row, costs[0], measured))
    return tuple(lines)


def competes(record: ScoreRecord) -> bool:
    """Return whether the row competes with those of as many bytes: all do but the teacher's own float32 vectors."""
    return (record.role, record.quantisation) != ("teacher", "float32")


def beside(row: Row) -> tuple[str, bool]:
    """What rows have in common that are compared: the sets, and who embeds the documents that they search."""
    return row.compared_on, bool(row.record.documents)


def searching(board: Leaderboard) -> Leaderboard:
    """The same rows by what pairs have scores of: nDCG@10 of searches, where students are selected by STS too."""
    if "sts" not in board.selection.kinds:
        return board
    pairs = [seed.record for row in board.rows if row.record.documents for seed in row.seeds]
    columns = columns_of(pairs, BY_RETRIEVAL)
    rows = [_row([s.record for s in row.seeds], columns, BY_RETRIEVAL)._replace(name=row.name) for row in board.rows]
    rows = [row._replace(cells=_with_retention(row, teacher_row(row, rows))) for row in rows]
    return Leaderboard(columns, tuple(rows), BY_RETRIEVAL)


def told(row: Row) -> str:
    """The row's name and its code, to tell it from the other forms of the encoder; the names of FAISS's rows have theirs."""
    r = row.record
    return row.name if r.quantisation == "float32" or r.method == FAISS_PEER else f"{row.name}, {r.quantisation}"


def rivals(r: ScoreRecord) -> tuple[object, ...]:
    """What the rows of a sweep's trials have in common that compete.

    That is what their trials compete within, and whether the row is in the code that it was trained for or in another one.
    """
    form = "its own" if r.quantisation == code_of(r.hyperparameters) else r.quantisation
    return r.run, r.method, r.group, form, r.corpus_fingerprint, r.documents


def _chosen(rows: Iterable[Row], records: Iterable[TrialRecord | ScoreRecord]) -> set[str]:
    """The rows that have the highest mean dev objective over their seeds of their `rivals`, where these are at least two.

    Of equals it is the earlier trial.
    """
    trials = [r for r in records if isinstance(r, TrialRecord) and r.state == "COMPLETE" and r.objective is not None]
    complete = {(t.run, t.number, t.seed): t for t in trials}
    groups: dict[tuple[object, ...], list[tuple[float, int, str]]] = {}
    for row in rows:
        r = row.record
        if r.trial is not None:
            trainings = [complete.get((r.run, r.trial, seed.record.seed)) for seed in row.seeds]
            mean = mean_cell([None if t is None else t.objective_at(r.dim) for t in trainings]).value
            if mean is not None:
                groups.setdefault(rivals(r), []).append((-mean, r.trial, row.anchor))
    return {min(group)[2] for group in groups.values() if len(group) > 1}


def _selection(records: Iterable[ScoreRecord]) -> Selection:
    """What all rows of runs were selected by; STS where they differ, since every run has these scores if any."""
    selects = {Selection.parse(select) for select in {r.select for r in records if r.role != "encoder"}}
    if len(selects) > 1:  # by one measure, once with the teacher's documents and once with their own
        selects = {select.measure for select in selects}
    return selects.pop() if len(selects) == 1 else STS


def teacher_row(row: Row, rows: Iterable[Row]) -> Row | None:
    """The float32 row of the row's teacher on the same corpus: of the same run if there is one, else the most recent."""
    r = row.record
    found = [
        other
        for other in rows
        if not competes(other.record) and (other.record.teacher, other.compared_on) == (r.teacher, row.compared_on)
    ]
    return max(found, key=lambda t: (t.record.run == r.run, t.record.provenance.created_at), default=None)


def _pareto_and_best(rows: Iterable[Row]) -> tuple[set[str], set[str]]:
    """The rows that no other of their corpus dominates (fewer bytes, higher test score), and the best of their size."""
    corpora: dict[tuple[str, bool], list[tuple[int, float, str]]] = {}
    sizes: dict[tuple[tuple[str, bool], int], list[tuple[float, str]]] = {}
    for row in rows:
        corpus, size, value = beside(row), row.record.bytes_per_vector, row.test.value
        if value is not None:
            corpora.setdefault(corpus, []).append((size, value, row.anchor))
            if competes(row.record):
                sizes.setdefault((corpus, size), []).append((value, row.anchor))
    pareto = set()
    for own in corpora.values():
        front = pareto_front([point[:2] for point in own], ["minimize", "maximize"])
        pareto |= {own[place][2] for place in front}
    several = [own for own in sizes.values() if len(own) > 1]
    return pareto, {anchor for own in several for value, anchor in own if value == max(own)[0]}


def _encoder(r: ScoreRecord) -> str:
    """What identifies an encoder: everything about it but its seed, and what follows from that."""
    named = (r.run, r.role, r.method, r.configuration, r.label, r.teacher, r.start, r.corpus_fingerprint, r.documents)
    form = (r.dim, r.bytes_per_vector, r.quantisation, r.hyperparameters)
    return json.dumps([*named, *form], sort_keys=True, default=str)


def _order(row: Row) -> tuple[bool, bool, float, float, str]:
    test = row.test.value
    untested = -(row.dev.value or 0.0) if test is None else 0.0
    return row.record.role != "teacher", test is None, -(test or 0.0), untested, row.name


def _anchor(record: ScoreRecord) -> str:
    """A fragment that stays the same from one report to the next, whatever characters the id has."""
    return "r-" + hashlib.sha256(f"{record.run}\0{record.record_id}".encode()).hexdigest()[:12]


def percent(value: float | None, teacher: float | None) -> float | None:
    """What a score is of the teacher's, in percent; None where one of them is missing, or the teacher's is not above 0."""
    return 100.0 * value / teacher if value is not None and teacher is not None and teacher > 0 else None
