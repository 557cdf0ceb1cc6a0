"""What fits into a time: steps shrink before trials vanish; how fast a training is, and what a run is bound to then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from simulated import space_of

from distilbench.cluster.resources import TrialResources
from distilbench.commands import afford as module
from distilbench.commands.afford import ASKED, afford, steps_before
from distilbench.search.affordable import SHORTEST, Affordable, affordable, reached
from distilbench.storage.files import bound_config, write_json
from distilbench.trials import pace as pace_module
from distilbench.trials.budget import Budget
from distilbench.trials.pace import Pace, measured_pace, pace_of
from distilbench.trials.training_spec import TrainingSpec

ASHA = Budget(trials=24, steps=450, rungs=3, eta=3)
NONE = ASHA.model_copy(update={"stopping": "none"})
SLOW = Pace(begin_s=1.0, step_s=0.1, judge_s=2.0, steps=450)


def test_early_stopping_leaves_a_part_of_a_trial() -> None:
    shares = reached(ASHA, 1, "random")
    assert shares[0] == 1.0 and 0.3 < shares[1] < 0.5 and 0.1 < shares[2] < 0.25
    assert reached(ASHA, 4, "random")[1] > shares[1], "of few trials in a group more pass"
    assert reached(ASHA, 1, "tpe")[1] > shares[1], "where the searcher learns, fewer are stopped"
    assert reached(NONE, 4, "tpe") == [1.0, 1.0, 1.0]


def test_what_fits_is_left_as_it_is() -> None:
    fits = affordable(NONE, SLOW, 10_000, 2, 4, 8, "random")
    assert fits[:2] == (450, 24)
    # 24 trials and 8 confirmations: a start, 3 rungs (and none before the first step), 450 steps
    assert fits.seconds == pytest.approx((24 + 8) * (1 + 3 * 2 + 45) / 2)
    assert affordable(NONE, SLOW._replace(step_s=0.0), 1, 2, 4, 0, "random").steps == 450, "nothing is trained"


@pytest.mark.parametrize("budget", [NONE, ASHA])
@pytest.mark.parametrize("workers", [1, 8])
def test_steps_shrink_before_trials_vanish(budget: Budget, workers: int) -> None:
    whole = affordable(budget, SLOW, 1e9, workers, 4, 8, "random").seconds
    half = affordable(budget, SLOW, whole / 2, workers, 4, 8, "random")
    assert half.trials == 24 and SHORTEST * 450 < half.steps < 450
    assert half.seconds <= whole / 2 < half.seconds + 1
    tenth = affordable(budget, SLOW, whole / 20, workers, 4, 8, "random")
    assert tenth.steps == 45 and tenth.trials < 24, "a trial has at least a tenth of its steps"
    assert affordable(budget, SLOW, 0.0, workers, 4, 8, "random") == Affordable(
        45, 0, pytest.approx(tenth.seconds, rel=2)
    )


def test_a_training_that_is_shorter_than_its_budget() -> None:
    short = SLOW._replace(steps=90)
    assert affordable(NONE, short, (24 + 8) * (1 + 6 + 9) / 2, 2, 4, 8, "random").steps == 450
    less = affordable(NONE, short, (24 + 8) * (1 + 6 + 4.5) / 2 + 0.01, 2, 4, 8, "random")
    assert less.steps == 45 and less.trials == 24


def test_a_pace_is_measured(tmp_path: Path, prepared_folder: Path) -> None:
    params = {"output_dim": 8, "lambda": 50.0, "clusters": 4, "lr": 0.003, "batch_size": 16}
    spec = TrainingSpec("mcr2", params, 0, ASHA, prepared_folder, tmp_path / "trial", tmp_path / "hang.txt")
    pace = pace_of(spec, None, 1, seconds=0.2)
    assert pace.steps == 450 and 0 < pace.step_s < 0.2 and pace.judge_s > 0
    assert not (tmp_path / "trial").exists(), "nothing is kept"
    pca = pace_of(
        TrainingSpec("pca", {"output_dim": 8}, 0, ASHA, *(spec.prepared, spec.folder, spec.log)), None, 1, 0.1
    )
    assert pca.steps == 0 and pca.step_s == 0.0


def test_a_pace_is_measured_on_the_cluster(
    tmp_path: Path, prepared_folder: Path, cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = (prepared_folder, tmp_path / "trial", tmp_path / "hang.txt")
    specs = [TrainingSpec("pca", {"output_dim": d}, 0, ASHA, *folders) for d in (4, 8)]
    resources = TrialResources(1, 0.0, 2, "")
    monkeypatch.setattr(pace_module, "PATIENCE_S", 300.0)
    pace = measured_pace(specs, None, resources)
    assert pace and pace.judge_s > 0 and pace.steps == 0.0
    wrong = [replace(spec, params={"output_dim": 10_000}) for spec in specs]
    assert measured_pace(wrong, None, resources) is None, "a setting that fails is measured by no one"
    monkeypatch.setattr(pace_module, "PATIENCE_S", 0.0)
    assert measured_pace(specs, None, resources) is None, "a search does not wait"


def test_a_run_is_bound_to_the_steps_of_its_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = space_of(tmp_path, steps=900, stopping="none")
    run, resources = tmp_path / "run", TrialResources(1, 0.0, 2, "")
    run.mkdir()
    write_json(run / "config.json", {"budget.steps": 900, "seed": 0})
    paces = [SLOW._replace(steps=900)]
    monkeypatch.setattr(module, "measured_pace", lambda *_: paces[0])
    same, told = afford(space, run, resources, None, 0, 1e6, 4)
    assert same is space and told.startswith(
        "mcr2: 0.1 s a step and 2 s to judge, as measured here: 20 trials of 900 steps"
    )
    assert steps_before(run, space) is None
    shorter, told = afford(space, run, resources, None, 0, 500.0, 4)
    assert shorter.budget.steps < 500 and shorter.budget.trials == 20
    assert told.endswith(f"for 20 trials in 500 s each has {shorter.budget.steps} steps instead of 900")
    assert bound_config(run) == {"budget.steps": shorter.budget.steps, ASKED: 900, "seed": 0}
    assert steps_before(run, space) == shorter.budget.steps, "the same command goes on with them"
    other = space_of(tmp_path, steps=800)
    assert steps_before(run, other) is None, "another space is another configuration"
    _, told = afford(space, run, resources, None, 0, 60.0, 4)
    assert "of which about" in told
    paces[0] = None  # type: ignore[call-overload]
    assert afford(space, run, resources, None, 0, 60.0, 4) == (space, "")
