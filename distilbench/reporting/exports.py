"""The leaderboard as text: files for other programs and for paper, and what a run says in the terminal at its end."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distilbench.codes import CompetitionKey, code_of
from distilbench.records import ON_DEMONSTRATION, ScoreRecord, TrialRecord
from distilbench.reporting.board import Leaderboard, Row, competes, leaderboard, told
from distilbench.reporting.choice import answer, is_front, on_front
from distilbench.reporting.columns import DEV
from distilbench.reporting.comparison import NOT_COMPARED, Comparison, dev_comparison
from distilbench.reporting.frame import BoardColumn, board_columns, board_frame, filled
from distilbench.reporting.lines import encoder_lines
from distilbench.reporting.loading import export_command
from distilbench.reporting.markdown import escaped, one_line
from distilbench.reporting.runs import run_folders
from distilbench.reporting.serving import ServingCosts, below_overlap, serving_costs
from distilbench.storage.files import atomic_path

if TYPE_CHECKING:
    import pandas as pd

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        # Behind the \\ of the line before, both would be its argument.
        "[": "{[}",
        "*": "{*}",
        "±": r"$\pm$",
        "—": "--",
        "\u00a0": "~",
        **{character: "\\" + character for character in "{}%#&_$"},
    }
)


EXPORTS = {
    "All columns": ("leaderboard.csv", "leaderboard.json", "leaderboard.parquet"),
    "Main columns": ("leaderboard.md", "leaderboard.tex"),
}
"""The files of a leaderboard."""


def write_exports(board: Leaderboard, compared: Comparison, folder: Path) -> None:
    """Write every export of `board` into `folder` (created if missing), each under a temporary name and then renamed."""
    folder.mkdir(parents=True, exist_ok=True)
    frame, report = board_frame(board, compared), Report(board, compared)
    texts = {
        "leaderboard.csv": csv_text(frame),
        "leaderboard.json": frame.to_json(orient="records", double_precision=15, force_ascii=False) + "\n",
        "leaderboard.md": report.markdown(),
        "leaderboard.tex": report.latex(),
    }
    for name, text in texts.items():
        with atomic_path(folder / name) as path:
            path.write_text(text, encoding="utf-8", newline="")
    with atomic_path(folder / "leaderboard.parquet") as path:
        frame.to_parquet(path, compression="zstd", index=False)


def csv_text(frame: pd.DataFrame) -> str:
    """The frame as CSV, CRLF-ended; the values of seeds are joined by ";".

    A text that a spreadsheet would take for a formula is preceded by an apostrophe.
    """
    texts = frame.copy()
    for name in frame.select_dtypes(["object", "str"]):
        texts[name] = frame[name].map(_csv_cell)
    return texts.to_csv(index=False, lineterminator="\r\n")


def _csv_cell(value: Any) -> Any:
    if isinstance(value, list):
        texts = ["" if one is None else str(one) for one in value]
        value = ";".join(texts) if any(texts) else ""
    formula = isinstance(value, str) and value.startswith(_FORMULA_STARTS) and not _NUMBER.fullmatch(value)
    return f"'{value}" if formula else value


class Report:
    """The leaderboard as it is read: the columns of a report, a line for each row, and notes.

    First the line of each encoder, as on the page, then the other forms and baselines; above them what the page recommends.
    Columns that no row has a value for are left out.
    """

    def __init__(self, board: Leaderboard, compared: Comparison = NOT_COMPARED) -> None:
        costs = serving_costs(board)
        chosen = answer(board, compared, costs)
        lines = encoder_lines(board, chosen.rows, compared)
        self.lead, self.notes = chosen.sentences(), list(_notes(board, compared, costs))
        self.heads = [line.row for line in lines if line.kind != "other"]
        self.rest = [row for line in lines for row in ([line.row] * (line.kind == "other") + list(line.codes))]
        self.columns = filled((c for c in board_columns(board, compared, costs) if "report" in c.on), board.rows)

    def markdown(self) -> str:
        """A GitHub table; the other forms and baselines stand below a line of their own."""
        ways = ["---", *("---" if column.kind == "text" else "---:" for column in self.columns)]
        lines = ["## Leaderboard", ""]
        lines += [text for paragraph in self.lead for text in (str(escaped(paragraph)), "")]
        lines += [_piped(["Encoder", *(column.title for column in self.columns)]), f"| {' | '.join(ways)} |"]
        lines += [_piped(_cells(row, self.columns)) for row in self.heads]
        if self.rest:
            lines.append(f"| **Other codes and baselines** |{'  |' * len(self.columns)}")
        lines += [_piped(_cells(row, self.columns)) for row in self.rest]
        lines += [text for note in self.notes for text in ("", str(escaped(note)))]
        return "\n".join(lines) + "\n"

    def latex(self) -> str:
        """A `table` in the style of booktabs. Letters beyond ASCII need XeLaTeX or LuaLaTeX."""
        import pandas as pd

        titles = [latex_text(title) for title in ("Encoder", *(column.title for column in self.columns))]
        cells = [[latex_text(cell) for cell in _cells(row, self.columns)] for row in (*self.heads, *self.rest)]
        ways = "l" + "".join("l" if column.kind == "text" else "r" for column in self.columns)
        frame = pd.DataFrame(cells, columns=titles)
        table = frame.to_latex(index=False, escape=False, column_format=ways, caption="Leaderboard")
        notes = [rf"\par\smallskip {latex_text(note)}" for note in (*self.lead, *self.notes)]
        return "\n".join([r"% Requirements \usepackage{booktabs}.", table.rstrip(), *notes]) + "\n"


def terminal_summary(records: Sequence[TrialRecord | ScoreRecord], run: Path) -> list[str]:
    """Return the lines for the records of one leaderboard; `run` is the folder by which commands name all of its runs.

    After the table come the sentences that the page begins with, each with the command that exports its row.
    """
    board = leaderboard(records)
    lines = ["", *student_table(board, front=is_front(records))]
    if any(row.record.demonstration for row in board.rows):
        lines.append(f"Scores are {ON_DEMONSTRATION}.")
    found = answer(board, dev_comparison(board, run_folders([run])))
    lines.append("")
    for one in found.recommendations:
        lines.append(one.text())
        if command := export_command(one.row.record, one.row.anchor, [run]):
            lines.append(f"    {command}")
    return [*lines, *found.absent]


def student_table(board: Leaderboard, *, front: bool = False) -> list[str]:
    """The teacher, then the best student on dev of each method at each number of bytes, rising.

    With `front` only those that no other one beats in quality, bytes and speed.
    """
    import pandas as pd

    students = best_students(board)
    if front:
        pairs, own = ([row for row in students if bool(row.record.documents) is across] for across in (True, False))
        students = on_front(own) + on_front(pairs)
    rows = [row for row in board.rows if not competes(row.record)] + students
    if not rows:
        return ["No student was scored."]
    columns = filled((column for column in board_columns(board) if "terminal" in column.on), rows)
    titles = [column.title.replace("\u00a0", " ") for column in columns]
    cells = [_cells(row, columns) for row in rows]
    frame = pd.DataFrame([own[1:] for own in cells], index=[own[0] for own in cells], columns=titles)
    return frame.to_string(col_space=[len(title) + 1 for title in titles]).splitlines()


def best_students(board: Leaderboard) -> list[Row]:
    """Of each method's students at each number of bytes the best on dev, in the code that they are trained for."""
    best: dict[tuple[CompetitionKey, str, str, str], Row] = {}
    for row in sorted(
        reversed(board.rows), key=lambda r: (r.chosen, -math.inf if r.dev.value is None else r.dev.value)
    ):
        record = row.record
        if record.role == "student" and record.quantisation == code_of(record.hyperparameters):
            named = record.configuration if record.trial is None else ""
            best[record.group, record.method, named, record.documents] = row
    return [best[key] for key in sorted(best)]


def _cells(row: Row, columns: Iterable[BoardColumn]) -> list[str]:
    """The row's name and its values; a number with its interval over seeds, where it has one: "75.21 ± 0.34"."""
    cells = [told(row)]
    for column in columns:
        half = column.cell(row).interval if column.kind == "number" else None
        cells.append(column.text(row, "-") + ("" if half is None else f" ± {column.written(half)}"))
    return cells


def _notes(board: Leaderboard, compared: Comparison, costs: ServingCosts) -> Iterator[str]:
    yield f"{board.columns[0].help}."
    if costs.setting is not None:
        yield f"The cost of retrieval: {costs.searched}."
    if compared.ties:
        yield "A tie group is of the rows of as many bytes per vector that cannot be told from the first of it."
    if any(c.key == DEV for c in board.columns):
        yield "Dev chose the students: it is not a result."
    demonstration = sum(row.record.demonstration for row in board.rows)
    if demonstration:
        rows = "All rows" if demonstration == len(board.rows) else f"{demonstration} of {len(board.rows)} rows"
        yield f"{rows} are scored {ON_DEMONSTRATION}."
    for note, count in Counter(note for row in board.rows for note in row.record.notes).items():
        yield f"Of {count} of {len(board.rows)} rows: {note}."
    if lost := [told(row) for row in board.rows if below_overlap(row)]:
        yield f"Neighbours lost, not recommended: {'; '.join(lost)}."


def latex_text(text: str) -> str:
    """`text` in a LaTeX table: printed as it is, with no command of its own."""
    return one_line(text).translate(_LATEX)


def _piped(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(escaped, cells))} |"
