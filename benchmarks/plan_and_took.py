"""What `plan` said of the sweeps of the proof, and what they took: hours of each stage, and peak memory.

    python benchmarks/plan_and_took.py RUNS

RUNS is the folder of `benchmarks/proof.sh`: `plans/NAME.json` was written by `distilbench plan` before the sweep
`runs/NAME`, which noted its stages in `timings.json`, and those of each method beside its trials. What is left out: a stage
that was interrupted (its time is not noted), and a sweep without a plan. Memory is the most that a process had resident; the
largest worker's includes the pages of the files that it has mapped.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import NamedTuple

from plan_check import STAGES, stages

from distilbench.stage_times import Took, read_timings

SCORED = {"references": "score", "costs": "score"}
"""Stages of a sweep that a plan has within another one."""


class Sweep(NamedTuple):
    """What a sweep was planned to take and took, in seconds by stage, and its peak memory in MB (0: not noted)."""

    planned: dict[str, float]
    took: dict[str, float]
    driver_mb: float
    worker_mb: float


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    print(table(sweeps(parser.parse_args().runs)), end="")


def sweeps(folder: Path) -> dict[str, Sweep]:
    """The sweeps that were planned and begun, in the order of their plans."""
    plans = sorted((folder / "plans").glob("*.json"), key=lambda path: path.stat().st_mtime)
    found = {}
    for path in plans:
        run, planned = folder / "runs" / path.stem, json.loads(path.read_text())
        if "clusters" in planned and (timings := timings_of(run)):
            found[path.stem] = Sweep(
                stages(planned),
                seconds_of(timings),
                max(t.driver_mb for t in timings),
                max(t.worker_mb for t in timings),
            )
    return found


def timings_of(run: Path) -> list[Took]:
    """Those of a run, and of each of its methods where it has several."""
    return [took for folder in (run, *sorted(run.glob("*/"))) for took in read_timings(folder)]


def seconds_of(timings: list[Took]) -> dict[str, float]:
    """Seconds by the stages of a plan; a pool's time is within `prepare`."""
    found = dict.fromkeys(STAGES, 0.0)
    for took in timings:
        stage = SCORED.get(took.stage, took.stage)
        if stage in found:
            found[stage] += took.seconds
    return found


def table(found: dict[str, Sweep]) -> str:
    """Planned / taken hours of each stage and of all, and peak memory, in Markdown."""
    lines = [
        f"| sweep | {' | '.join(STAGES)} | all | planned / taken | driver, MB | largest worker, MB |",
        "|---" * (len(STAGES) + 5) + "|",
    ]
    for name, sweep in found.items():
        pairs = [(sweep.planned[stage], sweep.took[stage]) for stage in STAGES]
        planned, took = (math.fsum(of) for of in zip(*pairs, strict=True))
        cells = [f"{p / 3600:.2f} / {t / 3600:.2f}" for p, t in (*pairs, (planned, took))]
        cells += [f"{planned / took:.2f}" if took else ""]
        cells += [f"{mb:,.0f}" if mb else "" for mb in (sweep.driver_mb, sweep.worker_mb)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
