"""Leaderboards of runs whose students were selected by something else than STS: columns, order, choice, ties."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from distilbench.cli import app
from distilbench.evaluation.predictions import Predictions, predictions_path, value_items
from distilbench.records import Score, ScoreRecord, append_records
from distilbench.reporting.board import leaderboard, notices
from distilbench.reporting.choice import ServingBudget, best_under
from distilbench.reporting.comparison import compare_rows
from distilbench.reporting.exports import Report
from distilbench.reporting.frame import board_columns
from distilbench.reporting.page import write_report
from distilbench.selection import TITLES

RNG = np.random.default_rng(0)
HITS = RNG.uniform(size=400)
"""The nDCG@10 of 400 queries."""


def score(task: str, name: str, split: str, metric: str, value: float, **more: Any) -> Score:
    return Score(task=task, set=name, split=split, metric=metric, variant="all", value=value, n=400, **more)


def searched(make_score: Any, label: str, dev: float, test: float | None, **changes: Any) -> ScoreRecord:
    """A row of a run that was selected by nDCG@10; its STS scores say the opposite."""
    record = make_score(label, 90.0 - dev / 2, select="retrieval", indexes=[], **changes)
    scores = [s for s in record.scores if s.task == "sts"]
    scores.append(score("selection", "retrieval", "dev", "ndcg@10", dev, low=dev - 3, high=dev + 3))
    scores.append(score("retrieval", "own", "dev", "ndcg@10", dev - 7))
    if test is not None:
        scores += [score("retrieval", name, "test", "ndcg@10", test + d) for name, d in (("own", -1), ("other", 1))]
    return record.model_copy(update={"scores": scores})


def board_of(make_score: Any) -> Any:
    return leaderboard(
        [
            searched(make_score, "teacher", 60.0, 58.0, dim=384, role="teacher", method="teacher", trial=None),
            searched(make_score, "low", 40.0, 39.0, dim=32),
            searched(make_score, "high", 50.0, 48.0, dim=64, trial=4),
        ]
    )


def test_dev_and_the_test_score_are_of_what_was_selected_by(make_score: Any) -> None:
    board = board_of(make_score)
    assert [c.title for c in board.columns[:3]] == ["nDCG@10", "Dev", "Average"]
    assert [c.key for c in board.columns[:3]] == ["test", "dev", "sts_average"]
    assert [(r.name, r.test.value, r.dev.value) for r in board.rows] == [
        ("teacher", pytest.approx(58.0), 60.0),
        ("high", pytest.approx(48.0), 50.0),
        ("low", pytest.approx(39.0), 40.0),
    ]
    assert board.rows[1].test.retention == pytest.approx(100 * 48 / 58)
    sts = [r.cells["sts_average"].value for r in board.rows[1:]]
    assert sts[0] < sts[1] and [r.cells["sts:STSB"].value is not None for r in board.rows] == [True] * 3
    assert any("selected by nDCG@10 on dev" in line for line in notices(board))


@pytest.mark.parametrize(("metric", "select"), [("ndcg@10", "retrieval"), ("mrr@10", "mrr@10")])
def test_the_mean_of_sts_leads_beside_a_search_and_no_metric_has_two_columns(
    make_score: Any, metric: str, select: str
) -> None:
    def selected(found: Score) -> Score:
        if found.metric != "ndcg@10":
            return found
        return found.model_copy(update={"metric": metric, "set": select if found.task == "selection" else found.set})

    rows = [row.record for row in board_of(make_score).rows]
    board = leaderboard(r.model_copy(update={"scores": list(map(selected, r.scores)), "select": select}) for r in rows)
    [sts] = [c for c in board_columns(board) if c.name == "sts_average"]
    assert (sts.title, sts.group, "page" in sts.on) == ("STS", "Quality", True)
    leading = [c.title for c in board_columns(board) if c.group == "Quality"]
    report = Report(board)
    titles = [c.title for c in report.columns]
    assert sts.text(board.rows[0]) in report.markdown() and len(set(titles)) == len(titles)
    assert TITLES[metric] in titles and "STSB" not in titles and leading.count(TITLES[metric]) == 1


def test_a_mix_has_a_test_score_where_all_its_parts_have(make_score: Any) -> None:
    select = "retrieval=0.7,sts=0.3"

    def mixed(*skip: str) -> ScoreRecord:
        record = searched(make_score, "mixed", 50.0, 48.0)
        scores = [s for s in record.scores if s.task not in skip]
        scores.append(score("selection", select, "dev", "mix", 61.0))
        return record.model_copy(update={"scores": scores, "select": select})

    board = leaderboard([mixed()])
    [row] = board.rows
    sts = row.cells["sts_average"].value
    assert row.test.value == pytest.approx(0.7 * 48 + 0.3 * sts)
    assert row.dev.value == 61.0 and board.columns[0].title == "0.7 nDCG@10 + 0.3 STS average"
    board = leaderboard([mixed("sts")])
    assert board.rows[0].test.value is None


def test_best_says_by_what(make_score: Any, tmp_path: Path) -> None:
    append_records(tmp_path / "scores.jsonl", [r.record for r in board_of(make_score).rows])
    said = CliRunner().invoke(app, ["best", str(tmp_path), "--bytes", "256"]).output
    assert said.startswith("high: keeps 82.8 % of the teacher's nDCG@10") and "chosen on dev, by nDCG@10" in said


def kept(folder: Path, record: ScoreRecord, dev_Q: np.ndarray, test_Q: np.ndarray) -> ScoreRecord:
    """The record with these values of its queries."""
    test = {"retrieval/own/ndcg@10": value_items(test_Q), "retrieval/own/mrr@10": value_items(test_Q / 2)}
    predictions = Predictions(test, {"retrieval/own/ndcg@10": value_items(dev_Q)})
    predictions.save(predictions_path(folder, record.record_id))
    scores = [score("selection", "retrieval", "dev", "ndcg@10", 100 * float(np.float32(dev_Q).mean()), low=0, high=9)]
    scores.append(score("retrieval", "own", "test", "ndcg@10", 100 * float(np.float32(test_Q).mean())))
    return record.model_copy(update={"scores": scores})


def test_ties_and_choices_are_by_a_paired_bootstrap_of_its_queries(make_score: Any, tmp_path: Path) -> None:
    noise = RNG.normal(size=400) * 0.02

    def row(label: str, dev: np.ndarray, test: np.ndarray, trial: int, **changes: Any) -> ScoreRecord:
        return kept(tmp_path, searched(make_score, label, 0.0, 0.0, trial=trial, **changes), dev, test)

    records = [
        row("large", HITS, HITS, 1, dim=64, bytes_per_vector=64),
        row("as good", HITS + noise - noise.mean(), HITS + noise - noise.mean(), 2, dim=32, bytes_per_vector=64),
        row("worse", HITS - 0.03 + noise / 9, HITS - 0.03 + noise / 9, 3, dim=16, bytes_per_vector=64),
        row("small", HITS - 0.03 + noise / 9, HITS, 4, dim=8, bytes_per_vector=8),
    ]
    board = leaderboard(records)
    rows = {r.name: r for r in board.rows}
    compared = compare_rows(board, [tmp_path])
    assert not compared.differ(rows["large"], rows["as good"])
    assert compared.differ(rows["large"], rows["worse"])
    chosen = best_under(board.rows, ServingBudget(), compared)
    assert chosen is not None and chosen.name in ("large", "as good")
    assert {r.name: compared.ties[r.anchor].group for r in board.rows} == {
        "large": "a",
        "as good": "a",
        "worse": "b",
        "small": "a",  # alone at its size
    }
    behind = compared.ties[rows["as good"].anchor].difference.value
    assert behind == pytest.approx(rows["as good"].test.value - rows["large"].test.value)


def test_fidelity_on_a_page(make_score: Any, tmp_path: Path) -> None:
    record = make_score("faithful", select="fidelity", indexes=[])
    scores = [score("selection", "fidelity", "dev", "fidelity", 81.0)]
    for split, value in (("dev", 81.0), ("test", 80.0)):
        metrics = (("fidelity", value), ("overlap@10", value - 5), ("spearman", value + 5))
        scores += [score("fidelity", "own text", split, metric, found) for metric, found in metrics]
    scores.append(score("fidelity", "own text, fi", "test", "overlap@10", 70.0))
    record = record.model_copy(update={"scores": scores})
    board = leaderboard([record])
    titles = [(c.group, c.title) for c in board.columns]
    assert titles == [
        ("Test", "Fidelity"),
        ("Selection", "Dev"),
        ("Fidelity, own text", "Overlap@10"),
        ("Fidelity, own text", "Spearman"),
        ("Overlap@10 by source", "fi"),
    ]
    assert [cell.value for cell in board.rows[0].cells.values()] == [80.0, 81.0, 75.0, 85.0, 70.0]
    page = write_report([record], tmp_path / "report", title="own").read_text()
    assert "STS12" not in page.split('id="papers"')[0] and "Test STS" not in page
    lines = (tmp_path / "report" / "leaderboard.md").read_text().splitlines()
    assert [line.count("80.00") for line in lines if line.startswith("| faithful")] == [1]
