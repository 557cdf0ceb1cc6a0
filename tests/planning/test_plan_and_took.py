"""Plans beside what sweeps took (benchmarks/plan_and_took.py)."""

from __future__ import annotations

import sys
from pathlib import Path

from distilbench.stage_times import TIMINGS, Took
from distilbench.storage.files import write_json

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from plan_and_took import sweeps, table


def write(folder: Path, *timings: Took) -> None:
    write_json(folder / TIMINGS, [took.model_dump() for took in timings])


def test_stages_of_all_methods_stand_beside_what_was_planned(tmp_path: Path) -> None:
    named = (("start", 36.0), ("encode with the teacher", 1800.0), ("tokenise", 1800.0))
    named += (("search (hpd)", 3600.0), ("search (mse)", 3600.0))
    planned = {
        "clusters": [{"stages": [{"name": name, "seconds": seconds} for name, seconds in (*named, ("score", None))]}]
    }
    write_json(tmp_path / "plans" / "two.json", planned)
    write_json(tmp_path / "plans" / "not-begun.json", planned)
    write_json(tmp_path / "plans" / "rates" / "two.json", {})
    run = tmp_path / "runs" / "two"
    write(run, Took(stage="Tokens", seconds=99, worker_mb=700), Took(stage="prepare", seconds=1800, driver_mb=900))
    write(run / "hpd", Took(stage="search", seconds=3600, worker_mb=800), Took(stage="references", seconds=360))
    write(run / "mse", Took(stage="search", seconds=3600, driver_mb=950), Took(stage="score", seconds=360))
    found = sweeps(tmp_path)
    assert list(found) == ["two"] and (found["two"].driver_mb, found["two"].worker_mb) == (950, 800)
    assert found["two"].planned["prepare"] == 3600 and found["two"].took["prepare"] == 1800
    lines = table(found).splitlines()
    assert lines[2] == (
        "| two | 0.01 / 0.00 | 1.00 / 0.50 | 2.00 / 2.00 | 0.00 / 0.00 | 0.00 / 0.20 | 0.00 / 0.00 | 3.01 / 2.70 | 1.11 "
        "| 950 | 800 |"
    )
    assert len({line.count("|") for line in lines}) == 1
