"""The lines of the leaderboard: one for each encoder, with its codes below it, in the order that dev gives them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from distilbench.codes import FAISS_PEER, code_of
from distilbench.reporting.board import Leaderboard, Row
from distilbench.reporting.choice import best_of, candidates
from distilbench.reporting.comparison import NOT_COMPARED, Comparison


class EncoderLine(NamedTuple):
    """One encoder: method, student and dimension. `row` stands for it, `codes` are its other forms, the largest first.

    The teacher's codes are one line, and so are PCA of all dimensions, and FAISS's codes. `kind` says what the line is for:
    a "reference" stays on top, an "other" baseline is folded away until asked for.
    """

    row: Row
    codes: tuple[Row, ...]
    kind: str


def encoder_lines(
    board: Leaderboard, taken: Iterable[Row] = (), compared: Comparison = NOT_COMPARED
) -> tuple[EncoderLine, ...]:
    """Fold the rows of `board` into lines; `taken` are the rows that the page recommends, whose lines are always shown.

    For an encoder stands its recommended row, else the smallest form that dev cannot tell from its best one; for the teacher
    its float32 vectors. A student that is trained for a code is represented by that code. Lines are in the order of these
    rows' dev scores (of test scores, where nothing was chosen on dev), those of the largest corpus first, since scores of two
    corpora do not compare.
    """
    recommended = [row.anchor for row in taken]
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in board.rows:
        groups.setdefault(_encoder(row), []).append(row)
    lines, corpora = [], board.corpora
    for rows in groups.values():
        head = _head(rows, recommended, compared)
        codes = sorted((row for row in rows if row is not head), key=lambda row: -row.record.bytes_per_vector)
        lines.append(EncoderLine(head, tuple(codes), _kind(rows, recommended)))
    if not any(line.kind == "encoder" for line in lines):
        lines = [line._replace(kind="encoder") if line.kind == "other" else line for line in lines]
    return tuple(sorted(lines, key=lambda line: _order(line, corpora)))


def _encoder(row: Row) -> tuple[str, ...]:
    """What the forms of one encoder have in common."""
    r = row.record
    if r.role == "teacher":
        return "teacher", r.teacher, r.origin, row.compared_on
    if r.role == "baseline" and r.method in ("pca", FAISS_PEER):
        return r.method, r.teacher, r.origin, row.compared_on
    made = json.dumps(r.hyperparameters, sort_keys=True, default=str)
    named = r.run, r.role, r.method, r.label, r.teacher, r.start, row.compared_on, r.documents
    return *named, str(r.dim), str(r.trial), made


def _kind(rows: Sequence[Row], recommended: Sequence[str]) -> str:
    r = rows[0].record
    if r.role == "teacher" or (r.role, r.method) == ("baseline", "pca"):
        return "reference"
    return "encoder" if r.role != "baseline" or any(row.anchor in recommended for row in rows) else "other"


def _head(rows: Sequence[Row], recommended: Sequence[str], compared: Comparison) -> Row:
    by_code = {row.record.quantisation: row for row in reversed(rows)}
    plain, own = by_code.get("float32", rows[0]), code_of(rows[0].record.hyperparameters)
    if rows[0].record.role == "teacher":
        return plain
    for anchor in recommended:
        if found := next((row for row in rows if row.anchor == anchor), None):
            return found
    if own != "float32" and own in by_code:
        return by_code[own]
    return best_of(candidates(rows), compared) or plain


def _order(line: EncoderLine, corpora: Sequence[str]) -> tuple[object, ...]:
    r, dev, test = line.row.record, line.row.dev.value, line.row.test.value
    kinds = ("reference", "encoder", "other")
    merit = (dev is None, -(dev or 0.0), test is None, -(test or 0.0), line.row.name)
    return kinds.index(line.kind), r.role != "teacher", corpora.index(line.row.compared_on), *merit
