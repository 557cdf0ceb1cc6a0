"""Through the whole command: a search that ends by itself, and one whose trials are shortened to fit into the time."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from run_command import SPACE, make_sweep

from distilbench.commands import afford
from distilbench.commands import sweep as module
from distilbench.search.enough import LEAST
from distilbench.trials.pace import Pace


@pytest.mark.slow
def test_a_search_ends_when_it_has_found_enough(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, store: Path, cluster: None
) -> None:
    text = SPACE.format(steps=20).replace("trials: 6", "trials: 40, stopping: none").replace("seeds: 2", "seeds: 1")
    sweep = make_sweep(tmp_path, data_folder, encoder_folder, store, 0, space=text)
    out = sweep.done("--enough", "1000", "--transfer", "--searcher", "random")
    ended = len(sweep.trials())
    assert 2 * LEAST <= ended < 40
    note = (
        rf"r: the search ended after {ended} of 40 trials: the other {40 - ended} can be expected to add [\d.]+ points"
    )
    assert re.search(note, " ".join(out.split())) and re.search(note, " ".join(sweep.page().split()))
    before = sweep.files()
    assert "the search ended after" in " ".join(
        sweep.done("--enough", "1000", "--transfer", "--searcher", "random").split()
    )
    assert sweep.files() == before
    assert "transfer" in sweep.refused("--searcher", "random"), "its trials are those of another search"
    sweep.done("--transfer", "--searcher", "random")
    assert len(sweep.trials()) == 40 and "the search ended" not in sweep.page()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_trials_are_shortened_to_fit_into_the_time(
    tmp_path: Path,
    data_folder: Path,
    encoder_folder: Path,
    store: Path,
    cluster: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LEAST_S", 1.0)
    # told, not measured: a busy machine would have no time left for a search
    monkeypatch.setattr(afford, "measured_pace", lambda *_: Pace(0.5, 0.1, 0.5, steps=3000))
    text = SPACE.format(steps=3000).replace("seeds: 2", "seeds: 1")
    sweep = make_sweep(tmp_path, data_folder, encoder_folder, store, 0, space=text)
    out = " ".join(sweep.done("--time-budget", "240s").split())
    told = re.search(r"for 6 trials in \d+ s each has (\d+) steps instead of 3000", out)
    assert told and "s a step and" in out
    steps = int(told[1])
    assert steps < 3000 and told[0] in " ".join(sweep.page().split())
    config = json.loads((sweep.run / "config.json").read_text())
    assert (config["budget.steps"], config["asked_steps"]) == (steps, 3000)
    assert {r.rungs[-1].step for r in sweep.trials() if r.state == "COMPLETE"} <= {steps}
    again = sweep.done("--time-budget", "480s")  # on a busy machine no trial may have ended before
    assert "steps instead of" not in again, "the same command goes on with the steps that its trials have"
    assert {r.dim for r in sweep.trials()} == {4, 8}, "every dimension has a trial"
