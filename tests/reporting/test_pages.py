"""The data of a row's page: every score by seed, the commands that make it again."""

from __future__ import annotations

from distilbench.records import AS_IT_CAME
from distilbench.reporting.board import leaderboard
from distilbench.reporting.page import commands, score_lines
from distilbench.reporting.run_facts import Trainings

PARAMS = {"lr": 1e-4, "batch": 256, "activation": "identity"}


def row_of(*records):
    (row,) = leaderboard(records).rows
    return row


def test_every_score_of_every_seed(make_score):
    lines = score_lines(
        row_of(make_score("s", 75.0, record_id="0"), make_score("s", 77.0, seed=1, record_id="1", skip=("STS13",)))
    )
    assert list(lines) == ["sts", "retrieval"]
    by_key = {(s.set, s.split, s.variant): (s.n, [value for value, _, _ in values]) for s, values in lines["sts"]}
    assert by_key["STS12", "test", "all"] == (1000, [67.0, 69.0])
    assert by_key["STS13", "test", "wmean"][1] == [77.5, None] and by_key["STSB", "dev", "all"][0] == 1500


def test_commands(make_score, make_trial):
    row = row_of(make_score("s", record_id="0"), make_score("s", seed=1, record_id="1"))
    trials = [make_trial(3, params=PARAMS), make_trial(3, params=PARAMS, seed=1, confirms=True)]
    assert commands(row, Trainings(trials)) == [
        "distilbench reproduce runs/synthetic 3",
        "distilbench reproduce runs/synthetic 3 --seed 1",
    ]
    assert commands(row_of(make_score("pca", role="baseline")), Trainings(trials)) == []
    outsider = row_of(make_score("my model; rm -rf", role="encoder", start=AS_IT_CAME))
    assert commands(outsider, Trainings(trials)) == ["distilbench evaluate 'my model; rm -rf' --data DIR"]
