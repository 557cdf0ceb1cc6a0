"""What fits into a method's share of a time budget, told before its search; where it does not fit, its trials are shorter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distilbench.cluster.place import Place
from distilbench.cluster.resources import TrialResources
from distilbench.search.affordable import affordable
from distilbench.search.samplers import random_settings
from distilbench.search.space import SearchSpace
from distilbench.storage.files import bound_config, write_json
from distilbench.trials.pace import WORKERS, Pace, measured_pace
from distilbench.trials.training_spec import TrainingSpec

ASKED = "asked_steps"
"""The key of a run's configuration with the steps of its search space, where its trials are shorter to fit into the time."""
LEAST_S = 60.0
"""With less time for a search nothing is measured: it would take a quarter of it."""
STEPS = "budget.steps"


def afford(
    space: SearchSpace,
    run: Path,
    resources: TrialResources,
    place: Place | None,
    seed: int,
    seconds: float,
    confirmations: int,
) -> tuple[SearchSpace, str]:
    """The space with as many steps as fit into so many seconds, and what to tell; "" where nothing could be measured.

    The run is bound to the steps that its trials have. A space in which students have their own steps is left as it is.
    """
    if space.budget.student_steps or len(space.students) > 1:
        return space, ""
    here = run.resolve()  # for workers in other folders
    specs = [
        TrainingSpec(space.method, params, seed, space.budget, here / "prepared", here / "pace", here / "pace.txt")
        for params in random_settings(space, WORKERS, seed)
    ]
    pace = measured_pace(specs, place, resources)
    if pace is None:
        return space, ""
    groups = len(space.bytes_competed or space.dimensions)
    fits = affordable(space.budget, pace, seconds, resources.concurrency, groups, confirmations, space.searcher)
    told = _told(space, pace, fits.steps, fits.trials, fits.seconds, seconds)
    if fits.steps == space.budget.steps:
        return space, told
    config = bound_config(run) or {}
    write_json(run / "config.json", {**config, STEPS: fits.steps, ASKED: space.budget.steps})
    return with_steps(space, fits.steps), told


def with_steps(space: SearchSpace, steps: int) -> SearchSpace:
    """The space with so many steps of a trial."""
    return space.model_copy(update={"budget": space.budget.model_copy(update={"steps": steps})})


def steps_before(run: Path, space: SearchSpace) -> int | None:
    """The steps that the trials of a run have instead of the space's; None where they have those."""
    config: dict[str, Any] = bound_config(run) or {}
    return int(config[STEPS]) if config.get(ASKED) == space.budget.steps else None


def _told(space: SearchSpace, pace: Pace, steps: int, trials: int, expected_s: float, seconds: float) -> str:
    wanted, asked = space.budget.trials, space.budget.steps
    rate = f"{space.method}: {pace.step_s:.2g} s a step and {pace.judge_s:.2g} s to judge, as measured here"
    if steps == asked and trials == wanted:
        return f"{rate}: {wanted} trials of {asked} steps take about {expected_s:.0f} of {seconds:.0f} s"
    fewer = "" if trials == wanted else f", of which about {trials} fit"
    return f"{rate}: for {wanted} trials in {seconds:.0f} s each has {steps} steps instead of {asked}{fewer}"
