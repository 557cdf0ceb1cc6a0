"""Which row to take, chosen on dev whatever its test scores are, and what page, terminal, card and `best` say of it.

Every row takes part that can be used: students, baselines, and the teacher with its own codes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from distilbench.records import AS_IT_CAME, ScoreRecord, TrialRecord
from distilbench.reporting.board import Leaderboard, Row, competes, mean_cell, searching, teacher_row, told
from distilbench.reporting.comparison import NOT_COMPARED, Comparison
from distilbench.reporting.formats import binary, short
from distilbench.reporting.frame import searched_column
from distilbench.reporting.loading import FITTED, export_command
from distilbench.reporting.names import PAIR
from distilbench.reporting.serving import ServingCosts, below_overlap, encoder_cost, model_bytes, serving_costs
from distilbench.search.objectives import pareto_front
from distilbench.selection import BY_TEACHER

KEPT_PERCENT = 95
"""Of the teacher's dev score: what "keeps" means."""
FEW_BYTES = 64
FASTER = 1.1
"""Times the teacher's sentences per second, from which a row counts as faster: less is within what timing varies by."""
BEST, SMALL, TRAINED = "Best quality on dev sets", f"Best in {FEW_BYTES} bytes", "Best trained student"
SMALLEST, FASTEST = f"Smallest that keeps {KEPT_PERCENT} %", f"Fastest that keeps {KEPT_PERCENT} %"


class ServingBudget(NamedTuple):
    """What a row may cost at most where it is used; None is no limit.

    A row without a measured latency (ms to embed one sentence) is over every limit of it.
    """

    bytes_per_vector: int | None = None
    latency_ms: float | None = None
    dim: int | None = None

    def allows(self, row: Row) -> bool:
        """Return whether the row is within all limits."""
        costs = row.record.bytes_per_vector, latency_of(row), row.record.dim
        limits = [(cost, limit) for cost, limit in zip(costs, self, strict=True) if limit is not None]
        return all(cost is not None and cost <= limit for cost, limit in limits)


NO_LIMIT = ServingBudget()


class Recommendation(NamedTuple):
    """A row for a need: `summary` says what it keeps and costs, `interval` its test score and how sure that is.

    `command` exports it, "" where it cannot be exported. `pair` follows the name of a pair's student: its speed, and what the
    documents cost.
    """

    title: str
    row: Row
    name: str
    summary: str
    interval: str
    command: str
    pair: str = ""

    def text(self) -> str:
        """Return it as one line."""
        return f"{self.title}{self.name}{self.pair}: {self.summary}. ({self.interval})"


class Answer(NamedTuple):
    """What the page says first: the row to take, those for the other needs, and why a need has none."""

    recommendations: tuple[Recommendation, ...]
    absent: tuple[str, ...]
    chosen: bool = True
    """Whether it was chosen on dev; else it is the encoder, of those that were evaluated as they came, with the highest test
    score."""

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows that are recommended, the first choice first."""
        return tuple(one.row for one in self.recommendations)

    def sentences(self) -> tuple[str, ...]:
        """Return it as plain text, a line for each need."""
        return *(one.text() for one in self.recommendations), *self.absent


def scored(rows: Iterable[Row]) -> list[Row]:
    """List the rows with vectors and a dev score. An encoder that was evaluated as it came is none: no run made it; nor is a
    pair with the teacher's documents, unless its run selected students by these (`for_search`)."""
    made = (row for row in rows if row.record.start != AS_IT_CAME and row.record.dim)
    made = (row for row in made if not row.record.documents or BY_TEACHER in row.record.select)
    return [row for row in made if row.dev.value is not None]


def candidates(rows: Iterable[Row]) -> list[Row]:
    """List the rows to choose from: those `scored` whose codes keep their neighbours."""
    return [row for row in scored(rows) if not below_overlap(row)]


def best_of(rows: Sequence[Row], compared: Comparison = NOT_COMPARED) -> Row | None:
    """Choose the smallest row that cannot be told from the one with the highest dev score; None of no rows.

    Dev scores are means over seeds, and are told apart on the dev sets alone (`Comparison.differ`). Of as many bytes the
    higher dev score wins, then the faster, then a row whose model is kept, then the first by name. The rows are taken to
    be of one corpus.
    """
    if not rows:
        return None
    highest = min(rows, key=lambda row: (-_dev(row), _smallest_first(row)))
    return min((row for row in rows if row is highest or not compared.differ(highest, row)), key=_smallest_first)


def best_under(rows: Iterable[Row], budget: ServingBudget, compared: Comparison = NOT_COMPARED) -> Row | None:
    """Choose among the candidates within the budget, by `best_of`; None when none is."""
    return best_of([row for row in candidates(rows) if budget.allows(row)], compared)


def choose(board: Leaderboard, compared: Comparison, serving: ServingCosts) -> dict[str, Row]:
    """Choose a row for each need; without the needs that no row serves. The rows are of one corpus.

    The teacher's float32 vectors serve none, unless nothing else was scored. Of those that keep 95 % of the teacher's dev
    score the one of the least cost is taken: of equal bytes the higher dev score, of equal speed the best by `best_of`.
    """
    rows = [row for row in candidates(board.rows) if competes(row.record)]
    keeping = [row for row in rows if _keeps(row)]
    speeds = {row.anchor: serving.rows[row.anchor].times_teacher or 0.0 for row in keeping}
    top = max(speeds.values(), default=0.0)
    quick = [row for row in keeping if speeds[row.anchor] >= max(FASTER, top / 1.02)]
    found = {
        BEST: best_of(rows or candidates(board.rows), compared),
        SMALLEST: min(keeping, key=_smallest_first, default=None),
        SMALL: best_of([row for row in rows if row.record.bytes_per_vector <= FEW_BYTES], compared),
        FASTEST: best_of(quick, compared),
        TRAINED: best_of([row for row in rows if _is_trained(row)], compared),
    }
    return {need: row for need, row in found.items() if row is not None}


def answer(
    board: Leaderboard,
    compared: Comparison = NOT_COMPARED,
    serving: ServingCosts | None = None,
    first: str = "Take ",
) -> Answer:
    """Recommend a row for each need among the rows of the largest corpus; `first` begins the text.

    The first choice is the best in few bytes if it keeps enough, else the smallest row that does, else the best quality. Of
    encoders that were evaluated as they came nothing is chosen: the highest test score is named.
    """
    serving = serving or serving_costs(board)
    board = board._replace(rows=tuple(_largest_corpus(board)))
    if not candidates(board.rows):
        tested = [row for row in board.rows if row.test.value is not None]
        best = max(tested, key=lambda row: (row.test.value or 0.0, -row.record.bytes_per_vector), default=None)
        title = f"Highest {board.selection.title}: "
        return Answer((recommendation(title, best, board, serving),) if best else (), (), chosen=False)
    chosen = choose(board, compared, serving)
    small = chosen.get(SMALL)
    taken = small if small is not None and _keeps(small) else chosen.get(SMALLEST, chosen[BEST])
    also = [need[0].lower() + need[1:] for need, row in chosen.items() if row is taken and need != TRAINED]
    one = recommendation(first, taken, board, serving)
    lines = [one._replace(summary=f"{one.summary}; also the {' and the '.join(also)}" if also else one.summary)]
    lines += [recommendation(f"{need}: ", row, board, serving) for need, row in _others(chosen, taken)]
    pair = for_search(board, compared, serving)
    lines += [pair] if pair is not None and pair.row not in [line.row for line in lines] else []
    return Answer(tuple(lines), tuple(_absent(chosen, taken, candidates(board.rows), serving)))


def for_search(
    board: Leaderboard, compared: Comparison, serving: ServingCosts, budget: ServingBudget = NO_LIMIT
) -> Recommendation | None:
    """Recommend a student whose queries search the teacher's documents, in its code; None where no pair has a dev score.

    Of those that keep 95 % of the teacher's dev score of searches it is the fastest, of equal ones that of the fewest bytes;
    where none does, the best quality. None is taken that was measured to be no faster than the teacher, nor one whose student
    is as good on dev with its own documents, unless these were not asked for (`--select retrieval,documents=teacher`).
    """
    searches, pairs = searching(board), list[Row]()
    speeds = {anchor: costs.times_teacher or 0.0 for anchor, costs in serving.rows.items()}
    for row in searches.rows:
        usable = row.record.documents and row.dev.value is not None and budget.allows(row) and not below_overlap(row)
        if usable and (speeds[row.anchor] or FASTER) >= FASTER:
            own = _with_own_documents(row, searches)
            pairs += [row] if own is None or _dev(row) > _dev(own) or BY_TEACHER in row.record.select else []
    keeping = [row for row in pairs if _keeps(row)]
    top = max((speeds[row.anchor] for row in keeping), default=0.0)
    quick = [row for row in keeping if speeds[row.anchor] >= top / 1.02]
    found = min(quick, key=_smallest_first, default=None) or best_of(pairs, compared)
    rows = {row.anchor: row for row in board.rows}
    return found and recommendation("For search: ", rows[found.anchor], board, serving)


def answer_of_run(board: Leaderboard, run: str, compared: Comparison = NOT_COMPARED) -> Answer:
    """`answer` among the students of one run and their teachers, whichever run has scored these, or among all its rows."""
    rows = [row for row in board.rows if row.record.run == run]
    students = [row for row in rows if row.record.role == "student"]
    teachers = {t.anchor: t for row in students if (t := teacher_row(row, board.rows)) is not None}
    considered = (*teachers.values(), *students) if students else tuple(rows)
    return answer(board._replace(rows=considered), compared, first="Of this run take ")


def recommendation(title: str, row: Row, board: Leaderboard, serving: ServingCosts) -> Recommendation:
    """Put a choice into words; of a pair what it costs on either side, and what it keeps of searches."""
    r = row.record
    if r.documents:
        board = searching(board)
        same = next(other for other in board.rows if other.anchor == row.anchor)
        name, asked = row.name.removesuffix(f", {PAIR}"), "embed queries with "
        title = f"{title}{asked}" if title.endswith(": ") else f"{title}for queries " if title else asked.capitalize()
        kept = [*_kept(same, board, serving)] or [f"{board.selection.title} {_dev(same):.2f} on dev"]
        summary, costs = ", ".join([*kept, *_on_disk(row)]), _costs_of_pair(same, board, serving)
        return Recommendation(title, row, name, summary, _interval(board, same), export_command(r, row.anchor), costs)
    name = row.name if row.name.endswith(r.quantisation) else told(row)
    name += {"baseline": ", a baseline", "teacher": ", the teacher's own code"}.get(r.role, "")
    name = name if competes(r) else f"{row.name}, the teacher itself"
    summary = ", ".join([*_kept(row, board, serving), _size(row, board), *_speed(row, serving), *_on_disk(row)])
    return Recommendation(title, row, name, summary, _interval(board, row), export_command(r, row.anchor))


def _others(chosen: dict[str, Row], taken: Row) -> Iterator[tuple[str, Row]]:
    named = [taken]
    for need, row in chosen.items():
        few = taken.record.bytes_per_vector <= FEW_BYTES
        beaten = need == SMALL and few and _dev(taken) >= _dev(row)
        trained = need == TRAINED and any(map(_is_trained, named))
        if row not in named and not beaten and not trained:
            named.append(row)
            yield need, row


def _absent(chosen: dict[str, Row], taken: Row, rows: Sequence[Row], serving: ServingCosts) -> Iterator[str]:
    if SMALLEST not in chosen:
        if taken.dev.retention is not None:
            yield f"No row keeps {KEPT_PERCENT} % of the teacher's dev score."
    elif FASTEST not in chosen:
        keeping = [row for row in rows if competes(row.record) and _keeps(row)]
        timed = any(serving.rows[row.anchor].times_teacher is not None for row in keeping)
        none = "none embeds faster than the teacher"
        yield f"{FASTEST}: {none if timed else 'speed was not measured here'}."


def _costs_of_pair(row: Row, board: Leaderboard, serving: ServingCosts) -> str:
    """What queries cost, and documents."""
    r, teacher = row.record, teacher_row(row, board.rows)
    asked = "".join(f" ({speed})" for speed in _speed(row, serving))
    speed = teacher and serving.rows[teacher.anchor].sentences_per_s
    once = f" ({short(speed)} sentences per second)" if speed else ""
    documents = " and ".join(r.documents.rsplit(", ", 1))
    return f"{asked}, documents once with {documents}{once} in {r.quantisation}, {_size(row, board)}"


def _kept(row: Row, board: Leaderboard, serving: ServingCosts) -> Iterator[str]:
    cell = row.test
    if cell.retention is not None and competes(row.record):
        half = "" if cell.kept_interval is None else f" ± {cell.kept_interval:.1f}"
        on_dev = row.dev.retention or 0.0
        dev = f" ({on_dev:.1f} % on dev)" if on_dev >= KEPT_PERCENT > cell.retention else ""
        mrr10 = searched_column(board, "mrr@10").cell(row).retention
        more = "" if mrr10 is None else f" and {mrr10:.1f} % of its search (MRR@10)"
        kept = (own := _with_own_documents(row, board)) and own.test.retention
        other = "" if kept is None else f" ({kept:.1f} % with its own documents)"
        yield f"keeps {cell.retention:.1f}{half} %{dev} of the teacher's {board.selection.title}{other}{more}"
        pca = _pca_of(row, board) if _is_trained(row) else None
        if pca is not None and pca.test.retention is not None:
            yield f"PCA in the same code keeps {pca.test.retention:.1f} % of the {board.selection.title}"


def _with_own_documents(row: Row, board: Leaderboard) -> Row | None:
    """The row of a pair's student in the same code where it embeds the documents too; None where that was not scored."""

    def student(r: ScoreRecord) -> tuple[object, ...]:
        return r.run, r.method, r.trial, r.configuration, r.start, r.hyperparameters, r.quantisation

    own = [other for other in board.rows if row.record.documents and not other.record.documents]
    own = [other for other in own if student(other.record) == student(row.record)]
    return max(own, key=lambda other: other.record.dim == row.record.dim, default=None)


def _pca_of(row: Row, board: Leaderboard) -> Row | None:
    """The row of the teacher's PCA of as many dimensions in the same code; None where it was not scored."""
    r, teacher = row.record, teacher_row(row, board.rows)
    wanted = ("pca", r.dim, r.quantisation, "")
    alike = (
        o for o in board.rows if (o.record.method, o.record.dim, o.record.quantisation, o.record.documents) == wanted
    )
    return None if r.documents else next((o for o in alike if teacher_row(o, board.rows) is teacher), None)


def _size(row: Row, board: Leaderboard) -> str:
    size, teacher = row.record.bytes_per_vector, teacher_row(row, board.rows)
    times = teacher.record.bytes_per_vector / size if teacher and competes(row.record) else 1
    smaller = f" ({short(times)} times smaller)" if times != 1 else ""
    return f"{size:,} {'byte' if size == 1 else 'bytes'} a vector{smaller}"


def costs_told(row: Row, board: Leaderboard, serving: ServingCosts) -> str:
    """Its bytes, its speed and the size of its model, as answers for a reader's limits say them."""
    return ", ".join([_size(row, board), *_speed(row, serving), f"{binary(model_bytes(row))} on disk"])


def _speed(row: Row, serving: ServingCosts) -> Iterator[str]:
    speed, ratio = serving.rows[row.anchor].sentences_per_s, serving.rows[row.anchor].times_teacher
    if ratio is not None and competes(row.record):
        same = 1 / FASTER < ratio < FASTER
        yield "as fast as the teacher" if same else f"{short(ratio)} times as fast as the teacher on a CPU"
    elif speed:
        yield f"{short(speed)} sentences per second"


def _on_disk(row: Row) -> Iterator[str]:
    if cost := encoder_cost(row):
        yield f"{binary(cost.bytes_on_disk)} on disk"


def _interval(board: Leaderboard, row: Row) -> str:
    cell = row.test
    if cell.value is None:
        return "no test score"
    score = f"{board.selection.title} {cell.value:.2f}"
    if cell.interval is not None:
        return f"{score} ± {cell.interval:.2f} over {cell.seeds} seeds"
    if cell.low is not None and cell.high is not None:
        one_seed = "; one seed" if row.record.start != AS_IT_CAME else ""
        return f"{score}, {cell.low:.1f} to {cell.high:.1f} over its test items{one_seed}"
    return f"{score}; one seed, no interval"


def latency_of(row: Row) -> float | None:
    """Mean over the seeds that have a measured latency, in ms; None where none has."""
    return mean_cell(seed.record.latency_ms for seed in row.seeds).value


def is_front(records: Iterable[object]) -> bool:
    """Return whether some search of the records had several objectives."""
    return any(isinstance(record, TrialRecord) and len(record.values) > 1 for record in records)


def on_front(rows: Sequence[Row]) -> list[Row]:
    """Those that no other one beats: in the dev score, bytes per vector and, where all were timed, ms a sentence."""
    known = [row for row in rows if row.dev.value is not None]
    timed = all(latency_of(row) is not None for row in known)
    points = [(_dev(r), r.record.bytes_per_vector, (latency_of(r) or 0.0) if timed else 0.0) for r in known]
    return [known[i] for i in pareto_front(points, ["maximize", "minimize", "minimize"])]


def _largest_corpus(board: Leaderboard) -> Sequence[Row]:
    """The rows of the corpus that most candidates, or else most rows, are of: scores of two corpora do not compare."""
    rows = [row for row in board.rows if row.record.start != AS_IT_CAME] or list(board.rows)
    largest = next(iter(board._replace(rows=tuple(rows)).corpora), "")
    return [row for row in board.rows if row.compared_on == largest]


def _is_trained(row: Row) -> bool:
    return row.record.role == "student" and row.record.method not in FITTED


def _keeps(row: Row) -> bool:
    """Whether the row keeps `KEPT_PERCENT` of the teacher's dev score."""
    return (row.dev.retention or 0.0) >= KEPT_PERCENT


def _dev(row: Row) -> float:
    return row.dev.value or 0.0


def _smallest_first(row: Row) -> tuple[object, ...]:
    latency = latency_of(row)
    slow = math.inf if latency is None else latency
    return row.record.bytes_per_vector, -_dev(row), slow, not row.record.model, row.name
