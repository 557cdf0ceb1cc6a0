"""Records -> the leaderboard, its index costs and its trials, as plain tuples that a test or a page can read.

Every score is x 100. Records that differ only in their seed are one row, whose cells are means over seeds. A missing
value is None, and an average is missing as soon as one of its sets is: no two rows show averages over different sets.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from scipy.stats import t as student_t

from distilbench.codes import FAISS_PEER, code_of
from distilbench.progress.tally import finite
from distilbench.records import ClusterCost, IndexCost, Score, ScoreRecord, TrialRecord, selection_groups
from distilbench.reporting.starts import start_of, starts_told
from distilbench.selection import STS, TITLES, Part, Selection

Variant = Literal["all", "wmean"]
VARIANTS: tuple[Variant, ...] = ("all", "wmean")
"""How an STS set with several subsets becomes one value: concatenated, or the mean weighted by subset size."""

AVERAGE, DEV = "sts_average", "dev"
"""The test score, which is the mean over STS sets where students are selected by STS, and the dev score beside it."""
TEST, STS_MEAN = "test", "sts_mean"
"""Where they are selected by something else: the test score's own column, and that of the mean over STS sets."""
CONFIDENCE = 0.95
SEVEN = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICK")
"""The sets of the papers' average; over any others it is named by its sets alone."""
_PAIRS = ("pearson", "spearman", "accuracy", "f1")
_RETRIEVAL = ("mrr@10", "ndcg@10", "recall@100")
TASKS: Mapping[str, tuple[str, Sequence[str]]] = {
    "sts-tokenised": ("STS, tokenised", ("spearman",)),
    "classification": ("Classification", ("accuracy",)),
    "retrieval": ("Retrieval", _RETRIEVAL),
    "asymmetric": ("Asymmetric retrieval", _RETRIEVAL),
    "pairs": ("Pairs", _PAIRS),
    "pair-probe": ("Pair probe", _PAIRS),
    "fidelity": ("Fidelity", ("overlap@10", "spearman")),
}
"""Tasks beside STS: the title of their columns, and the metrics that are columns, by their names in `selection.TITLES`."""
FLAT = {"mrr@10": "mrr10", "recall@100": "recall100"}
"""Where the exact index of a record has a metric that its scores do not."""
AVERAGED = ("sts-tokenised", "classification")
"""Tasks whose group begins with the mean over its sets, where it has several."""
EVERY = ""
"""In place of a set's name: the mean over all of them."""
DIAGNOSTICS = {"effective_rank": "Effective rank", "variance": "Variance"}
"""Rung metrics that tell a collapsed student: columns of the trial table where a trial has them."""


class Column(NamedTuple):
    """One score column. `by_variant`: whether its values differ between "all" and "wmean". `dev`: of a dev split.

    `lead`: the one of its group that is shown while the others are folded away.
    """

    key: str
    group: str
    title: str
    help: str
    by_variant: bool
    dev: bool = False
    lead: bool = False


Bounds = tuple[float | None, float | None]
Key = tuple[str, str, str, str]
"""Task, set (or EVERY), split and metric of a score column."""


class Cell(NamedTuple):
    """A score x 100, the mean over the `seeds` seeds that have it; None where there is none.

    `retention` is its percentage of the teacher's own mean, `interval` as in the function of that name. `low` and `high` end
    the 95 % bootstrap interval over the set's items, where there is one seed.
    """

    value: float | None
    retention: float | None
    interval: float | None = None
    seeds: int = 0
    low: float | None = None
    high: float | None = None


MISSING = Cell(None, None)


class SeedScores(NamedTuple):
    """One seed's record of a row, and its own values and their bootstrap intervals, parallel to the leaderboard's columns."""

    anchor: str
    record: ScoreRecord
    values: Mapping[Variant, tuple[float | None, ...]]
    bounds: Mapping[Variant, tuple[Bounds, ...]]


class Row(NamedTuple):
    """One encoder with all its seeds, lowest first. `values[variant]` is parallel to the leaderboard's columns.

    `record` is the first seed's: what identifies the encoder is the same in every seed's. `pareto`: no other row of the
    same corpus has a test average at least as high in as few bytes per vector, one of the two strictly better.
    `best_in_bytes`: the highest test average of the rows with as many bytes per vector (`competes`), whatever dimension and
    code made them, where there are at least two to compare. Both go by the means.

    `name` is what the row is called: its name in the comparison file, or its label, with the start where rows of one label
    have several (`reporting.starts`) and the trial where two rows of a run share one. `chosen`: of the trials of a sweep that
    compete (`rivals`), the one with the highest dev objective.
    """

    anchor: str
    record: ScoreRecord
    seeds: tuple[SeedScores, ...]
    values: Mapping[Variant, tuple[Cell, ...]]
    pareto: Mapping[Variant, bool]
    best_in_bytes: Mapping[Variant, bool]
    name: str
    chosen: bool

    @property
    def confirmed(self) -> bool:
        """Whether it is a trial of a sweep that other seeds have repeated."""
        return self.record.trial is not None and len(self.seeds) > 1


class Leaderboard(NamedTuple):
    """Teachers first, then by test average, highest first; rows without an average last."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    sts_sets: tuple[str, ...]
    dev_sets: tuple[str, ...]
    has_wmean: bool
    one_seed: bool
    """True while no row has two seeds: then there is nothing to compute an interval from."""
    quantised: bool
    """Whether a row's vectors are anything but float32."""
    selection: Selection = STS
    """What the students of all rows are selected by, and what the test score is of."""

    @property
    def corpora(self) -> list[str]:
        """What rows are compared on (`ScoreRecord.compared_on`), that of most rows first."""
        return [corpus for corpus, _ in Counter(row.record.compared_on for row in self.rows).most_common()]

    def cell(self, row: Row, key: str, variant: Variant = "all") -> Cell:
        """The row's cell in the column `key` (AVERAGE: the test score); an empty cell when there is no such column."""
        if key == AVERAGE:
            return row.values[variant][0]
        for column, cell in zip(self.columns, row.values[variant], strict=True):
            if column.key == key:
                return cell
        return MISSING


class IndexRow(NamedTuple):
    """One FAISS index of one row. `cost` is the first seed's, `measured` has the means over seeds by field name."""

    row: Row
    cost: IndexCost
    measured: Mapping[str, Cell]


class ClusterRow(NamedTuple):
    """One way of clustering a set's documents with one row's vectors; `cost` and `measured` as in IndexRow."""

    row: Row
    cost: ClusterCost
    measured: Mapping[str, Cell]


class TrialTable(NamedTuple):
    """The trials of the search worth listing. `total` and `states` count all of them, listed or not.

    `confirmations`: trainings that repeat one of them with another seed; they are counted only here.
    `diagnostics` are the keys of DIAGNOSTICS that a rung of any trial has.
    """

    shown: tuple[TrialRecord, ...]
    total: int
    states: Mapping[str, int]
    confirmations: int
    runs: tuple[str, ...]
    diagnostics: tuple[str, ...]


def leaderboard(records: Iterable[TrialRecord | ScoreRecord]) -> Leaderboard:
    """The leaderboard of the score records in `records`; trials are passed over.

    A record written twice under the same run and id counts once, the last one; so does a seed of the same encoder.
    """
    records = list(records)
    latest = {(r.run, r.record_id): r for r in records if isinstance(r, ScoreRecord)}
    encoders: dict[str, dict[int, ScoreRecord]] = {}
    for record in latest.values():
        encoders.setdefault(_encoder(record), {})[record.seed] = record
    scores = [record for seeds in encoders.values() for record in seeds.values()]
    sts_sets = _sets(scores, "sts", "test")
    selection = _selection(scores)
    dev_sets = tuple(selection_groups(_sets(scores, "sts", "dev"))) if selection == STS else ()
    wmean_sets = {s.set for r in scores for s in r.scores if _is_sts(s, "test") and s.variant == "wmean"}
    keys = _score_keys(scores)
    columns = _columns(sts_sets, dev_sets, keys, selection)

    def seed_scores(record: ScoreRecord) -> SeedScores:
        cells = {v: _scores_in_order(record, v, sts_sets, dev_sets, wmean_sets, keys, selection) for v in VARIANTS}
        values = {v: tuple(value for value, _ in of_variant) for v, of_variant in cells.items()}
        return SeedScores(
            _anchor(record),
            record,
            values,
            {v: tuple(b for _, b in of_variant) for v, of_variant in cells.items()},
        )

    drafts = [tuple(seed_scores(seeds[seed]) for seed in sorted(seeds)) for seeds in encoders.values()]
    firsts = [draft[0].record for draft in drafts]
    means = {
        variant: {
            id(draft[0].record): tuple(
                cell if len(draft) > 1 else cell._replace(low=low, high=high)
                for cell, (low, high) in zip(
                    map(mean_cell, zip(*(seed.values[variant] for seed in draft), strict=True)),
                    draft[0].bounds[variant],
                    strict=True,
                )
            )
            for draft in drafts
        }
        for variant in VARIANTS
    }
    averages = {variant: {key: cells[0].value for key, cells in means[variant].items()} for variant in VARIANTS}
    pareto = {variant: _pareto(firsts, averages[variant]) for variant in VARIANTS}
    best = {variant: _best_in_bytes(firsts, averages[variant]) for variant in VARIANTS}
    names, chosen = _names(firsts), _chosen(drafts, _complete(records))

    rows = []
    for draft, record in zip(drafts, firsts, strict=True):
        teacher = teacher_of(record, firsts)
        cells = {}
        for variant in VARIANTS:
            mean_cells = means[variant][id(record)]
            reference = means[variant][id(teacher)] if teacher else [MISSING] * len(mean_cells)
            cells[variant] = tuple(
                cell._replace(retention=percent(cell.value, of.value))
                for cell, of in zip(mean_cells, reference, strict=True)
            )
        rows.append(
            Row(
                anchor=draft[0].anchor,
                record=record,
                seeds=draft,
                values=cells,
                pareto={variant: id(record) in pareto[variant] for variant in VARIANTS},
                best_in_bytes={variant: id(record) in best[variant] for variant in VARIANTS},
                name=names[id(record)],
                chosen=id(record) in chosen,
            )
        )
    dev_place = next((i for i, column in enumerate(columns) if column.key == DEV), None)
    rows.sort(key=lambda row: _order(row, dev_place))
    return Leaderboard(
        columns=columns,
        rows=tuple(rows),
        sts_sets=sts_sets,
        dev_sets=dev_sets,
        has_wmean=bool(wmean_sets),
        one_seed=all(len(row.seeds) == 1 for row in rows),
        quantised=any(row.record.quantisation != "float32" for row in rows),
        selection=selection,
    )


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
    if n < 2:
        return None
    return float(student_t.ppf((1 + CONFIDENCE) / 2, n - 1)) * statistics.stdev(values) / math.sqrt(n)


def notices(board: Leaderboard) -> tuple[str, ...]:
    """What a reader has to know before comparing two rows, one sentence or two each."""
    rows, lines = board.rows, []
    if not rows:
        return ("There is no score record yet: nothing to rank.",)
    lines += _seed_notices(board)
    if board.selection != STS:
        lines.append(
            f"Students were selected by {board.selection.title} on dev; the test score is the same measure of the test sets."
        )
    elif board.sts_sets:
        names = ", ".join(board.sts_sets)
        sets = f"{len(board.sts_sets)} sets" if len(board.sts_sets) > 1 else "one set"
        lines.append(f"The test average is the mean Spearman correlation x 100 over {sets}: {names}.")
    averages = [board.cell(row, AVERAGE) for row in rows]
    without = sum(cell.value is None for cell in averages)
    if without and any(cell.value is not None for cell in averages):
        lines.append(f"Without an average, since a set is missing there: {without} of {len(rows)} rows.")
    orphans = sum(
        bool(row.record.teacher) and cell.value is not None and cell.retention is None
        for row, cell in zip(rows, averages, strict=True)
    )
    if orphans:
        lines.append(f"Without retention, since their teacher has no float32 row on the same corpus: {orphans} rows.")
    corpora = {row.record.compared_on for row in rows}
    if len(corpora) > 1:
        lines.append(
            f"The rows come from {len(corpora)} different corpora. The Pareto front and the best in so many bytes "
            "are taken within each; do not compare rows across them."
        )
    return tuple(lines)


def demonstration_rows(board: Leaderboard) -> int:
    """How many rows were scored on the generated demonstration corpus."""
    return sum(row.record.demonstration for row in board.rows)


def index_rows(board: Leaderboard) -> tuple[IndexRow, ...]:
    """Every index of every row, in the leaderboard's order; means over the seeds that measured the same index."""
    fields = ("build_s", "bytes", "ms_per_1000_queries", "mrr10", "recall100", "overlap10_with_flat")
    index_lines = []
    for row in board.rows:
        groups: dict[tuple[object, ...], list[IndexCost]] = {}
        for c in (c for seed in row.seeds for c in seed.record.indexes):
            index = (c.kind, c.nlist, c.nprobe, c.setting)
            key = (c.set, c.split, *index, c.documents, c.queries, c.threads, c.batch, c.device)
            groups.setdefault(key, []).append(c)
        index_lines += [IndexRow(row, costs[0], _measured(costs, fields)) for costs in groups.values()]
    return tuple(index_lines)


def cluster_rows(board: Leaderboard) -> tuple[ClusterRow, ...]:
    """Every clustering of every row, in the leaderboard's order; means over the seeds that measured the same one."""
    fields = ("used", "accuracy", "searched", "fit_s", "assign_s", "search_s")
    cluster_lines = []
    for row in board.rows:
        groups: dict[tuple[object, ...], list[ClusterCost]] = {}
        for c in (c for seed in row.seeds for c in seed.record.clusters):
            key = (c.set, c.split, c.kind, c.clusters, c.documents, c.queries, c.threads)
            groups.setdefault(key, []).append(c)
        cluster_lines += [ClusterRow(row, costs[0], _measured(costs, fields)) for costs in groups.values()]
    return tuple(cluster_lines)


def unique_trials(records: Iterable[TrialRecord | ScoreRecord]) -> tuple[TrialRecord, ...]:
    """The trials by run (in order of appearance), number and seed; of a trial recorded twice, the last record."""
    latest: dict[str, dict[str, TrialRecord]] = {}
    for record in records:
        if isinstance(record, TrialRecord):
            latest.setdefault(record.run, {})[_trial(record)] = record
    return tuple(t for trials in latest.values() for t in sorted(trials.values(), key=lambda t: (t.number, t.seed)))


def trial_table(records: Iterable[TrialRecord | ScoreRecord], limit: int = 300) -> TrialTable:
    """All trials when there are at most `limit`; else those with the highest objective and a sixth without any.

    Raises:
        ValueError: `limit` is below 1.
    """
    if limit < 1:
        raise ValueError(f"limit is {limit}, expected 1 or more")
    distinct = unique_trials(records)
    trials = tuple(t for t in distinct if not t.confirms)
    shown = trials
    if len(trials) > limit:
        ranked = sorted((t for t in trials if finite(t.objective) is not None), key=lambda t: -(t.objective or 0.0))
        silent = [t for t in trials if finite(t.objective) is None][: limit // 6]
        kept_ids = {id(t) for t in [*ranked[: limit - len(silent)], *silent]}
        shown = tuple(t for t in trials if id(t) in kept_ids)
    runs = tuple(dict.fromkeys(t.run for t in trials))
    present = {key for t in trials for rung in t.rungs for key in rung.metrics}
    diagnostics = tuple(key for key in DIAGNOSTICS if key in present)
    states = dict(Counter(str(t.state) for t in trials))
    return TrialTable(shown, len(trials), states, len(distinct) - len(trials), runs, diagnostics)


def last_metric(trial: TrialRecord, key: str) -> float | None:
    """The metric at the trial's last rung; None where that rung has none or it is not finite."""
    return finite(trial.rungs[-1].metrics.get(key)) if trial.rungs else None


def _names(records: Sequence[ScoreRecord]) -> dict[int, str]:
    """What each record's row is called, by `id`."""
    starts = starts_told(records)

    def place(r: ScoreRecord) -> tuple[object, ...]:
        return r.run, r.name, r.quantisation, r.teacher, r.corpus_fingerprint, starts.get(start_of(r))

    def named(r: ScoreRecord) -> str:
        trial = f"trial {r.trial}" if r.trial is not None and shared[place(r)] > 1 else None
        return ", ".join(filter(None, (r.name, starts.get(start_of(r)), trial)))

    shared = Counter(place(r) for r in records)
    return {id(r): named(r) for r in records}


def competes(record: ScoreRecord) -> bool:
    """Whether the row competes with those of as many bytes: all do but the teacher's own float32 vectors."""
    return (record.role, record.quantisation) != ("teacher", "float32")


def told(row: Row) -> str:
    """The row's name and its code, to tell it from the other forms of the encoder; the names of FAISS's rows have theirs."""
    r = row.record
    return row.name if r.quantisation == "float32" or r.method == FAISS_PEER else f"{row.name}, {r.quantisation}"


def rivals(r: ScoreRecord) -> tuple[object, ...]:
    """What the rows of a sweep's trials have in common that compete.

    That is what their trials compete within, and whether the row is in the code that it was trained for or in another one.
    """
    form = "its own" if r.quantisation == code_of(r.hyperparameters) else r.quantisation
    return r.run, r.method, r.group, form, r.corpus_fingerprint


def _complete(records: Iterable[TrialRecord | ScoreRecord]) -> dict[tuple[str, int, int], TrialRecord]:
    """Every complete training of a sweep with an objective, by run, trial and seed."""
    trials = [r for r in records if isinstance(r, TrialRecord) and r.state == "COMPLETE" and r.objective is not None]
    return {(r.run, r.number, r.seed): r for r in trials}


def _chosen(drafts: Iterable[Sequence[SeedScores]], complete: Mapping[tuple[str, int, int], TrialRecord]) -> set[int]:
    """`id`s of the first records of the rows that have the highest mean dev objective over their seeds.

    Of the `rivals`, where there are at least two with a trial; the earlier trial of equals.
    """
    groups: dict[tuple[object, ...], list[tuple[float, int, int]]] = {}
    for seeds in drafts:
        r = seeds[0].record
        if r.trial is None:
            continue
        trainings = [t for seed in seeds if (t := complete.get((r.run, r.trial, seed.record.seed)))]
        mean = mean_cell([t.objective_at(r.dim) for t in trainings]).value
        if mean is not None:
            groups.setdefault(rivals(r), []).append((-mean, r.trial, id(r)))
    return {min(group)[2] for group in groups.values() if len(group) > 1}


def _seed_notices(board: Leaderboard) -> list[str]:
    """Over how many seeds the rows are, and what their intervals mean."""
    if all(row.record.role in ("teacher", "encoder") for row in board.rows):
        return ["Below a score stands its 95 % bootstrap interval over the items of its set."]
    if board.one_seed:
        return ["One seed: no interval. Each row is a single run, so small differences may be chance."]
    counts = sorted({len(row.seeds) for row in board.rows} - {1})
    several = sum(len(row.seeds) > 1 for row in board.rows)
    seeds = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    lines = [
        f"{several} of {len(board.rows)} rows are means over {seeds} seeds, ± half the width of the 95 % confidence "
        "interval (Student's t over seeds). It covers the seed, not the choice of training or test sentences."
    ]
    if several < len(board.rows):
        lines.append(
            "The other rows have one seed: no interval. A teacher and its PCA do not depend on the seed; of any other "
            "such row, small differences may be chance."
        )
    confirmed = sorted({len(row.seeds) for row in board.rows if row.confirmed})
    if confirmed:
        how = f"{confirmed[0]} to {confirmed[-1]}" if len(confirmed) > 1 else f"{confirmed[0]}"
        lines.append(
            f"Students of a sweep are confirmed with {how} seeds: their settings were chosen on dev, by the training in the "
            "search, and then trained again with the other seeds."
        )
    partial = sum(0 < board.cell(row, AVERAGE).seeds < len(row.seeds) for row in board.rows)
    if partial:
        lines.append(
            f"Averaged over fewer seeds than the row has, since the others lack a set: {partial} of {len(board.rows)} "
            "rows. Their cells say over how many (n)."
        )
    return lines


def _score_keys(records: Sequence[ScoreRecord]) -> tuple[Key, ...]:
    """The columns beside STS, in order: of a set without a test score in any record those of its dev split."""
    scores = [(r, s) for r in records for s in r.scores if s.variant == "all"]
    flat = [("retrieval", c.set, c.split, m) for r in records for c in r.indexes for m in FLAT if c.kind == "flat"]
    present = dict.fromkeys([(s.task, s.set, s.split, s.metric) for _, s in scores] + flat)
    tested = {(task, name) for task, name, split, _ in present if split == "test"}
    keys: list[Key] = []
    for task, (_, metrics) in TASKS.items():
        names = dict.fromkeys(name for key_task, name, _, _ in present if key_task == task)
        if task in AVERAGED and len(names) > 1 and all((task, name) in tested for name in names):
            keys += [(task, EVERY, "test", metric) for metric in metrics]
        for name in names:
            split = "test" if (task, name) in tested else "dev"
            keys += [key for metric in metrics if (key := (task, name, split, metric)) in present]
    return tuple(keys)


def _measured(costs: Sequence[IndexCost] | Sequence[ClusterCost], fields: Sequence[str]) -> dict[str, Cell]:
    """Mean and interval of each field over one cost per seed."""
    return {field: mean_cell([finite(float(getattr(cost, field))) for cost in costs]) for field in fields}


def _selection(records: Iterable[ScoreRecord]) -> Selection:
    """What all rows of runs were selected by; STS where they differ, since every run has these scores if any."""
    selects = {r.select for r in records if r.role != "encoder"}
    return Selection.parse(selects.pop()) if len(selects) == 1 else STS


def _columns(sts: Sequence[str], dev: Sequence[str], keys: Sequence[Key], selection: Selection) -> tuple[Column, ...]:
    columns = []
    names = ", ".join(sts)
    title = "Seven-set average" if set(sts) == set(SEVEN) else "Average"
    own = selection != STS
    if own:
        told = f"{selection.title} x 100 on the test sets: of what students were selected by on dev"
        columns.append(Column(TEST, "Test", selection.title, told, False, lead=True))
        told = f"{selection.title} x 100 on dev. Used to select the student: not a result"
        columns.append(Column(DEV, "Selection", "Dev", told, False, dev=True, lead=True))
    if sts or not own:
        key = STS_MEAN if own else AVERAGE
        columns.append(Column(key, "Test STS", title, f"Mean Spearman x 100 over {names or 'no set'}", True, lead=True))
    columns += [Column(f"sts:{name}", "Test STS", name, f"{name} test, Spearman x 100", True) for name in sts]
    if dev:
        help_text = f"{', '.join(dev)} dev, Spearman x 100. Used to select the student: not a result"
        columns.append(Column(DEV, "Selection", "Dev", help_text, False, dev=True, lead=True))
    for task, name, split, metric in keys:
        group, metrics = TASKS[task]
        metric_title, no_test = TITLES[metric], "" if split == "test" else ". No row has a test score of this set"
        if name == EVERY:
            over = ", ".join(other for of, other, *_ in keys if of == task and other != EVERY)
            columns.append(
                Column(
                    f"{task}_average",
                    group,
                    "Average",
                    f"Mean {metric_title.lower()} x 100 over {over}",
                    False,
                    lead=True,
                )
            )
            continue
        split_note = f" ({split})" if split == "dev" or task.startswith("pair") else ""
        shared = len(metrics) == 1  # one column a set: the group is the task
        key = f"{metric.replace('@', '')}:{name}" if task == "retrieval" else f"{task}:{name}:{metric}"
        key += ":dev" if split == "dev" else ""
        group_title = group if shared else f"{group}, {name}{split_note}" + (", exact" if task == "retrieval" else "")
        columns.append(
            Column(
                key,
                group_title,
                f"{name}{split_note}" if shared else metric_title,
                f"{name} {split}, {group.lower()}, {metric_title} x 100{no_test}",
                False,
                dev=split == "dev",
                lead=columns[-1].group != group_title,
            )
        )
    return tuple(columns)


def _scores_in_order(
    record: ScoreRecord,
    variant: Variant,
    sts_sets: Sequence[str],
    dev_sets: Sequence[str],
    wmean_sets: set[str],
    keys: Sequence[Key],
    selection: Selection,
) -> list[tuple[float | None, Bounds]]:
    """The record's scores and their intervals in the order of `_columns`."""
    scores: dict[tuple[str, ...], Score] = {(s.task, s.set, s.split, s.metric, s.variant): s for s in record.scores}
    flat: dict[tuple[str, ...], IndexCost] = {(c.set, c.split): c for c in record.indexes if c.kind == "flat"}

    def score(*key: str) -> tuple[float | None, Bounds]:
        entry = scores.get(key)
        if entry is not None:
            return finite(entry.value), (entry.low, entry.high)
        exact = flat.get((key[1], key[2])) if key[0] == "retrieval" else None
        value = getattr(exact, FLAT[key[3]]) if exact and key[3] in FLAT else None
        return finite(value), (None, None)

    def of_key(key: Key) -> tuple[float | None, Bounds]:
        if key[1] != EVERY:
            return score(*key, "all")
        set_keys = [other for other in keys if (other[0], *other[2:]) == (key[0], *key[2:]) and other[1] != EVERY]
        return _mean_of([score(*other, "all") for other in set_keys])

    # A set that has no weighted mean in any record has a single subset: its "all" is its weighted mean.
    sts = [score("sts", name, "test", "spearman", variant if name in wmean_sets else "all") for name in sts_sets]
    cells = [_mean_of(sts), *sts]
    if selection != STS:
        name, metric = str(selection), selection.parts[0].metric if len(selection.parts) == 1 else "mix"
        cells = [test_score(record, selection), score("selection", name, "dev", metric, "all"), *(cells if sts else [])]
    if dev_sets:
        cells.append(_mean_of([score("sts", name, "dev", "spearman", "all") for name in dev_sets]))
    return [*cells, *map(of_key, keys)]


def test_score(record: ScoreRecord, selection: Selection) -> tuple[float | None, Bounds]:
    """The selection's measure of a record's test sets, and its interval where it is one score; None where a part has none.

    Of pair tasks it is what the encoder's own pair head says, where it has one.
    """
    values: list[tuple[float, float]] = []
    bounds: Bounds = (None, None)
    for part in selection.parts:
        found = _tested(record, part)
        if not found:
            return None, (None, None)
        values.append((part.weight, math.fsum(s.value for s in found) / len(found)))
        bounds = (found[0].low, found[0].high) if len(found) == len(selection.parts) == 1 else (None, None)
    return math.fsum(weight * value for weight, value in values), bounds


def _tested(record: ScoreRecord, part: Part) -> list[Score]:
    """A part's scores of the test sets."""
    test = [s for s in record.scores if s.split == "test" and s.variant == "all"]
    if part.kind != "pairs":
        return [s for s in test if (s.task, s.metric) == (part.kind, part.metric)]
    probed = [s for s in test if s.task in ("pairs", "pair-probe")]
    own = {s.set for s in probed if s.task == "pairs"}
    probed = [s for s in probed if s.task == "pairs" or s.set not in own]
    exact = {s.set for s in probed if s.metric == "accuracy"}
    return [s for s in probed if s.metric == ("accuracy" if s.set in exact else "spearman")]


def _sets(records: Iterable[ScoreRecord], task: str, split: str) -> tuple[str, ...]:
    """Names of the sets any record has, in order of first appearance."""
    names: dict[str, None] = {}
    for record in records:
        names.update(dict.fromkeys(s.set for s in record.scores if s.task == task and s.split == split))
    return tuple(names)


def _is_sts(score: Score, split: str) -> bool:
    return score.task == "sts" and score.split == split


def teacher_of(record: ScoreRecord, records: Iterable[ScoreRecord]) -> ScoreRecord | None:
    """The teacher's float32 row on the same corpus: of the same run if there is one, else the most recent."""
    candidates = [
        r
        for r in records
        if (r.role, r.quantisation) == ("teacher", "float32")
        and (r.teacher, r.compared_on) == (record.teacher, record.compared_on)
    ]
    return max(candidates, key=lambda r: (r.run == record.run, r.provenance.created_at), default=None)


def teacher_row(board: Leaderboard, row: Row) -> Row | None:
    """The float32 row of the row's teacher, on the same corpus."""
    teacher = teacher_of(row.record, [other.record for other in board.rows])
    return next((other for other in board.rows if other.record is teacher), None)


def _pareto(records: Sequence[ScoreRecord], averages: Mapping[int, float | None]) -> set[int]:
    """`id`s of the records that no other one dominates (fewer bytes, higher average)."""

    def front(group: list[ScoreRecord]) -> set[int]:
        on_front, best, best_bytes = set(), -math.inf, -1
        for r in sorted(group, key=lambda r: (r.bytes_per_vector, -(averages[id(r)] or 0.0))):
            value = averages[id(r)] or 0.0
            if value > best or (value == best and r.bytes_per_vector == best_bytes):
                on_front.add(id(r))
                best, best_bytes = value, r.bytes_per_vector
        return on_front

    return _within(records, averages, lambda r: r.compared_on, front)


def _best_in_bytes(records: Sequence[ScoreRecord], averages: Mapping[int, float | None]) -> set[int]:
    """`id`s of the records with the highest average of those with as many bytes per vector; ties are all kept."""

    def best(group: list[ScoreRecord]) -> set[int]:
        top = max(averages[id(r)] or 0.0 for r in group)
        return {id(r) for r in group if (averages[id(r)] or 0.0) == top} if len(group) > 1 else set()

    rows = [r for r in records if competes(r)]
    return _within(rows, averages, lambda r: f"{r.compared_on} {r.bytes_per_vector}", best)


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


def _encoder(r: ScoreRecord) -> str:
    """What identifies an encoder: everything about it but its seed, and what follows from that."""
    named = (r.run, r.role, r.method, r.configuration, r.label, r.teacher, r.start, r.corpus_fingerprint)
    return _json([*named, r.dim, r.bytes_per_vector, r.quantisation, r.hyperparameters])


def _trial(t: TrialRecord) -> str:
    """What identifies a trial within its run; its number alone does not where a run has several seeds or methods."""
    return _json([t.number, t.seed, t.method, t.dim, t.params])


def _json(values: Sequence[object]) -> str:
    return json.dumps(values, sort_keys=True, default=str)


def _order(row: Row, dev_place: int | None) -> tuple[bool, bool, float, float, str]:
    cells = row.values["all"]
    average, dev = cells[0].value, None if dev_place is None else cells[dev_place].value
    untested = -(dev or 0.0) if average is None else 0.0
    return row.record.role != "teacher", average is None, -(average or 0.0), untested, row.name


def _anchor(record: ScoreRecord) -> str:
    """A fragment that stays the same from one report to the next, whatever characters the id has."""
    return "r-" + hashlib.sha256(f"{record.run}\0{record.record_id}".encode()).hexdigest()[:12]


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return math.fsum(present) / len(present) if present and len(present) == len(values) else None


def _mean_of(scores: Sequence[tuple[float | None, Bounds]]) -> tuple[float | None, Bounds]:
    """The mean over sets, and its interval: those of the sets as of independent items, so their squares add up."""
    mean = _mean([value for value, _ in scores])
    ends = [(value, low, high) for value, (low, high) in scores if None not in (value, low, high)]
    if mean is None or len(ends) < len(scores):
        return mean, (None, None)
    down = math.sqrt(math.fsum((v - low) ** 2 for v, low, _ in ends if v is not None and low is not None))
    up = math.sqrt(math.fsum((high - v) ** 2 for v, _, high in ends if v is not None and high is not None))
    return mean, (mean - down / len(ends), mean + up / len(ends))


def percent(value: float | None, teacher: float | None) -> float | None:
    """What a score is of the teacher's, in percent; None where one of them is missing, or the teacher's is not above 0."""
    return 100.0 * value / teacher if value is not None and teacher is not None and teacher > 0 else None
