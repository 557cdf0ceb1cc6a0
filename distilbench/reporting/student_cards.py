"""A model card in the folder of every student that runs keep, once the scores of all of them are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from distilbench.codes import code_of
from distilbench.records import ScoreRecord, TrialRecord
from distilbench.reporting.best import model_folder, record_owners
from distilbench.reporting.board import Leaderboard, Row, SeedScores, leaderboard
from distilbench.reporting.loading import is_nested, load_code, plain_codes
from distilbench.reporting.model_card import CARD, Code, compute_card, hub_base, render_card
from distilbench.reporting.trainings import Trainings
from distilbench.storage.files import atomic_path


class _Kept(NamedTuple):
    """A student's folder, its run's folder, and the rows that are scored of it."""

    folder: Path
    run: Path
    rows: list[tuple[Row, SeedScores]]


def write_student_cards(records: Sequence[ScoreRecord | TrialRecord], runs: Sequence[Path]) -> list[Path]:
    """Write README.md into every student's folder that is there; those that were written.

    One that says the same already is left as it is. What a folder's fingerprint is of, a README has no part in.
    """
    board = leaderboard(records)
    trainings = Trainings(records)
    written = []
    for student in _students(board, runs):
        # The whole vectors first, in float32 or in the code that they are trained for; the other rows are forms of them.
        (row, seed), *others = sorted(
            student.rows,
            key=lambda form: (
                form[0].record.quantisation != code_of(form[0].record.hyperparameters),
                -form[0].record.dim,
            ),
        )
        width_folder = f"d{seed.record.dim}"  # a student of several widths has a quantiser for each
        quantiser = width_folder if (student.folder / width_folder).is_dir() else "."
        card = compute_card(
            board,
            row,
            seed,
            trainings.of(seed.record),
            Code(
                load_code(seed.record, ".", quantiser, cut=is_nested(seed.record)),
                plain_codes(seed.record) if quantiser == "." else "",
                base_model=hub_base(student.run, seed.record),
            ),
            forms=others,
        )
        text, path = render_card(card), student.folder / CARD
        if not path.is_file() or path.read_bytes() != text.encode():
            with atomic_path(path) as temporary:
                temporary.write_bytes(text.encode())
            written.append(path)
    return written


def _students(board: Leaderboard, runs: Sequence[Path]) -> Iterator[_Kept]:
    owners = record_owners(runs)
    students: dict[Path, _Kept] = {}
    for row in (row for row in board.rows if row.record.role == "student"):
        for seed in row.seeds:
            folder = model_folder(seed.record, owners)
            if folder is not None and folder.is_dir():
                run = owners[seed.record.run, seed.record.record_id]
                students.setdefault(folder, _Kept(folder, run, [])).rows.append((row, seed))
    yield from students.values()
