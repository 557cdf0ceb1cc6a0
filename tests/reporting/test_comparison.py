"""Tie groups of a leaderboard: from records and kept predictions to the page, the CSV and what the reader is told."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from distilbench.cli import app
from distilbench.evaluation.bootstrap import Items, resampled_correlation
from distilbench.evaluation.predictions import Predictions, predictions_path
from distilbench.evaluation.sts import spearman
from distilbench.records import Score, ScoreRecord, append_records, read_records
from distilbench.reporting import page
from distilbench.reporting.board import leaderboard
from distilbench.reporting.comparison import DRAWS, NOT_COMPARED, Comparison, Difference, compare_rows, tie_notices
from distilbench.reporting.runs import read_runs
from distilbench.storage.files import fingerprint

SETS = {"STS12": 300, "STSB": 200}
GOLD = {name: np.round(np.random.default_rng(n).uniform(0, 5, n), 1) for name, n in SETS.items()}
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{7*7}}"


class Study:
    """Rows whose records say what their kept predictions give, in runs of a folder."""

    def __init__(self, folder: Path, make_score: Any) -> None:
        self.folder, self.make_score = folder, make_score
        self.records: list[ScoreRecord] = []

    def add(
        self,
        label: str,
        noise: float,
        *,
        draw: int = 0,
        jitter: float = 0.0,
        run: str = "one",
        gold: Mapping[str, np.ndarray] = GOLD,
        sets: tuple[str, ...] = tuple(SETS),
        kept: bool = True,
        **changes: Any,
    ) -> ScoreRecord:
        """A row whose similarities are the gold scores and `noise`, the same for the same `draw`, and `jitter`."""
        rng, own = np.random.default_rng(draw), np.random.default_rng(1000 + len(label))
        similarity = {
            name: g + noise * rng.standard_normal(len(g)) + jitter * own.standard_normal(len(g))
            for name, g in gold.items()
        }
        common: dict[str, Any] = {"task": "sts", "split": "test", "metric": "spearman", "variant": "all"}
        scores = [
            Score(**common, set=name, value=spearman(similarity[name], gold[name]), n=SETS[name]) for name in sets
        ]
        key = fingerprint([label, draw, run, sorted(changes)])
        record = self.make_score(label, **{"run": run, "record_id": key, "scores": scores, "indexes": []} | changes)
        self.records.append(record)
        if kept:
            path = predictions_path(self.folder / run, record.record_id)
            said = {f"sts/{name}/spearman": Items(similarity[name], np.asarray(g)) for name, g in gold.items()}
            Predictions(said).save(path)
        return record

    def path(self, record: ScoreRecord) -> Path:
        return predictions_path(self.folder / record.run, record.record_id)

    def ties(self, *runs: str) -> Comparison:
        return compare_rows(leaderboard(self.records), [self.folder / run for run in runs or ("one",)])

    def places(self, *runs: str) -> dict[str, Any]:
        """By row name."""
        ties, rows = self.ties(*runs).ties, leaderboard(self.records).rows
        return {row.name: ties[row.anchor] for row in rows if row.anchor in ties}

    def groups(self, *runs: str) -> dict[str, str]:
        return {name: place.group for name, place in self.places(*runs).items()}


@pytest.fixture
def study(tmp_path: Path, make_score: Any) -> Study:
    return Study(tmp_path, make_score)


def test_equal_rows_tie_a_worse_one_does_not_and_the_teacher_is_apart(study: Study) -> None:
    study.add("teacher", 0.1, role="teacher")
    study.add("good", 1.0, draw=1)
    study.add("good too", 1.0, draw=1, role="baseline", method="pca")
    study.add("worse", 2.0, draw=1)
    places = study.places()
    assert {name: p.group for name, p in places.items()} == {"good": "a", "good too": "a", "worse": "b"}
    assert [p.leader_name for p in places.values()] == ["good", "good", "worse"]
    assert places["good too"].others == 1
    assert places["good too"].difference == Difference()
    assert places["worse"].others == 0


def test_numbers_of_bytes_and_corpora_have_groups_of_their_own_whatever_dimension_and_code(study: Study) -> None:
    study.add("best", 0.5)
    study.add("second", 2.0)
    study.add("int8 of 256", 3.0, dim=256, quantisation="int8", bytes_per_vector=256)
    study.add("other bytes", 3.0, dim=32)
    study.add("elsewhere", 3.0, corpus_fingerprint="e" * 64)
    groups = {"best": "a", "second": "b", "int8 of 256": "c", "other bytes": "a", "elsewhere": "a"}
    assert study.groups() == groups
    assert study.places()["int8 of 256"].leader_name == "int8 of 256, int8"


def test_the_noise_of_seeds_joins_what_pairs_alone_tell_apart(study: Study) -> None:
    for seed, (steady, wild) in enumerate(((1.0, 0.6), (1.0, 1.2), (1.0, 2.4))):
        study.add("steady", steady, draw=seed, seed=seed)
        study.add("wild", wild, draw=10 + seed, seed=seed)
    # a single seed of about the wild row's mean quality
    study.add("one seed", 1.45, draw=20)
    places = study.places()
    assert {name: p.group for name, p in places.items()} == {"steady": "a", "wild": "a", "one seed": "b"}
    assert places["wild"].difference.high > 0 > places["wild"].difference.value


@pytest.mark.parametrize("damage", ["missing", "torn", "of another scoring", "id", "a set is missing"])
def test_a_file_that_is_not_there_or_not_right_costs_its_row_the_group(study: Study, damage: str) -> None:
    study.add("good", 1.0, draw=1)
    study.add("good too", 1.0, draw=1)
    bad = study.add("bad", 1.0, draw=1, seed=0)
    study.add("bad", 1.0, draw=2, seed=1)
    path = study.path(bad)
    if damage == "missing":
        path.unlink()
    elif damage == "torn":
        path.write_bytes(path.read_bytes()[:500])
    elif damage == "of another scoring":
        other = study.add("other", 1.1, draw=3)
        study.path(other).rename(path)
        study.records.remove(other)
    elif damage == "id":
        study.records[2] = bad.model_copy(update={"record_id": "../../etc/passwd"})
    else:
        found = Predictions.load(path)
        Predictions({name: items for name, items in found.test.items() if "STSB" in name}).save(path)
    ties = study.ties()
    assert study.groups() == {"good": "a", "good too": "a"}
    assert ties.without == ["bad"]
    assert any("Without a tie group" in notice and "1 row (bad)" in notice for notice in tie_notices(ties))


def test_other_test_pairs_are_not_compared(study: Study) -> None:
    study.add("one", 1.0)
    study.add("two", 1.0)
    study.add("other gold", 0.1, gold={**GOLD, "STSB": GOLD["STSB"][::-1].copy()})
    ties = study.ties()
    assert study.groups() == {"one": "a", "two": "a"} or study.groups() == {"other gold": "a"}
    assert len(ties.ties) + len(ties.without) == 3 and ties.without
    assert any("of other test items" in notice for notice in tie_notices(ties))


def test_records_alone_have_no_groups(study: Study, tmp_path: Path) -> None:
    study.add("A", 1.0)
    assert tie_notices(NOT_COMPARED) == ()
    text = page.write_report(study.records, tmp_path / "report", title="Alone").read_text()
    assert "Tie group" not in text and "tied with" not in text and "bootstrap" not in text
    (row,) = csv.DictReader(io.StringIO((tmp_path / "report" / "leaderboard.csv").read_text()))
    assert [row[f"tie_{name}"] for name in ("group", "difference", "low", "high")] == [""] * 4
    # run folders of an older version: no column, but the reader is told
    study.path(study.records[0]).unlink()
    page.write_report(study.records, tmp_path / "report", title="Old", compared=study.ties())
    text = (tmp_path / "report" / "index.html").read_text()
    assert "Without a tie group" in text and '"tie_group":' not in text


def test_the_page_carries_groups_and_the_draws_of_each_set(study: Study, page_rows: Any) -> None:
    study.add("teacher", 0.1, role="teacher")
    study.add("best", 1.0, draw=1)
    study.add("near", 1.0, draw=1, jitter=0.2)
    study.add("twin", 1.0, draw=1)
    study.add("worse", 2.5, draw=1)
    study.add("gone", 2.6, draw=1, kept=False)
    ties = study.ties()
    board = leaderboard(study.records)
    text = page.Pages(study.records, board, "T", compared=ties).index()
    assert study.groups() == {"best": "a", "near": "a", "twin": "a", "worse": "b"}
    rows = page_rows(text)
    tie = study.places()["near"].difference
    near = rows["near"]
    assert [near[f"tie_{name}"] for name in ("difference", "low", "high")] == [tie.value, tie.low, tie.high]
    assert {name: row.get("tie_group") for name, row in rows.items()} == {
        **study.groups(),
        "teacher": None,
        "gone": None,
    }
    assert "draws" not in rows["gone"] and near["draws"].keys() == {f"sts:{name}" for name in GOLD}
    assert rows["best"]["draws"] == rows["twin"]["draws"], "the same items, drawn alike"
    moved = np.frombuffer(base64.b64decode(near["draws"]["sts:STS12"]), "<i2") / 1000
    kept = Predictions.load(study.path(study.records[2])).test["sts/STS12/spearman"]
    low, high = resampled_correlation(kept.value_P, np.asarray(kept.gold_P), ranks=True).interval
    assert len(moved) == DRAWS and moved.std() == pytest.approx((high - low) / 3.92, rel=0.4)
    assert "1 row (gone)" in text
    assert "1,000 resamples, which draw the items of each test set" in text


def test_the_report_command_compares_rows_of_several_runs(study: Study, tmp_path: Path) -> None:
    study.add("A", 1.0, draw=1)
    study.add("B", 1.0, draw=1, run="two")
    study.add("C", 2.0, draw=1, run="two", method="mcr2")
    folders = [tmp_path / run for run in ("one", "two")]
    for folder in folders:
        append_records(folder / "scores.jsonl", [r for r in study.records if r.run == folder.name])
    out = tmp_path / "report"
    result = CliRunner().invoke(app, ["report", *map(str, folders), "--out", str(out)])
    assert result.exit_code == 0, result.output
    with (out / "leaderboard.csv").open(newline="") as file:
        assert {row["label"]: row["tie_group"] for row in csv.DictReader(file)} == {"A": "a", "B": "a", "C": "b"}
    first = (out / "index.html").read_bytes()
    CliRunner().invoke(app, ["report", *map(str, folders), "--out", str(out)])
    assert (out / "index.html").read_bytes() == first
    assert [r.label for r in read_records(out / "records.jsonl.xz")] == ["A", "B", "C"]
    assert len(read_runs(folders)) == 3
