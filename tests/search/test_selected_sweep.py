"""A sweep whose students are selected by a mix of measures: records, choice, reproduction, and another measure later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_command import Command
from typer.testing import CliRunner

from distilbench.cli import app
from distilbench.reporting.board import leaderboard
from distilbench.reporting.runs import read_runs

SPACE = """
method: mcr2
budget: {trials: 2, steps: 6, rungs: 2, eta: 2, confirm: {seeds: 1}}
parameters:
  lr: {low: 0.001, high: 0.01, log: true}
fixed: {output_dim: 8, lambda: 50, clusters: 4, batch_size: 16}
"""
SELECT = "retrieval=0.5,fidelity=0.5"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_sweep_follows_its_measure(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, store: Path, cluster: None
) -> None:
    space = tmp_path / "space.yaml"
    space.write_text(SPACE)
    arguments = ("--method", "mcr2", "--space", str(space), "--max-sentences", "400", "--quantise", "int8")
    sweep = Command("sweep", tmp_path, data_folder, encoder_folder, store, *arguments)
    out = sweep.done("--select", SELECT)
    assert "Students are selected by mean of nDCG@10 and Fidelity" in out and "sentences to select by" in out
    assert json.loads((sweep.run / "config.json").read_text())["select"] == SELECT
    trials, scores = sweep.trials(), sweep.scores()
    assert {r.select for r in (*trials, *scores)} == {SELECT}
    for trial in trials:
        result = trial.result
        assert result is not None and trial.objective == pytest.approx(
            result.metrics["dev_score"] - result.metrics["dev_pca_score"]
        )
    board = leaderboard(read_runs([sweep.run]))
    student = next(row for row in board.rows if row.record.role == "student" and row.record.quantisation == "float32")
    chosen = next(t for t in trials if t.number == student.record.trial)
    # The row's dev score, of the saved student, is that of the rung.
    assert chosen.result is not None
    assert student.dev.value == pytest.approx(chosen.result.metrics["dev_score"], abs=0.01)
    assert all(row.test.value is not None for row in board.rows)
    again = CliRunner().invoke(app, ["reproduce", str(sweep.run), str(chosen.number)], catch_exceptions=False)
    assert again.exit_code == 0 and "dev_score" in again.output, again.output
    refused = sweep.refused("--select", "sts")
    assert "another configuration" in refused and "select" in refused
