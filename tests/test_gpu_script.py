"""benchmarks/gpu.sh in small on the CPU: that a run on a card executes nothing for the first time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MISSING = ("nvidia-smi", "processes by NVML", "FAISS flat, GPU", "FAISS ivf, GPU")
"""What a machine without a card cannot do; such a measurement fails, and the next one begins."""


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_every_step_measures_in_small(encoder_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    places = ["--out", str(tmp_path), "--work", str(tmp_path / "work"), "--encoder", str(encoder_folder)]
    done = subprocess.run(
        ["bash", "benchmarks/gpu.sh", *places, "--cpu"],
        cwd=ROOT,
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    failed = {line["what"]: line["error"] for line in lines if "error" in line and not line["what"].startswith(MISSING)}
    assert failed == {} and "ended with" not in done.stdout
    assert {line["card"] for line in lines} == {"CPU"}
    counts = Counter(line["step"] for line in lines)
    assert list(counts) == "probe import methods encode train share search headline scores oom sticky kill".split()
    assert min(counts.values()) > 1
    assert [line["step"] for line in lines if line["what"] == "seconds"] == list(counts)
    assert all(f"| {step} | seconds |" in done.stdout for step in counts)
