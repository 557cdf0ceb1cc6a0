"""Paired differences of a board's rows to its reference, from kept predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distilbench.evaluation.bootstrap import Items
from distilbench.evaluation.predictions import Predictions, predictions_path
from distilbench.evaluation.sts import spearman
from distilbench.reporting.board import TEST, Leaderboard, leaderboard
from distilbench.reporting.comparison import PairedTable, compare_rows

SETS = ("STS12", "STSB")


def differences(board: Leaderboard, folders: list[Path]) -> list[PairedTable]:
    """The tables, whose rows are called by their labels."""
    labels = {row.anchor: row.record.label for row in board.rows}
    return [
        table.model_copy(
            update={
                "reference": labels[table.reference],
                "rows": {labels[anchor]: of for anchor, of in table.rows.items()},
            }
        )
        for table in compare_rows(board, folders).paired
    ]


def predictions(noise: float, seed: int = 0, correct: float = 0.7) -> Predictions:
    """Similarities that are the gold scores and noise, and a classification set of 500 items."""
    rng, gold = np.random.default_rng(0), {}
    for name in SETS:
        gold[name] = rng.random(400)
    own = np.random.default_rng(seed + 1)
    said = {f"sts/{s}/spearman": Items(gold[s] + noise * own.standard_normal(400), gold[s]) for s in SETS}
    return Predictions(
        {**said, "classification/MR/accuracy": Items((np.arange(500) < 500 * correct).astype(np.float32))}
    )


def record(make_score: Any, folder: Path, label: str, kept: Predictions | None, **given: Any) -> Any:
    """A record of what the predictions give, in a folder that keeps them."""
    found = make_score(label=label, record_id=label, **given)
    scores = [s for s in found.scores if s.set in SETS and s.task == "sts" and s.split == "test"]
    if kept is not None:
        kept.save(predictions_path(folder, label))
        values = {name: spearman(*kept.test[f"sts/{name}/spearman"][:2]) for name in SETS}
        scores = [s.model_copy(update={"value": values[s.set]}) for s in scores]
    return found.model_copy(update={"scores": scores})


def test_each_row_beside_the_teacher(tmp_path: Path, make_score: Any) -> None:
    teacher = record(make_score, tmp_path, "t", predictions(0.3), role="teacher")
    better = record(make_score, tmp_path, "better", predictions(0.1, seed=1, correct=0.9))
    worse = record(make_score, tmp_path, "worse", predictions(0.6, seed=2, correct=0.7))
    board = leaderboard([teacher, better, worse])
    [found] = differences(board, [tmp_path])
    assert found.reference == "t" and found.columns[0] == TEST
    assert set(found.columns[1:]) == {"sts/STS12/spearman", "sts/STSB/spearman", "classification/MR/accuracy"}
    of = {label: dict(zip(found.columns, line, strict=True)) for label, line in found.rows.items()}
    for label, sign in (("better", 1), ("worse", -1)):
        row = next(r for r in board.rows if r.record.label == label)
        own = board.cell(row, TEST).value - board.cell(board.rows[0], TEST).value  # type: ignore[operator]
        average = of[label][TEST]
        assert average is not None and average.value == pytest.approx(own, abs=1e-6)
        assert sign * average.value > 0 and sign * average.low > 0 and sign * average.high > 0
        assert average.p < 0.01
    accuracy = [of[label]["classification/MR/accuracy"] for label in ("better", "worse")]
    assert accuracy[0] is not None and accuracy[0].value == pytest.approx(20, abs=1e-4) and accuracy[0].low > 15
    assert accuracy[1] is not None and (accuracy[1].value, accuracy[1].p) == (0, 1)


def test_rows_on_other_test_sets_are_apart(tmp_path: Path, make_score: Any) -> None:
    rows = [record(make_score, tmp_path, f"r{i}", predictions(0.1 * i + 0.1, seed=i)) for i in range(4)]
    sets = [{"STS12/test": "x", "STSB/test": "y"}, {"STS12/test": "x", "STSB/test": "z"}]
    records = [r.model_copy(update={"sets": sets[i // 2], "corpus_fingerprint": f"c{i}"}) for i, r in enumerate(rows)]
    found = differences(leaderboard(records), [tmp_path])
    assert [(f.reference, list(f.rows)) for f in found] == [
        ("r0", ["r1"]),
        ("r2", ["r3"]),
    ]


def test_rows_of_as_many_bytes_stand_beside_faisss_best_on_dev(tmp_path: Path, make_score: Any) -> None:
    peer = {"role": "baseline", "method": "faiss", "dim": 384, "bytes_per_vector": 16}
    coded = {"dim": 32, "quantisation": "int4", "bytes_per_vector": 16}

    def with_dev(name: str, kept: Predictions, dev: float, **given: Any) -> Any:
        found = record(make_score, tmp_path, name, kept, **given)
        score = make_score().scores[-3].model_copy(update={"value": dev})
        assert (score.task, score.split) == ("sts", "dev")
        return found.model_copy(update={"scores": [*found.scores, score]})

    rows = [
        with_dev("teacher", predictions(0.05), 90.0, role="teacher", dim=384),
        with_dev("opq16", predictions(0.2, seed=1), 80.0, **peer, quantisation="opq16"),  # higher on test, lower on dev
        with_dev("itq16", predictions(0.4, seed=2), 81.0, **peer, quantisation="itq16"),
        with_dev("student", predictions(0.1, seed=3), 70.0, **coded),
        with_dev("other bytes", predictions(0.1, seed=4), 70.0, **coded | {"bytes_per_vector": 32}),
    ]
    [found] = differences(leaderboard(rows), [tmp_path])  # the teacher is the only float32 row
    assert found.reference == "itq16"
    assert set(found.rows) == {"opq16", "student"}
    assert all(of[0] is not None and of[0].value > 0 for of in found.rows.values())
