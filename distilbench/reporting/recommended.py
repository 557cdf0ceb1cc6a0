"""Which row to take for each of three needs: chosen on dev, told with what it keeps on test, its cost, and how sure it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from distilbench.records import AS_IT_CAME
from distilbench.reporting.budget import ServingBudget, best_under, candidates
from distilbench.reporting.comparison import NOT_COMPARED, Comparison
from distilbench.reporting.formats import short
from distilbench.reporting.loading import FITTED, export_command
from distilbench.reporting.retrieval import SetRetrieval, retrieval_sets
from distilbench.reporting.serving import ServingCosts, serving_costs
from distilbench.reporting.table import AVERAGE, DEV, Cell, Leaderboard, Row, competes, percent, teacher_row, told
from distilbench.selection import STS

KEPT_PERCENT = 95
"""Of the teacher's dev score: what "keeps" means."""
FEW_BYTES = 64
FASTER = 1.1
"""Times the teacher's sentences per second, from which a row counts as faster: less is within what timing varies by."""


class Taken(NamedTuple):
    """The row for a need. `kept` is retention of the test score with half its interval over seeds; `command` exports it.

    `smaller` and `faster`: times fewer bytes and times as many sentences per second as the teacher; None where not known.
    """

    title: str
    row: Row
    name: str
    tells: str
    sure: str
    command: str
    smaller: float | None
    faster: float | None


class Answer(NamedTuple):
    """What the page says first: the row to take, those for the other needs, and why a need has none."""

    taken: tuple[Taken, ...]
    absent: tuple[str, ...]
    measure: str
    """What is kept, in words: "STS average"."""
    chosen: bool = True
    """Whether it was chosen on dev; else encoders as they came are named by their test scores."""

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows that are recommended, the first choice first."""
        return tuple(taken.row for taken in self.taken)

    def sentences(self) -> tuple[str, ...]:
        """As plain text, a line for each need."""
        lines = (f"{one.title}{one.name}{one.tells}" + (f" ({one.sure})" if one.sure else "") for one in self.taken)
        return *lines, *self.absent


class _Needs(NamedTuple):
    """The choices, None where a need has none."""

    best: Row | None
    small: Row | None
    smallest: Row | None
    fastest: Row | None
    student: Row | None
    """The best that was trained."""
    timed: bool


class RunRows(NamedTuple):
    """The rows of one run: its students below their teachers, and all others; without students all rows are `shown`."""

    shown: tuple[Row, ...]
    others: tuple[Row, ...]


def rows_of_run(board: Leaderboard, run: str) -> RunRows:
    """The rows of a run, the teachers of its students among them, whichever run has scored these."""
    own = [row for row in board.rows if row.record.run == run]
    students = [row for row in own if row.record.role == "student"]
    if not students:
        return RunRows(tuple(own), ())
    teachers = {t.anchor: t for row in students if (t := teacher_row(board, row)) is not None}
    shown = (*teachers.values(), *students)
    return RunRows(shown, tuple(row for row in own if row not in shown))


def answer_of_run(board: Leaderboard, run: str, compared: Comparison = NOT_COMPARED) -> Answer:
    """`answer` among the students of one run alone, or where it has none among all its rows."""
    return answer(board._replace(rows=rows_of_run(board, run).shown), compared, first="Of this run take ")


def answer(
    board: Leaderboard, compared: Comparison = NOT_COMPARED, serving: ServingCosts | None = None, first: str = "Take "
) -> Answer:
    """Choose on dev among the rows of the largest corpus: students, baselines and the teacher's own codes alike.

    The first choice is the best in 64 bytes, if it keeps 95 % of the teacher's dev score; else the smallest row that does;
    else the smallest that cannot be told from the best but the teacher. Of encoders that were evaluated as they came nothing
    is chosen: the highest test score and the fastest are named. `first` is how the first sentence begins.
    """
    serving = serving or serving_costs(board)
    measure = "STS average" if board.selection == STS else board.selection.title
    rows = _largest_corpus(board)
    board_of_corpus = board._replace(rows=tuple(rows))
    teller = _Teller(board_of_corpus, serving, measure, first)
    if not candidates(board_of_corpus):
        return Answer(tuple(teller.of_encoders(rows)), (), measure, chosen=False)
    needs = _choose(board_of_corpus, compared, serving)
    return Answer(*teller.of_needs(needs), measure)


def _choose(board: Leaderboard, compared: Comparison, serving: ServingCosts) -> _Needs:
    rows = candidates(board)
    keeping = [row for row in rows if keeps(board, row) and not _is_teacher(row)]

    def merit(row: Row) -> tuple[float, float, bool, str]:
        return -(board.cell(row, DEV).value or 0.0), row.record.bytes_per_vector, not row.record.model, row.name

    others = board._replace(rows=tuple(row for row in board.rows if not _is_teacher(row)))
    trained = board._replace(rows=tuple(row for row in board.rows if _is_trained(row)))
    timed = [(speed, row) for row in keeping if (speed := faster(board, row, serving)) is not None]
    quick = [(speed, row) for speed, row in timed if speed >= FASTER]
    top = max((speed for speed, _ in quick), default=0.0)
    return _Needs(
        best=best_under(others, ServingBudget(), compared) or best_under(board, ServingBudget(), compared),
        small=best_under(board, ServingBudget(bytes_per_vector=FEW_BYTES), compared),
        smallest=min(keeping, key=lambda row: (row.record.bytes_per_vector, *merit(row)), default=None),
        student=best_under(trained, ServingBudget(), compared),
        fastest=min((row for speed, row in quick if speed * 1.02 >= top), key=merit, default=None),
        timed=bool(timed),
    )


def keeps(board: Leaderboard, row: Row) -> bool:
    """Whether the row keeps `KEPT_PERCENT` of the teacher's dev score."""
    return (board.cell(row, DEV).retention or 0.0) >= KEPT_PERCENT


def more_on_dev(board: Leaderboard, row: Row) -> str:
    """ " (96.6 % on dev)" where a row keeps `KEPT_PERCENT` on dev, by which it is chosen, and less on test; else ""."""
    retention = board.cell(row, AVERAGE).retention
    less = keeps(board, row) and retention is not None and retention < KEPT_PERCENT
    return f" ({board.cell(row, DEV).retention:.1f} % on dev)" if less else ""


def faster(board: Leaderboard, row: Row, serving: ServingCosts) -> float | None:
    """Times the teacher's sentences per second, both measured on one kind of machine; None where that is not known."""
    teacher = teacher_row(board, row)
    if teacher is None or teacher.record.provenance.device != row.record.provenance.device:
        return None
    own, of = serving.rows[row.anchor].sentences_per_s.value, serving.rows[teacher.anchor].sentences_per_s.value
    return own / of if own is not None and of else None


def main_retrieval(row: Row, teacher: Row | None, serving: ServingCosts) -> SetRetrieval | None:
    """What the row's own index finds in the set whose costs the leaderboard shows, else in its first; None without any."""
    sets = retrieval_sets(row, teacher)
    named = (s for s in sets if serving.setting is not None and (s.set, s.split) == serving.setting[:2])
    return next(named, sets[0] if sets and serving.setting is None else None)


def kept_spread(board: Leaderboard, row: Row) -> float | None:
    """Half of the 95 % interval of the retention over seeds, in percent of the teacher's score; None of one seed."""
    cell, teacher = board.cell(row, AVERAGE), teacher_row(board, row)
    return percent(cell.interval, board.cell(teacher, AVERAGE).value) if teacher is not None else None


class _Teller:
    """Puts a choice into words."""

    def __init__(self, board: Leaderboard, serving: ServingCosts, measure: str, first: str) -> None:
        self.board, self.serving, self.measure, self.first = board, serving, measure, first

    def of_needs(self, needs: _Needs) -> tuple[tuple[Taken, ...], tuple[str, ...]]:
        small_keeps = needs.small is not None and keeps(self.board, needs.small)
        first = needs.small if small_keeps else needs.smallest or needs.best
        assert first is not None, "there are candidates"
        titles = {
            f"Smallest that keeps {KEPT_PERCENT} %: ": needs.smallest,
            f"Best in {FEW_BYTES} bytes: ": needs.small,
            f"Fastest that keeps {KEPT_PERCENT} %: ": needs.fastest,
        }
        also = [title.strip(": ")[0].lower() + title.strip(": ")[1:] for title, row in titles.items() if row is first]
        taken = [self._take(first, also)]
        if not _is_trained(first):
            titles["Best trained student: "] = needs.student
        told_rows = [first]
        for title, row in titles.items():
            if row is None or row in told_rows or (row is needs.small and self._beats(first, row)):
                continue
            if title.startswith("Best trained") and any(map(_is_trained, told_rows)):
                continue
            taken.append(self._other(title, row))
            told_rows.append(row)
        absent = []
        if needs.smallest is None and self.board.cell(first, DEV).retention is not None:
            absent.append(f"No row keeps {KEPT_PERCENT} % of the teacher's dev score.")
        elif needs.timed and needs.fastest is None:
            absent.append(f"Fastest that keeps {KEPT_PERCENT} %: none embeds faster than the teacher.")
        elif not needs.timed:
            absent.append(
                f"Fastest that keeps {KEPT_PERCENT} %: speed was not measured here (sweep --measure-speed does)."
            )
        return tuple(taken), tuple(absent)

    def of_encoders(self, rows: Sequence[Row]) -> Iterable[Taken]:
        """Of encoders as they came: highest test score, and fastest."""
        scored = [row for row in rows if self.board.cell(row, AVERAGE).value is not None]
        if not scored:
            return
        best = max(scored, key=lambda row: (self._test(row).value or 0.0, -row.record.bytes_per_vector))
        yield self._scored(f"Highest {self.measure}: ", best)
        timed = [(speed, row) for row in scored if (speed := self.serving.rows[row.anchor].sentences_per_s.value)]
        top = max((speed for speed, _ in timed), default=0.0)
        quick = [row for speed, row in timed if speed * 1.02 >= top]
        fast = max(quick, key=lambda row: self._test(row).value or 0.0) if quick else None
        small = min(scored, key=lambda row: (row.record.bytes_per_vector, -(self._test(row).value or 0.0)))
        if fast is small and small is not best:
            yield self._scored("Fastest, with the fewest bytes: ", small)
            return
        if fast is not None and fast is not best:
            yield self._scored("Fastest: ", fast)
        if small is not best:
            yield self._scored("Fewest bytes: ", small)

    def _beats(self, one: Row, other: Row) -> bool:
        """Whether `one` is in few bytes too, and better on dev: `other` is smaller, and cannot be told from the best."""
        dev = [self.board.cell(row, DEV).value or 0.0 for row in (one, other)]
        return one.record.bytes_per_vector <= FEW_BYTES and dev[0] >= dev[1]

    def _test(self, row: Row) -> Cell:
        return self.board.cell(row, AVERAGE)

    def _take(self, row: Row, also: Sequence[str]) -> Taken:
        teacher = teacher_row(self.board, row)
        if self._test(row).retention is None:
            tells = f": its {self.measure} is {_pm(self._test(row).value, self._test(row).interval, 2)}"
        else:
            tells = f": it keeps {self._kept(row)} of the teacher's {self.measure}"
            if found := self._found(row, teacher):
                tells += f" and {found:.1f} % of its MRR@10"
        tells += f", in {_bytes(row)} a vector"
        if teacher is not None and (smaller := self._smaller(row)):
            tells += f" instead of {teacher.record.bytes_per_vector:,} ({short(smaller)} times smaller)"
        if speed := self._speed(row):
            tells += f", {speed}"
        tells += "."
        if also:
            tells += f" It is also the {' and the '.join(also)}."
        return self._taken(self.first, row, tells)

    def _other(self, title: str, row: Row) -> Taken:
        smaller = self._smaller(row)
        parts = [_bytes(row) + (f" ({short(smaller)} times smaller)" if smaller else "")]
        if self._test(row).retention is not None:
            parts.append(f"keeps {self._kept(row)}")
        if found := self._found(row, teacher_row(self.board, row)):
            parts.append(f"{found:.1f} % of the MRR@10")
        if speed := self._speed(row):
            parts.append(speed)
        return self._taken(title, row, f": {', '.join(parts)}.")

    def _scored(self, title: str, row: Row) -> Taken:
        parts = [_bytes(row)]
        if self._test(row).retention is not None and not _is_teacher(row):
            parts.append(f"keeps {self._kept(row)} of the teacher's")
        if speed := self.serving.rows[row.anchor].sentences_per_s.value:
            parts.append(f"{short(speed)} sentences per second")
        return self._taken(title, row, f": {', '.join(parts)}.")

    def _taken(self, title: str, row: Row, tells: str) -> Taken:
        named = row.name if row.name.endswith(row.record.quantisation) else told(row)
        named += {"baseline": ", a baseline", "teacher": ", the teacher's own code"}.get(row.record.role, "")
        if _is_teacher(row):
            named = f"{row.name}, the teacher itself"
        smaller, speed = self._smaller(row), faster(self.board, row, self.serving)
        return Taken(title, row, named, tells, self._sure(row), export_command(row.record, row.anchor), smaller, speed)

    def _sure(self, row: Row) -> str:
        """The test score with its interval, and what that is over."""
        cell = self._test(row)
        if cell.value is None:
            return "no test score"
        score = f"{self.measure} {cell.value:.2f}"
        if cell.interval is not None:
            return f"{score} ± {cell.interval:.2f} over {cell.seeds} seeds"
        if cell.low is not None and cell.high is not None:
            one_seed = "; one seed" if row.record.start != AS_IT_CAME else ""
            return f"{score}, {cell.low:.1f} to {cell.high:.1f} over its test items{one_seed}"
        return f"{score}; one seed, no interval"

    def _speed(self, row: Row) -> str:
        """ "at 3.1 times the sentences per second", or "as fast as the teacher"; "" where it is not known."""
        times = faster(self.board, row, self.serving)
        if times is None:
            return ""
        same = 1 / FASTER < times < FASTER
        return "as fast as the teacher" if same else f"at {short(times)} times the teacher's sentences per second"

    def _kept(self, row: Row) -> str:
        return _pm(self._test(row).retention, kept_spread(self.board, row), 1, " %") + more_on_dev(self.board, row)

    def _smaller(self, row: Row) -> float | None:
        teacher = teacher_row(self.board, row)
        return None if teacher is None else teacher.record.bytes_per_vector / row.record.bytes_per_vector

    def _found(self, row: Row, teacher: Row | None) -> float | None:
        found = main_retrieval(row, teacher, self.serving)
        return None if found is None else percent(found.mrr10.value, found.teacher_mrr10.value)


def _is_teacher(row: Row) -> bool:
    return not competes(row.record)


def _is_trained(row: Row) -> bool:
    return row.record.role == "student" and row.record.method not in FITTED


def _largest_corpus(board: Leaderboard) -> list[Row]:
    """The rows of the corpus that most candidates, or else most rows, are of: scores of two corpora do not compare."""
    rows = [row for row in board.rows if row.record.start != AS_IT_CAME] or list(board.rows)
    largest = next(iter(board._replace(rows=tuple(rows)).corpora), "")
    return [row for row in board.rows if row.record.compared_on == largest]


def _bytes(row: Row) -> str:
    size = row.record.bytes_per_vector
    return "1 byte" if size == 1 else f"{size:,} bytes"


def _pm(value: float | None, half: float | None, digits: int, unit: str = "") -> str:
    """ "97.4 ± 0.3 %", the half left out where there is none, or where it rounds to nothing."""
    spread = f" ± {half:.{digits}f}" if half is not None else ""
    return "—" if value is None else f"{value:.{digits}f}{spread}{unit}"
