"""How many optimiser steps a search took to what another one found: early stopping beside full random search, by seed.

python tools/early_stopping.py runs/random-0 runs/early-0 runs/random-1 runs/early-1 ...      pairs: full search, search

Steps are those trained, speculative ones after a rung included (the study has them). `reached at` is when the search's best
complete trial first equals the full search's best.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from optuna.trial import FrozenTrial, TrialState

from distilbench.search.study import STEPS, finished_trials, load_study, result_objective


class Curve(NamedTuple):
    """(steps spent, best dev objective so far) at each complete trial that is better than those before it."""

    points: list[tuple[int, float]]
    total: int


def curve(run: Path) -> Curve:
    """The curve of a run, its trials in the order in which they ended."""
    spent, points = 0, []
    ended: list[FrozenTrial] = sorted(finished_trials(load_study(run)), key=lambda t: t.datetime_complete)
    for trial in ended:
        spent += trial.user_attrs[STEPS]
        value = result_objective(trial)
        if trial.state == TrialState.COMPLETE and (not points or value > points[-1][1]):
            points.append((spent, value))
    return Curve(points, spent)


def main() -> None:
    """Print a row for each pair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    print("| full search | steps | best | search | steps | best | reached at | share of the steps |")
    print("|---" * 8 + "|")
    runs = parser.parse_args().runs
    for full_run, run in zip(runs[::2], runs[1::2], strict=True):
        full, search = curve(full_run), curve(run)
        goal = full.points[-1][1]
        at = next((steps for steps, value in search.points if value >= goal), None)
        share = "" if at is None else f"{100 * at / full.total:.0f} %"
        cells = [full_run.name, f"{full.total:,}", f"{goal:+.2f}", run.name, f"{search.total:,}"]
        cells += [f"{search.points[-1][1]:+.2f}", "never" if at is None else f"{at:,}", share]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
