"""What the end-to-end tests share: an artifact store, and one sweep that nothing interrupts."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_command import Command

SPACE = """
method: mcr2
budget: {{trials: 6, steps: {steps}, rungs: 3, eta: 2, confirm: {{seeds: 2}}}}
parameters:
  output_dim: {{choices: [4, 8]}}
  lambda: {{low: 0.1, high: 2, log: true, paper: 1}}
  lr: {{low: 0.0001, high: 0.01, log: true}}
fixed: {{batch_size: 16, clusters: 4}}
"""
LONG = 900
"""Steps of a trial that can be killed in its middle."""


def make_sweep(
    folder: Path, data: Path, encoder: Path, store: Path, steps: int, *arguments: str, space: str = ""
) -> Command:
    """The command of a sweep of mcr2 over six trials, or of another search space."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "space.yaml").write_text(space or SPACE.format(steps=steps))
    method = next((line.split()[1] for line in space.splitlines() if line.startswith("method:")), "mcr2")
    given = ("--method", method, "--space", str(folder / "space.yaml"), *arguments)
    return Command("sweep", folder, data, encoder, store, *given)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One artifact store for all: they use the same teacher on the same corpus."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="session")
def whole(
    tmp_path_factory: pytest.TempPathFactory, data_folder: Path, encoder_folder: Path, store: Path, cluster: None
) -> Command:
    """A sweep of `LONG` trials that nothing interrupted; copy its run before changing it."""
    sweep = make_sweep(tmp_path_factory.mktemp("whole"), data_folder, encoder_folder, store, LONG)
    sweep.done()
    return sweep
