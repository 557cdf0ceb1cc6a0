"""One search for the whole question, as a user asks it: methods, students and sizes, and what to deploy at its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_command import Command

from distilbench.reporting.best import best_of_runs
from distilbench.reporting.choice import ServingBudget

HEADS = """
method: mcr2
budget: {trials: 8, steps: 4, rungs: 2, eta: 2, stopping: none, confirm: {seeds: 1}}
parameters:
  output_dim: {choices: [4, 8]}
  bits: {choices: [8, 4]}
  lambda: {low: 0.5, high: 2, log: true}
fixed: {batch_size: 16, clusters: 4, lr: 0.001, head: residual}
"""
ENCODERS = """
method: hpd
budget: {trials: 6, steps: 6, rungs: 2, eta: 2, stopping: none, confirm: {seeds: 1}}
parameters:
  student: {choices: [static, "static:corpus", "auto:1:corpus"]}
  lr: {low: 0.0001, high: 0.001, log: true}
fixed: {output_dim: 8, nested: true, widths: [4], batch_size: 16, epochs: 1, start_sentences: 64}
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_ends_with_its_front_and_the_row_to_take(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, store: Path, cluster: None
) -> None:
    spaces = tmp_path / "front"
    spaces.mkdir()
    (spaces / "mcr2.yaml").write_text(HEADS)
    (spaces / "hpd.yaml").write_text(ENCODERS)
    objectives = "quality,latency,bytes,model_bytes"
    asked = ["--method", "all", "--space", str(spaces), "--objectives", objectives, "--quantise", "none"]
    sweep = Command("sweep", tmp_path, data_folder, encoder_folder, store, *asked)
    out = sweep.done("--time-budget", "30m")
    assert out.index("mcr2 (1 of 2)") < out.index("hpd (2 of 2)"), "heads first"
    lines = out.rstrip().splitlines()
    closing = next(i for i, line in enumerate(lines) if line.startswith("Take "))
    assert "distilbench export" in lines[closing + 1] and "--student" in lines[closing + 1]
    assert "time was over" not in out
    confirmed = {m: json.loads((sweep.run / m / "confirmed.json").read_text()) for m in ("mcr2", "hpd")}
    assert set(confirmed["mcr2"]) == {"2", "4", "8"}
    assert any(name.startswith("static") for name in confirmed["hpd"]), "nothing is as fast"
    assert any(name.startswith("static:corpus, ") for name in confirmed["hpd"]), "nothing is as small"
    # A row within the limits of speed and size.
    rows = [r for m in ("mcr2", "hpd") for r in _scores(sweep, m) if r["role"] == "student"]
    assert all(r["latency_ms"] for r in rows)
    layers = [r["start"] for r in rows if r["hyperparameters"].get("student") == "auto:1:corpus"]
    assert all(f"{encoder_folder.name}-pruned layers:" in start for start in layers), "its tokens are the text's"
    sizes = {r["hyperparameters"]["student"]: r["cost"]["bytes_on_disk"] for r in rows if "(static" in r["label"]}
    smallest = min(r["cost"]["bytes_on_disk"] for r in rows)
    assert sizes["static:corpus"] == smallest, "no student is smaller; here the text has every token"
    static = min(r["latency_ms"] for r in rows)
    found = best_of_runs([sweep.run], ServingBudget(bytes_per_vector=16, latency_ms=static))
    assert found.row.record.hyperparameters["student"].startswith("static") and found.row.record.bytes_per_vector <= 16


def _scores(sweep: Command, method: str) -> list[dict]:
    return [json.loads(line) for line in (sweep.run / method / "scores.jsonl").read_text().splitlines()]
