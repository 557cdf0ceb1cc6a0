"""What searches have found for the steps that they spent: the best student of every size, as a mean, run beside run.

python tools/equal_steps.py runs/old-0 runs/new-0 runs/old-1 runs/new-1 ...      pairs: one search, another of the same space

Steps are those trained, speculative ones after a rung included (the study has them). The best of a size (output dimension, or
bytes of a vector) is the highest dev objective of a trial that can be chosen; `difference` is the second search's mean minus
the first one's.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from distilbench.codes import CompetitionKey
from distilbench.search.study import STEPS, best_per_group, finished_trials, load_study, result_of, width_in


class Searched(NamedTuple):
    """A finished search."""

    steps: int
    trials: int
    best: dict[CompetitionKey, float]


def searched(run: Path) -> Searched:
    """What a run has found."""
    trials = finished_trials(load_study(run))
    best = {}
    for group, (first, *_) in best_per_group(trials).items():
        rung = result_of(first)
        value = None if rung is None else rung.objective_at(width_in(first, group))
        if value is not None:
            best[group] = value
    return Searched(sum(t.user_attrs[STEPS] for t in trials), len(trials), best)


def main() -> None:
    """Print a row for each pair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    print("| search | trials | steps | mean best | search | trials | steps | mean best | difference |")
    print("|---" * 9 + "|")
    runs = parser.parse_args().runs
    for one, other in zip(runs[::2], runs[1::2], strict=True):
        pair = [searched(run) for run in (one, other)]
        sizes = sorted(pair[0].best.keys() & pair[1].best.keys(), key=str)
        means = [sum(s.best[size] for size in sizes) / len(sizes) for s in pair]
        cells = []
        for run, s, mean in zip((one, other), pair, means, strict=True):
            cells += [run.name, str(s.trials), f"{s.steps:,}", f"{mean:+.2f}"]
        print("| " + " | ".join([*cells, f"{means[1] - means[0]:+.2f}"]) + " |")


if __name__ == "__main__":
    main()
