"""What a search leaves on disk while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from simulated import CHOICES, YAML, Simulation, in_memory, no_event, space_of

from distilbench.search.confirm import chosen_trials
from distilbench.search.run_trials import _Recorder
from distilbench.search.search_plan import Search
from distilbench.search.study import finished_trials
from distilbench.search.trial import trial_folder
from distilbench.trials.budget import Confirmation


@pytest.mark.parametrize(("yaml", "eta"), [(YAML, 2), (YAML, 1000), (CHOICES, 1000)], ids=["stopping", "all", "twice"])
@pytest.mark.parametrize("top", [1, 2])
def test_only_checkpoints_of_trials_that_may_be_confirmed_are_kept(
    tmp_path: Path, yaml: str, eta: int, top: int
) -> None:
    """Whether trials are stopped or not, and where settings are drawn twice."""
    space = space_of(tmp_path, yaml, eta=eta, confirm=Confirmation(top=top))
    ours, most = Simulation(in_memory(), space, 30), [0]
    search = Search("simulated", space, ("quality",), 30, [], 4, 0)

    class Shown:
        progressed = waiting = finished = staticmethod(no_event)

        def started(self, number: int, params: dict[str, Any]) -> None:
            trial_folder(tmp_path, number).mkdir(parents=True, exist_ok=True)
            most[0] = max(most[0], len(list((tmp_path / "trials").iterdir())))

    recorder = _Recorder(tmp_path, ours.study, search, Shown())  # type: ignore[arg-type]
    ours.sit(2, 0, events=recorder)
    chosen = chosen_trials(finished_trials(ours.study), (), top)
    kept = {int(folder.name) for folder in (tmp_path / "trials").iterdir()}
    assert {t.number for group in chosen.values() for t in group} == kept and len(chosen) == 2
    assert most[0] <= 2 * top + 4 and len(ours.study.trials) == 30  # at work, or waiting for their verdict
