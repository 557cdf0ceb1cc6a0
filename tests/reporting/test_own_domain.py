"""A user's own student beside the general one (benchmarks/own_domain.py)."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from distilbench.evaluation.bootstrap import Items
from distilbench.evaluation.predictions import Predictions, predictions_path
from distilbench.records import append_records
from distilbench.storage.files import write_json

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from own_domain import lines


@pytest.fixture
def evaluation(tmp_path, make_score):
    """The folder of an evaluation of a teacher and students: shares of 40 queries that find their answers."""

    def make(**shares: float) -> Path:
        continued = ["students/continued"] * ("continued" in shares)
        write_json(tmp_path / "config.json", {"models": ["students/own", "other/general", *continued]})
        for label, share in shares.items():
            role = "teacher" if label == "teacher" else "encoder"
            record = make_score(label, 70.0, role=role, record_id=label)
            append_records(tmp_path / "scores.jsonl", [record])
            found = Items((np.arange(40) < 40 * share).astype(np.float32))
            Predictions({f"retrieval/mine/{metric}": found for metric in ("mrr@10", "map@100")}).save(
                predictions_path(tmp_path, label)
            )
        return tmp_path

    return make


def test_the_difference_is_own_minus_general_with_an_interval(evaluation) -> None:
    (line,) = lines(evaluation(general=0.5, teacher=0.9, own=0.75))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:3] == ["mine", "40", "MRR@10"]
    assert [cell.split()[0] for cell in cells[3:6] + cells[7:8]] == ["90.00", "75.00", "50.00", "+25.00"]
    low, high = (float(bound) for bound in cells[7].split("(")[1].strip(")").split(" to "))
    assert 5 < low < 25 < high < 45 and float(cells[8]) < 0.05 and {cells[6], *cells[9:]} == {""}


def test_the_general_student_trained_further_has_a_difference_of_its_own(evaluation) -> None:
    (line,) = lines(evaluation(general=0.5, teacher=0.9, own=0.75, continued=0.6))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert [cell.split()[0] for cell in cells[5:]][:3] == ["50.00", "60.00", "+25.00"]
    assert cells[9].split()[0] == "+10.00" and len(cells) == 11


def test_equal_students_have_no_difference(evaluation) -> None:
    (line,) = lines(evaluation(teacher=0.9, own=0.5, general=0.5))
    assert "| +0.00 (+0.00 to +0.00) | 1.000 |" in line


def test_an_evaluation_of_something_else_is_refused(evaluation) -> None:
    with pytest.raises(SystemExit, match="expected a teacher and two or three students"):
        list(lines(evaluation(teacher=0.9, own=0.5)))
