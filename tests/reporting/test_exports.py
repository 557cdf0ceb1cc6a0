"""Every export of a leaderboard: the same values in all, nothing hostile gets through; and a run's last table."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pandas as pd
import pytest
from markdown_it import MarkdownIt

from distilbench.records import Score, ScoreRecord
from distilbench.reporting.board import leaderboard
from distilbench.reporting.comparison import NOT_COMPARED, Comparison, Difference, Tie
from distilbench.reporting.exports import (
    EXPORTS,
    Report,
    best_students,
    csv_text,
    student_table,
    terminal_summary,
    write_exports,
)
from distilbench.reporting.frame import board_frame
from distilbench.reporting.markdown import escaped, one_line
from distilbench.reporting.page import write_report

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
def test_a_report_shows_a_name_and_nothing_else(make_score, text):
    report = Report(
        leaderboard([make_score(text, trial=None), make_score("b", dim=32, quantisation="int8", trial=None)])
    )
    rows, kinds = markdown_cells(report.markdown())
    assert one_line(text) in [row[0] for row in rows] and {len(row) for row in rows[:2]} == {len(rows[0])}
    assert not kinds & {"html_inline", "html_block", "link_open", "image", "code_inline", "s_open"}
    shown = str(escaped(text))
    assert "://" not in shown.replace("\\://", "") and not re.search(r"(?<!\w)@", shown)
    assert not re.search(r"(?<![&\\])#\d", shown)
    body = [line for line in report.latex().splitlines() if line.endswith(r" \\")]
    assert len(body) == 3 and {len(re.findall(r"(?<!\\)&", line)) for line in body} == {len(report.columns)}
    assert not any(line.startswith(("[", "*")) for line in body)


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


@pytest.mark.parametrize("text", HOSTILE)
def test_csv_has_no_formula_and_keeps_the_text(text):
    frame = pd.DataFrame({"a": [text], "b": ["-5.25"], "c": [-5.25], "d": [[text, None]]})
    rows = list(csv.reader(io.StringIO(csv_text(frame), newline="")))
    assert rows[1][0].removeprefix("'") == text and rows[1][1:3] == ["-5.25", "-5.25"]
    assert rows[1][3].removeprefix("'") == text + ";"
    assert not any(cell.startswith(("=", "+", "-2", "@", "\t", "\r", "\n")) for cell in rows[1])


# The leaderboard's files


def written(records, folder):
    write_exports(leaderboard(records), NOT_COMPARED, folder)


def lines_of(folder):
    return list(csv.DictReader(io.StringIO((folder / "leaderboard.csv").read_text(), newline="")))


def test_csv_json_and_parquet_have_the_same_values(make_seeded, tmp_path):
    board = leaderboard(make_seeded())
    row = board.rows[2]
    difference = Difference(value=-1.5, low=-2.0, high=-1.0)
    tie = Tie(group="b", leader=row.anchor, leader_name="first", others=1, difference=difference)
    write_exports(board, Comparison(seeds=[row.anchor], ties={row.anchor: tie}), tmp_path)
    frame = pd.read_parquet(tmp_path / "leaderboard.parquet")
    objects, lines = json.loads((tmp_path / "leaderboard.json").read_text()), lines_of(tmp_path)
    assert list(frame.columns) == list(lines[0]) == list(objects[0]) and len(lines) == len(objects) == len(frame) == 9
    for line, values, typed in zip(lines, objects, frame.to_dict("records"), strict=True):
        for name, value in values.items():
            if isinstance(value, list):
                assert list(typed[name]) == value and line[name] in (";".join(map(str, value)), "")
            elif value is None:
                assert pd.isna(typed[name]) and line[name] == ""
            elif isinstance(value, float):
                assert typed[name] == pytest.approx(value, rel=1e-12) == float(line[name])
            else:
                assert typed[name] == value and line[name] == str(value)
    assert {line["tie_group"] for line in lines} == {"", "b"} and lines[2]["tie_low"] == "-2.0"


def test_a_row_has_its_names_seeds_and_unrounded_scores(make_seeded, tmp_path):
    written(make_seeded(), tmp_path)
    rows = {line["name"]: line for line in lines_of(tmp_path)}
    student, teacher = rows["MCR2-32-float32"], rows["teacher d=384"]
    assert (student["label"], student["code"], student["bytes"]) == ("MCR2 d=32", "float32", "128")
    assert (student["seed"], student["seeds"]) == ("0;1;2", "3")
    assert student["record_id"] == "MCR2-32-float32-seed0;MCR2-32-float32-seed1;MCR2-32-float32-seed2"
    assert student["model"].split(";")[2] == "students/MCR2-32-float32-seed2"
    assert float(student["test"]) == pytest.approx(68.5) and float(student["pairs_QQP_f1"]) == pytest.approx(76.0)
    assert float(student["test_interval"]) == pytest.approx(4.302653 / 3**0.5, rel=1e-6)
    assert float(student["kept_percent"]) == pytest.approx(100 * 68.5 / 79.5)
    assert float(student["mrr10"]) == float(student["mrr10_quora"]) == pytest.approx(50)
    assert json.loads(student["hyperparameters"])["lr"] == 1e-4
    assert (teacher["seed"], teacher["test_interval"], teacher["pairs_QQP_f1"], teacher["trial"]) == ("0", "", "", "")


def test_a_metric_is_on_every_view(make_score, tmp_path):
    """MRR@10 is of two sets: the mean of both, where the row has both."""
    second = [Score(task="retrieval", set="mine", split="test", metric="mrr@10", variant="all", value=70.0, n=9)]
    teacher = make_score("t", 80.0, role="teacher", dim=384, trial=None)
    records = [r.model_copy(update={"scores": [*r.scores, *second]}) for r in (teacher, make_score("both", 70.0))]
    board = leaderboard([*records, make_score("one", 60.0)])
    values = board_frame(board).set_index("name")["mrr10"]
    assert (values["t"], values["both"]) == (65.0, 60.0) and pd.isna(values["one"])
    write_report([*records, make_score("one", 60.0)], tmp_path, title="t")
    assert "| 60.00 |" in (tmp_path / "leaderboard.md").read_text()
    assert any(" 60.00 " in line for line in student_table(board))


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
    written([hostile, teacher], tmp_path)
    files = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()]
    assert all(re.fullmatch(r"leaderboard\.(csv|json|parquet|md|tex)", name) for name in files)
    assert sorted(files) == sorted(name for names in EXPORTS.values() for name in names)
    for name in files:
        if name.endswith(".md"):
            _, kinds = markdown_cells((tmp_path / name).read_text())
            assert not kinds & {"html_inline", "html_block", "link_open", "image"}
        if name.endswith(".tex"):
            assert r"\input" not in (tmp_path / name).read_text() and r"\write" not in (tmp_path / name).read_text()


def test_writing_again_gives_the_same_bytes_and_leaves_no_temporary_file(make_seeded, tmp_path):
    def contents():
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    written(make_seeded(), tmp_path)
    first = contents()
    written(make_seeded(), tmp_path)
    assert contents() == first and not [path for path in first if path.name.startswith(".")]


def seeds(make_score, label: str, qualities: list[float], **changes: object) -> list[ScoreRecord]:
    records = [make_score(label, q, seed=s, record_id=f"{label}-{s}", **changes) for s, q in enumerate(qualities)]
    return [record.model_copy(update={"demonstration": False}) for record in records]


def board_records(make_score) -> list[ScoreRecord]:
    teacher = seeds(make_score, "teacher", [80.0], role="teacher", dim=384, model="", method="teacher", trial=None)
    return [
        *teacher,
        *seeds(make_score, "MCR2 d=64", [70.0, 72.0], dim=64, trial=3),
        *seeds(make_score, "MCR2 d=64, worse", [60.0], dim=64, trial=4),
        *seeds(make_score, "MCR2 d=32", [65.0], dim=32, trial=5),
        *seeds(make_score, "MCR2 d=32 codes", [90.0], dim=32, trial=5, quantisation="int8", bytes_per_vector=32),
        *seeds(make_score, "PCA d=64", [60.0], dim=64, role="baseline", method="pca", model="", trial=None),
    ]


def test_a_line_for_each_dimension_below_the_teacher(make_score) -> None:
    head, *lines = student_table(leaderboard(board_records(make_score)))
    cells = [re.split(r" {2,}", line) for line in lines]
    assert re.split(r" {2,}", head.strip()) == ["Bytes", "STS average", "Kept, %", "MRR@10", "ms / 1,000", "Dev"]
    assert [row[0] for row in cells] == ["teacher", "MCR2 d=32", "MCR2 d=64"]
    # Offsets of the synthetic sets: the dev score is quality + 4, the mean of the test sets 1.5 below the quality.
    teacher, narrow, wide = (row[1:] for row in cells)
    assert (teacher[1], teacher[2], teacher[-1]) == ("78.50", "100.0", "84.00")
    assert narrow[:4] == ["128", "63.50", "80.9", "45.00"] and narrow[-1] == "69.00"
    assert wide[1] == "69.50 ± 12.71" and wide[2].startswith("88.5 ± ") and wide[-1].startswith("75.00 ± ")
    assert all(len(line) <= 120 for line in lines)


def test_trained_for_a_code_it_is_the_code_that_stands_for_the_student(make_score) -> None:
    params = {"output_dim": 64, "bits": 4}
    own = seeds(make_score, "own", [70.0], dim=64, hyperparameters=params, quantisation="int4", bytes_per_vector=32)
    whole = seeds(make_score, "whole", [80.0], dim=64, hyperparameters=params)
    other = {"output_dim": 32, "bits": 8}
    rival = seeds(make_score, "rival", [69.0], hyperparameters=other, dim=32, quantisation="int8", bytes_per_vector=32)
    assert [row.name for row in best_students(leaderboard([*own, *whole, *rival]))] == ["own"]


def test_what_to_take_says_what_it_keeps_and_how_to_export_it(make_score) -> None:
    records = board_records(make_score)
    board, lines = leaderboard(records), terminal_summary(records, Path("runs/my run"))
    best = next(row for row in board.rows if row.name == "MCR2 d=32 codes")
    assert lines[0] == "" and not any("demonstration" in line for line in lines)
    sentence = "Take MCR2 d=32 codes, int8: keeps 112.7 % of the teacher's STS average"
    assert any(line.startswith(sentence) for line in lines)
    command = f"distilbench export 'runs/my run' --student {best.anchor} --to DIR"
    assert f"    {command}" in lines
    generated = [r.model_copy(update={"demonstration": True}) for r in records]
    assert "Scores are on the demonstration corpus, no benchmark." in terminal_summary(generated, Path("r"))
