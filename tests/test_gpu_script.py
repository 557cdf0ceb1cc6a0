"""benchmarks/gpu.sh in small on the CPU: that a run on a card executes nothing for the first time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MISSING = ("nvidia-smi", "processes by NVML", "FAISS flat, GPU", "FAISS ivf, GPU")
"""What a machine without a card cannot do; such a measurement fails, and the next one begins."""


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "step", ["probe", "import", "methods", "encode", "train", "share", "search", "headline", "oom", "sticky", "kill"]
)
def test_a_step_measures_in_small(step: str, encoder_folder: Path, tmp_path: Path) -> None:
    if step == "train":
        pytest.importorskip("datasets")
    places = ["--out", str(tmp_path), "--work", str(tmp_path / "work"), "--encoder", str(encoder_folder)]
    command = ["bash", "benchmarks/gpu.sh", *places, "--cpu", step]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True
    )
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    failed = {line["what"]: line["error"] for line in lines if "error" in line and not line["what"].startswith(MISSING)}
    assert failed == {} and "ended with" not in done.stdout
    assert len(lines) > 1 and lines[-1]["what"] == "seconds"
    assert all(line["step"] == step and line["card"] == "CPU" for line in lines)
    assert f"| {step} | seconds |" in done.stdout
