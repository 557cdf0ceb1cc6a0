"""What is said of the rows to take, on every page, in the terminal, on model cards and by `best`: one text for all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from distilbench.records import AS_IT_CAME
from distilbench.reporting import choice
from distilbench.reporting.board import DEV, Leaderboard, Row, competes, percent, teacher_row, told
from distilbench.reporting.choice import FASTER, FASTEST, KEPT_PERCENT, SMALLEST, choose, faster, first_choice, keeps
from distilbench.reporting.comparison import NOT_COMPARED, Comparison
from distilbench.reporting.formats import binary, short
from distilbench.reporting.loading import export_command
from distilbench.reporting.serving import ServingCosts, serving_costs


class Recommendation(NamedTuple):
    """A row for a need: `summary` says what it keeps and costs, `interval` its test score and how sure that is.

    `command` exports it, "" where it cannot be exported. `smaller` and `faster`: times fewer bytes and times as many
    sentences per second as the teacher; None where not known.
    """

    title: str
    row: Row
    name: str
    summary: str
    interval: str
    command: str
    smaller: float | None
    faster: float | None

    def text(self) -> str:
        """Return it as one line."""
        return f"{self.title}{self.name}: {self.summary}. ({self.interval})"


class Answer(NamedTuple):
    """What the page says first: the row to take, those for the other needs, and why a need has none."""

    recommendations: tuple[Recommendation, ...]
    absent: tuple[str, ...]
    chosen: bool = True
    """Whether it was chosen on dev; else encoders as they came are named by their test scores."""

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows that are recommended, the first choice first."""
        return tuple(one.row for one in self.recommendations)

    def sentences(self) -> tuple[str, ...]:
        """Return it as plain text, a line for each need."""
        return *(one.text() for one in self.recommendations), *self.absent


class RunRows(NamedTuple):
    """The rows of one run: its students below their teachers, and all others; without students all rows are `shown`."""

    shown: tuple[Row, ...]
    others: tuple[Row, ...]


def rows_of_run(board: Leaderboard, run: str) -> RunRows:
    """The rows of a run, the teachers of its students among them, whichever run has scored these."""
    rows = [row for row in board.rows if row.record.run == run]
    students = [row for row in rows if row.record.role == "student"]
    if not students:
        return RunRows(tuple(rows), ())
    teachers = {t.anchor: t for row in students if (t := teacher_row(board, row)) is not None}
    shown = (*teachers.values(), *students)
    return RunRows(shown, tuple(row for row in rows if row not in shown))


def answer_of_run(board: Leaderboard, run: str, compared: Comparison = NOT_COMPARED) -> Answer:
    """`answer` among the students of one run alone, or where it has none among all its rows."""
    return answer(board._replace(rows=rows_of_run(board, run).shown), compared, first="Of this run take ")


def answer(
    board: Leaderboard,
    compared: Comparison = NOT_COMPARED,
    serving: ServingCosts | None = None,
    first: str = "Take ",
) -> Answer:
    """Recommend a row for each need (`choice.choose`) among the rows of the largest corpus; `first` begins the text.

    Of encoders that were evaluated as they came nothing is chosen: the highest test score and the fastest are named.
    """
    serving = serving or serving_costs(board)
    board = board._replace(rows=tuple(_largest_corpus(board)))
    if not choice.candidates(board):
        named = _encoders(board, serving)
        return Answer(tuple(recommendation(f"{t}: ", row, board, serving) for t, row in named), (), chosen=False)
    chosen = choose(board, compared, serving)
    taken = first_choice(board, chosen)
    also = [need[0].lower() + need[1:] for need, row in chosen.items() if row is taken and need != choice.TRAINED]
    one = recommendation(first, taken, board, serving)
    lines = [one._replace(summary=f"{one.summary}; also the {' and the '.join(also)}" if also else one.summary)]
    for need, row in _others(board, chosen, taken):
        lines.append(recommendation(f"{need}: ", row, board, serving))
    return Answer(tuple(lines), tuple(_absent(board, chosen, taken, serving)))


def _others(board: Leaderboard, chosen: dict[str, Row], taken: Row) -> Iterator[tuple[str, Row]]:
    """The other needs with rows that have not been named."""
    named = [taken]
    for need, row in chosen.items():
        few = taken.record.bytes_per_vector <= choice.FEW_BYTES
        beaten = need == choice.SMALL and few and _value(board, taken, DEV) >= _value(board, row, DEV)
        trained = need == choice.TRAINED and any(map(choice.is_trained, named))
        if row not in named and not beaten and not trained:
            named.append(row)
            yield need, row


def _absent(board: Leaderboard, chosen: dict[str, Row], taken: Row, serving: ServingCosts) -> Iterator[str]:
    if SMALLEST not in chosen:
        if board.cell(taken, DEV).retention is not None:
            yield f"No row keeps {KEPT_PERCENT} % of the teacher's dev score."
        return
    if FASTEST not in chosen:
        keeping = (row for row in choice.candidates(board) if competes(row.record) and keeps(board, row))
        timed = any(faster(board, row, serving) is not None for row in keeping)
        why = (
            "none embeds faster than the teacher"
            if timed
            else "speed was not measured here (sweep --measure-speed does)"
        )
        yield f"{FASTEST}: {why}."


def _encoders(board: Leaderboard, serving: ServingCosts) -> Iterator[tuple[str, Row]]:
    """Of encoders as they came: highest test score, fastest, fewest bytes."""
    rows = [row for row in board.rows if row.test.value is not None]
    if not rows:
        return

    def test(row: Row) -> float:
        return row.test.value or 0.0

    best = max(rows, key=lambda row: (test(row), -row.record.bytes_per_vector))
    yield f"Highest {board.selection.title}", best
    timed = {row.anchor: speed for row in rows if (speed := serving.rows[row.anchor].sentences_per_s.value)}
    top = max(timed.values(), default=0.0)
    fast = max((row for row in rows if timed.get(row.anchor, 0.0) * 1.02 >= top > 0), key=test, default=None)
    small = min(rows, key=lambda row: (row.record.bytes_per_vector, -test(row)))
    if fast is small and small is not best:
        yield "Fastest, with the fewest bytes", small
        return
    if fast is not None and fast is not best:
        yield "Fastest", fast
    if small is not best:
        yield "Fewest bytes", small


def recommendation(title: str, row: Row, board: Leaderboard, serving: ServingCosts) -> Recommendation:
    """Put a choice into words."""
    name = row.name if row.name.endswith(row.record.quantisation) else told(row)
    name += {"baseline": ", a baseline", "teacher": ", the teacher's own code"}.get(row.record.role, "")
    if not competes(row.record):
        name = f"{row.name}, the teacher itself"
    command = export_command(row.record, row.anchor)
    parts, interval = _parts(row, board, serving), test_interval(board, row)
    return Recommendation(title, row, name, parts, interval, command, smaller(board, row), faster(board, row, serving))


def _parts(row: Row, board: Leaderboard, serving: ServingCosts) -> str:
    """What the row keeps of the teacher's scores, and what it costs."""
    cell, parts = row.test, list[str]()
    if cell.retention is not None and competes(row.record):
        kept = _pm(cell.retention, kept_spread(board, row), 1, " %")
        on_dev = board.cell(row, DEV).retention or 0.0
        dev = f" ({on_dev:.1f} % on dev)" if on_dev >= KEPT_PERCENT > cell.retention else ""
        mrr10 = kept_mrr10(board, row, serving)
        parts.append(f"keeps {kept}{dev} of the teacher's {board.selection.title}")
        parts[0] += "" if mrr10 is None else f" and {mrr10:.1f} % of its MRR@10"
    size, times = row.record.bytes_per_vector, smaller(board, row)
    parts.append(f"{size:,} {'byte' if size == 1 else 'bytes'} a vector")
    parts[-1] += f" ({short(times)} times smaller)" if times and competes(row.record) else ""
    speed, ratio = serving.rows[row.anchor].sentences_per_s.value, faster(board, row, serving)
    if ratio is not None and competes(row.record):
        same = 1 / FASTER < ratio < FASTER
        parts.append("as fast as the teacher" if same else f"{short(ratio)} times the teacher's sentences per second")
    elif speed:
        parts.append(f"{short(speed)} sentences per second")
    if (on_disk := choice.model_bytes(row)) is not None:
        parts.append(f"{binary(on_disk)} on disk")
    return ", ".join(parts)


def test_interval(board: Leaderboard, row: Row) -> str:
    """The test score with its interval, and what that is over."""
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


def kept_mrr10(board: Leaderboard, row: Row, serving: ServingCosts) -> float | None:
    """Percent of the teacher's MRR@10 that the row's own index finds, in the set whose costs the leaderboard shows."""
    places = [i for i, c in enumerate(board.columns) if c.key.startswith("mrr10:") and row.values[i].value is not None]
    if serving.setting is not None:
        name, split = serving.setting[:2]
        places = [i for i in places if board.columns[i].key == f"mrr10:{name}" + (":dev" if split == "dev" else "")]
    return row.values[places[0]].retention if places else None


def kept_spread(board: Leaderboard, row: Row) -> float | None:
    """Half of the 95 % interval of the retention over seeds, in percent of the teacher's score; None of one seed."""
    teacher = teacher_row(board, row)
    return percent(row.test.interval, teacher.test.value) if teacher is not None else None


def smaller(board: Leaderboard, row: Row) -> float | None:
    """Times fewer bytes per vector than the teacher's; None where there is no teacher."""
    teacher = teacher_row(board, row)
    return None if teacher is None else teacher.record.bytes_per_vector / row.record.bytes_per_vector


def _largest_corpus(board: Leaderboard) -> Sequence[Row]:
    """The rows of the corpus that most candidates, or else most rows, are of: scores of two corpora do not compare."""
    rows = [row for row in board.rows if row.record.start != AS_IT_CAME] or list(board.rows)
    largest = next(iter(board._replace(rows=tuple(rows)).corpora), "")
    return [row for row in board.rows if row.record.compared_on == largest]


def _value(board: Leaderboard, row: Row, key: str) -> float:
    return board.cell(row, key).value or 0.0


def _pm(value: float, half: float | None, digits: int, unit: str = "") -> str:
    """ "97.4 ± 0.3 %", the half left out where there is none."""
    spread = f" ± {half:.{digits}f}" if half is not None else ""
    return f"{value:.{digits}f}{spread}{unit}"
