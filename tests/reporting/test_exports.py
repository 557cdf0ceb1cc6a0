"""Every export of a leaderboard: the same values in all, nothing hostile gets through, old files go, foreign ones stay."""

from __future__ import annotations

import csv
import io
import json
import re

import pyarrow.parquet as pq
import pytest
from markdown_it import MarkdownIt

from distilbench.reporting.comparison import NOT_COMPARED, Comparison, Difference, Tie
from distilbench.reporting.exports import flat, grid
from distilbench.reporting.exports.grid import Grid, Head, Line, Section
from distilbench.reporting.exports.main_columns import leaderboard_grid
from distilbench.reporting.exports.write import write_exports
from distilbench.reporting.table import leaderboard

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>&lt;b&gt;",
    r"\input{/etc/passwd}",
    r"\immediate\write18{id}",
    "50% of _all_ $x^2$ #1 & ~home {}",
    "a | b || c \\| d \\\\| e",
    "line\nbreak\r\n\nparagraph\u2028end\x00\x1b[31m",
    "[click](javascript:alert(1)) ![x](http://x.example/y) https://x.example www.x.example @someone #12",
    "*bold* __b__ `code` ~~s~~ <!-- -->",
    '=HYPERLINK("http://x.example")',
    "@SUM(1)",
    "+1+1",
    "-2+3",
    "[1ex] * [b]",
    "ÅßΩ 漢字 “quoted”",
    "../../etc/passwd",
]


def one_line(text):
    return " ".join(re.sub(r"[\x00-\x1f\u2028]", " ", text).split())


def small(cells, **changes):
    lines = (Line(tuple(cells)),)
    fields = {"title": cells[0], "head": tuple(Head(cell) for cell in cells), "notes": (cells[0],)} | changes
    return Grid(sections=(Section(cells[0], lines),), **fields)


def markdown_cells(text):
    """Texts of each row's cells, and the kinds of every token, as a reader of GitHub tables sees them."""
    kinds, rows = set(), []
    for token in MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text):
        kinds |= {token.type, *(child.type for child in token.children or ())}
        if token.type == "tr_open":
            rows.append([])
        if token.type == "inline" and rows:
            rows[-1].append("".join(child.content for child in token.children))
    return rows, kinds


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_shows_the_text_and_nothing_else(text):
    rows, kinds = markdown_cells(grid.to_markdown(small([text, "1.0"])))
    expected = one_line(text)
    # header, section, measured line; notes follow the last line's cells in the same list
    assert rows[0] == [expected, "1.0"]
    assert rows[1][0] == expected and rows[2][:2] == [expected, "1.0"] and expected in rows[2][2:]
    assert not kinds & {"html_inline", "html_block", "link_open", "image", "code_inline", "s_open"}


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_starts_no_link_and_names_no_user(text):
    shown = grid.markdown_text(text)
    assert "://" not in shown and "www." not in shown and "@" not in shown
    assert not re.search(r"(?<![&\\])#\d", shown)


PLAIN_OF_LATEX = {
    r"\textbackslash{}": "\\",
    r"\textasciitilde{}": "~",
    r"\textasciicircum{}": "^",
    r"\textless{}": "<",
    r"\textgreater{}": ">",
    r"\textbar{}": "|",
    "{[}": "[",
    "{*}": "*",
    r"$\pm$": "±",
    r"$\times$": "×",
    r"\textsuperscript{2}": "²",
    r"$\alpha$": "α",
    r"$\psi$": "ψ",
    **{"\\" + c: c for c in "%#&_${}"},
}
LATEX_PARTS = re.compile("|".join(re.escape(part) for part in PLAIN_OF_LATEX) + r"|[^\\{}$&#%_~^\[*]")
"""What harmless LaTeX consists of: known commands for single characters, and characters that are none."""


@pytest.mark.parametrize("text", [*HOSTILE, "75.2 ± 0.3 α ψ × ²"])
def test_latex_consists_of_harmless_parts_that_give_the_text(text):
    shown = grid.latex_text(text)
    parts = LATEX_PARTS.findall(shown)
    assert "".join(parts) == shown
    assert "".join(PLAIN_OF_LATEX.get(part, part) for part in parts) == one_line(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_latex_has_the_lines_and_cells_that_were_given(text):
    shown = grid.to_latex(small([text, "1.0"]))
    body = [line for line in shown.splitlines() if line.endswith(r" \\")]
    assert len(body) == 3 and all(len(re.findall(r"(?<!\\)&", line)) == 1 for line in body if "multicolumn" not in line)
    assert not any(line.startswith(("[", "*")) for line in body)
    assert shown.count(r"\begin{") == shown.count(r"\end{") == 2
    unescaped = re.sub(r"\\[{}]", "", shown)
    assert unescaped.count("{") == unescaped.count("}")


@pytest.mark.parametrize("text", HOSTILE)
def test_csv_has_no_formula_and_keeps_the_text(text):
    rows = list(csv.reader(io.StringIO(grid.csv_of([[text, "-5.25", -5.25]]), newline="")))
    assert rows[0][0].removeprefix("'") == text and rows[0][1:] == ["-5.25", "-5.25"]
    assert not rows[0][0].startswith(("=", "+", "-", "@", "\t", "\r", "\n"))


# The leaderboard's files


def written(records, folder, **options):
    board = leaderboard(records)
    return board, write_exports(board, NOT_COMPARED, folder, **options)


def test_csv_json_and_parquet_have_the_same_values(make_seeded, tmp_path):
    board = leaderboard(make_seeded())
    row = board.rows[2]
    behind = Difference(value=-1.5, low=-2.0, high=-1.0, ahead=0.1)
    tie = Tie(group="b", leader=row.anchor, leader_name="first", others=1, difference=behind)
    ties = Comparison(seeds=[row.anchor], ties={row.anchor: tie})
    write_exports(board, ties, tmp_path)
    table = pq.read_table(tmp_path / "leaderboard.parquet")
    columns = flat.flat_columns(board, ties)
    lines = list(csv.DictReader(io.StringIO((tmp_path / "leaderboard.csv").read_text(), newline="")))
    objects = json.loads((tmp_path / "leaderboard.json").read_text())
    assert table.column_names == list(lines[0]) == [column.name for column in columns]
    assert len(objects) == len(lines) == table.num_rows == len(board.rows) == 9
    for line, found, typed in zip(lines, objects, table.to_pylist(), strict=True):
        for column in columns:
            value = typed[column.name]
            if column.per_seed:
                assert [seed[column.path[-1]] for seed in found["seeds"]] == value
                assert line[column.name] in (";".join("" if v is None else str(v) for v in value), "")
                continue
            place = found
            for key in column.path:
                place = place[key]
            assert place == value
            assert line[column.name] == ("" if value is None else str(value))
    assert {f["tie"]["group"] for f in objects} == {None, "b"} and lines[2]["tie_low"] == "-2.0"


def test_json_names_every_record_and_its_numbers_are_not_rounded(make_seeded, tmp_path):
    written(make_seeded(), tmp_path)
    objects = {found["name"]: found for found in json.loads((tmp_path / "leaderboard.json").read_text())}
    student = objects["MCR2-32-float32"]
    assert [seed["record_id"] for seed in student["seeds"]] == [f"MCR2-32-float32-seed{n}" for n in range(3)]
    assert student["seed_count"] == 3 and student["hyperparameters"]["lr"] == 1e-4
    average = student["scores"]["sts_average"]["all"]
    assert average["value"] == pytest.approx(68.5) and average["interval95"] == pytest.approx(
        4.302653 / 3**0.5, rel=1e-6
    )
    assert student["corpus"] == {"name": "synthetic corpus", "fingerprint": "f" * 64, "demonstration": False}


def test_parquet_is_typed_even_where_no_row_has_a_value(make_score, tmp_path):
    written([make_score("one", trial=None)], tmp_path)
    schema = pq.read_schema(tmp_path / "leaderboard.parquet")
    types = {name: str(schema.field(name).type) for name in schema.names}
    assert types["dim"] == "int64" and types["sts_average:all"] == "double" and types["pareto"] == "bool"
    assert types["tie_difference"] == "double" and types["record_id"].startswith("list<") and "int64" in types["trial"]
    written([], tmp_path)
    assert pq.read_table(tmp_path / "leaderboard.parquet").num_rows == 0


def test_a_hyperparameter_that_is_not_finite_is_a_text(make_score, tmp_path):
    written([make_score("one", hyperparameters={"tau": float("inf"), "list": [float("nan"), {"a": 1.5}]})], tmp_path)

    def refused(constant):
        raise AssertionError(constant)

    [found] = json.loads((tmp_path / "leaderboard.json").read_text(), parse_constant=refused)
    assert found["hyperparameters"] == {"tau": "inf", "list": ["nan", {"a": 1.5}]}


def test_main_columns_leave_out_what_no_row_has(make_score):
    found = leaderboard_grid(leaderboard([make_score("a", skip=("STS13",)), make_score("b", skip=("STS13",))]))
    titles = [head.title for head in found.head]
    assert "Retention %" not in titles and "Tie group" not in titles and "STS12" in titles and "STS13" not in titles
    assert leaderboard_grid(leaderboard([])).sections[0].lines == ()


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_records_are_exported_under_derived_names(make_score, tmp_path, text):
    score = make_score(text, 70.0)
    hostile = score.model_copy(
        update={
            **dict.fromkeys(
                ("run", "label", "configuration", "method", "teacher", "start", "model", "record_id"), text
            ),
            "scores": [s.model_copy(update={"set": text}) if s.set == "STS13" else s for s in score.scores],
            "hyperparameters": {text: text, "output_dim": text},
        }
    )
    teacher = make_score(text, 80.0, role="teacher", teacher=text, record_id="t")
    _, exports = written([hostile, teacher], tmp_path)
    files = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()]
    assert all(re.fullmatch(r"leaderboard\.(csv|json|parquet|md|tex)", name) for name in files)
    assert sorted(files) == sorted(export.path for export in exports)
    for name in files:
        if name.endswith(".md"):
            _, kinds = markdown_cells((tmp_path / name).read_text())
            assert not kinds & {"html_inline", "html_block", "link_open", "image"}
        if name.endswith(".tex"):
            assert r"\input" not in (tmp_path / name).read_text() and r"\write" not in (tmp_path / name).read_text()


def test_each_export_is_there_and_named(make_study, tmp_path):
    _, exports = written(make_study(), tmp_path)
    assert all((tmp_path / export.path).exists() and export.title for export in exports)
    assert len({export.path for export in exports}) == len(exports)
    assert {"csv", "json", "parquet", "markdown", "latex"} <= {export.kind for export in exports}


def test_writing_again_gives_the_same_bytes_and_leaves_no_temporary_file(make_seeded, tmp_path):
    def contents():
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    written(make_seeded(), tmp_path)
    first = contents()
    written(make_seeded(), tmp_path)
    assert contents() == first and not [path for path in first if path.name.startswith(".")]


def test_a_failure_leaves_the_old_files(make_score, tmp_path, monkeypatch):
    written([make_score("old")], tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr("distilbench.reporting.exports.write.leaderboard_csv", broken)
    with pytest.raises(OSError, match="disk full"):
        written([make_score("new")], tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
