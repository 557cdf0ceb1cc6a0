"""What the end-to-end tests share: an artifact store, and one sweep that nothing interrupts."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_command import LONG, Command, make_sweep


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
