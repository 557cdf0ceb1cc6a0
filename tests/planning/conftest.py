"""The sweep that these tests plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from distilbench.settings.sweep import SweepSettings


@pytest.fixture
def small(tmp_path: Path, data_folder: Path, encoder_folder: Path) -> SweepSettings:
    """A sweep of MCR2 on the small data folder: 12 trials of two dimensions."""
    space = tmp_path / "mcr2.yaml"
    space.write_text(
        "method: mcr2\nsearcher: random\nbudget: {trials: 12, steps: 90, rungs: 3, eta: 3}\nparameters:\n"
        "  output_dim: {choices: [4, 8]}\n  lr: {low: 0.0001, high: 0.01, log: true}\n"
        "fixed: {batch_size: 16, clusters: 4, lambda: 100}\n"
    )
    return SweepSettings(
        method=("mcr2",),
        space=space,
        data=str(data_folder),
        teacher=str(encoder_folder),
        student="layers:0,2",
        store=tmp_path / "store",
        runs=tmp_path / "runs",
    )
