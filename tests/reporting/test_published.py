"""The papers' own numbers: read once, never mixed, and placed in the leaderboard's columns only where they belong."""

from __future__ import annotations

import os
import statistics
import tomllib
from pathlib import Path

import pytest

from distilbench.choices import BUDGETS
from distilbench.commands.configurations import read_configurations
from distilbench.errors import InputError
from distilbench.records import Score
from distilbench.reporting.published import (
    ScoreKey,
    board_rows,
    board_values,
    column_key,
    papers_folder,
    published_rows,
    read_published,
)
from distilbench.reporting.table import SEVEN, leaderboard

ROOT = Path(__file__).parents[2]


def sts(name, variant="all"):
    return ScoreKey("sts", name, "spearman", variant)


def named(name, table, paper):
    return next(r for r in published_rows() if (r.name, r.table, r.paper.split()[0]) == (name, table, paper))


def seven_sets(record, quality=75.0):
    common = {"task": "sts", "split": "test", "metric": "spearman", "n": 1000}
    scores = [Score(**common, set=name, variant="all", value=quality) for name in SEVEN]
    scores += [Score(**common, set=f"STS{y}", variant="wmean", value=quality + 1) for y in range(12, 17)]
    return record.model_copy(update={"scores": scores})


def test_the_rows_of_all_four_papers_are_there():
    papers = [row.paper.split()[0] for row in published_rows()]
    assert {paper: papers.count(paper) for paper in papers} == {"DSE": 16, "HPD": 28, "IBKD": 48, "MCR2": 19}
    teacher = named("SimCSE-RoBERTa_large", "1 and 3", "HPD")
    assert (teacher.dim, teacher.parameters, teacher.trained, teacher.method) == (1024, 355_000_000, False, "")
    assert teacher.scores[sts("average")] == 83.76
    assert teacher.scores[ScoreKey("index", "quora-duplicates", "mrr@10", "ivf")] == 67.0
    student = named("HPD-MiniLM-H128", "1, 2, 3 and 4", "HPD")
    assert (student.dim, student.parameters, student.trained, student.method) == (128, 23_000_000, True, "hpd")
    assert student.tables == ("1", "2", "3", "4")


def test_a_row_that_is_trained_is_read_from_where_compare_reads_it():
    files = sorted((ROOT / "search_spaces" / "papers").glob("*.yaml"))
    trained = {(path.stem, row.name) for path in files for _, row in read_configurations([path], ())}
    merged = [row for row in published_rows() if row.trained]
    assert len(trained) == 24 + 16 + 35 + 20 and len(merged) == 24 + 16 + 35 + 4  # DSE's four rows are of five tasks


MISPRINTED = {"HPD-MiniLM-H256", "MiniLM-CRD", "MiniLM-IBKD_ft", "TinyBERT-HPD_ft", "TinyBERT-IBKD"}
"""Rows whose average is, in the paper itself, not that of its sets: by 0.13, 0.45, 0.14, 0.26 and 0.43."""


def test_every_printed_average_is_that_of_the_printed_sets():
    checked, misprinted = 0, set()
    for row in published_rows():
        if sts("average") in row.scores and all(sts(name) in row.scores for name in SEVEN):
            mean = statistics.fmean(row.scores[sts(name)] for name in SEVEN)
            checked += 1
            if abs(row.scores[sts("average")] - mean) > 0.035:
                misprinted.add(row.name)
    assert checked == 28 + 8 + 18 and misprinted == MISPRINTED


def test_every_printed_average_of_pair_tasks_is_that_of_the_printed_tasks():
    tasks = (("MNLI", "accuracy", "accuracy"), ("QQP", "f1", "accuracy"), ("QNLI", "accuracy", "accuracy"))
    tasks += (("MRPC", "f1", "accuracy"), ("STSB", "pearson", "spearman"))
    rows = [row for row in published_rows() if ScoreKey("pairs", "average", "mean") in row.scores]
    assert len(rows) == 9
    for row in rows:
        means = [
            statistics.fmean(v for k, v in row.scores.items() if k.task == "pairs" and k.set == name)
            for name, *_ in tasks
        ]
        assert row.scores[ScoreKey("pairs", "average", "mean")] == pytest.approx(statistics.fmean(means), abs=0.06), row


def test_rows_of_one_name_in_two_tables_are_two():
    ibkd = [row for row in published_rows() if row.name == "MiniLM-IBKD"]
    assert [row.table for row in ibkd] == ["2", "3"]
    assert ibkd[1].scores[ScoreKey("retrieval", "msmarco", "mrr@10")] == 30.31
    dse = named("DSE (alpha = 0.5)", "1", "DSE")
    assert dse.scores[ScoreKey("pairs", "MNLI", "accuracy", "mismatched")] == 80.4
    assert dse.scores[ScoreKey("pairs", "STSB", "spearman")] == 85.8


def test_weighted_means_never_stand_beside_concatenated_scores(make_score):
    board = leaderboard([seven_sets(make_score("s"))])
    columns = [column.key for column in board.columns]
    mcr2, hpd = named("all-mpnet-base-v2 (768)", "1, 2 and 3", "MCR2"), named("HPD-MiniLM-H128", "1, 2, 3 and 4", "HPD")
    of = {
        (row.paper.split()[0], variant): dict(zip(columns, board_values(row, board, variant), strict=True))
        for row in (mcr2, hpd)
        for variant in ("all", "wmean")
    }
    assert of["MCR2", "wmean"]["sts:STS12"] == 72.2 and of["MCR2", "all"]["sts:STS12"] is None
    assert of["HPD", "all"]["sts:STS12"] == 74.25 and of["HPD", "wmean"]["sts:STS12"] is None
    # one file: both variants are the same
    assert of["MCR2", "all"]["sts:STSB"] == of["MCR2", "wmean"]["sts:STSB"] == 83.6
    assert of["HPD", "all"]["sts_average"] == 81.2 and of["HPD", "wmean"]["sts_average"] is None
    assert of["MCR2", "wmean"]["sts_average"] is None
    assert not any(set(row.scores) >= {sts(n), sts(n, "wmean")} for row in published_rows() for n in SEVEN)


def test_an_average_over_other_sets_has_no_published_one_beside_it(make_score):
    board = leaderboard([make_score("s")])
    assert board.sts_sets == ("STS12", "STS13", "STS14", "STSB")
    hpd = named("HPD-MiniLM-H128", "1, 2, 3 and 4", "HPD")
    values = dict(zip([c.key for c in board.columns], board_values(hpd, board), strict=True))
    assert values["sts_average"] is None and values["sts:STS12"] == 74.25
    # an approximate index is not the exact one of that column, and dev is no test
    assert values["mrr10:quora"] is None and values["dev"] is None


def test_only_rows_with_a_value_in_some_column_are_reference_rows(make_score):
    board = leaderboard([make_score("s")])
    names = {row.name for row in board_rows(board)}
    assert "HPD-MiniLM-H128" in names and "MiniLM-IBKD_ft DR" not in names and "InferSent" not in names
    assert "TinyBERT-L4-CKD" not in names  # only an average over seven sets
    assert board_rows(leaderboard([])) == ()


@pytest.mark.parametrize(
    ("key", "column"),
    [
        (sts("STS12", "wmean"), "sts:STS12"),
        (ScoreKey("pairs", "QQP", "f1"), "pairs:QQP:f1"),
        (ScoreKey("pairs", "MNLI", "accuracy", "matched"), None),
        (ScoreKey("classification", "MR", "accuracy"), "classification:MR:accuracy"),
        (ScoreKey("retrieval", "msmarco", "mrr@10"), "mrr10:msmarco"),
        (ScoreKey("index", "quora-duplicates", "mrr@10", "ivf"), None),
        (ScoreKey("encoder", "", "dim"), None),
    ],
)
def test_column_keys(key, column):
    assert column_key(key) == column


BAD = [
    (
        "paper: X\nrows: [{name: A, published: {STS99: 3}}]",
        r"row 'A': published: 'STS99' is no known score; known: STS12",
    ),
    ("paper: X\nrows: [{name: A, published: {STS12: x}}]", r"rows\.0\.published\.STS12: .*\(got 'x'\)"),
    ("paper: X\nrows: [{published: {}}]", r"rows\.0\.name: Field required"),
    ("rows: []", r"paper: Field required"),
    ("paper: X\nrows: []\nreferences: [{name: A, parameters: 14}]", r"references\.0\.parameters: .*\(got 14\)"),
    ("paper: X\nrows: []\nreferences: [{name: A, parameters: 14B}]", r"row 'A': its size is '14B'; expected millions"),
    ("paper: [", r"cannot be read as YAML"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_bad_file_is_one_clear_message(tmp_path, text, message):
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(InputError, match=r"bad\.yaml: .*" + message):
        read_published(tmp_path / "bad.yaml")


def test_a_missing_file_is_one_clear_message(tmp_path):
    with pytest.raises(InputError, match=r"none\.yaml: cannot be read"):
        read_published(tmp_path / "none.yaml")


def test_the_files_are_part_of_an_installed_package():
    """The wheel has them through a link inside the package to the folder at the top."""
    assert papers_folder() == ROOT / "search_spaces" / "papers"
    link = ROOT / "distilbench" / "search_spaces"
    assert link.is_symlink() and os.readlink(link) == "../search_spaces"
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    [pattern] = data["distilbench"]
    files = list((ROOT / "distilbench").glob(pattern))
    assert {p.parent.name for p in files} == {"front", "papers", "static", "studies", *BUDGETS}
    assert sorted(p.name for p in files if p.parent.name == "papers") == [
        "dse.yaml",
        "hpd.yaml",
        "ibkd.yaml",
        "mcr2.yaml",
    ]
