"""Plans beside what they plan: small real sweeps on the built-in corpus, planned with rates measured just before.

    python benchmarks/plan_check.py [--case mcr2-small ...] [--cpus 2] [--results build/plan-check.jsonl] [--again]
    python benchmarks/plan_check.py --table          # only print what the results have

For each case, in processes of its own and with an empty store: `distilbench plan --measure` on this machine, then
`distilbench sweep` with the same options, whose `timings.json` says how long each stage took. Prints planned and measured
seconds by stage, and planned / measured. Where the smaller case of a method is there, the larger one is also planned with the
rates of that run (`--rates runs/NAME`). A case that is in the results is not run again, except with `--again`. Other work on
the machine moves everything: the load below each row is that of the minute before its plan, and before its sweep's end.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CASES: dict[str, list[str]] = {
    "mcr2-small": ["--method", "mcr2", "--corpus-size", "500", "--trials", "8", "--confirm-seeds", "1"],
    "mcr2-large": ["--method", "mcr2", "--corpus-size", "4000", "--trials", "32"],
    "hpd-small": ["--method", "hpd", "--corpus-size", "500", "--trials", "4", "--confirm-seeds", "1"],
    "hpd-large": ["--method", "hpd", "--corpus-size", "2000", "--trials", "8"],
    "ibkd-small": ["--method", "ibkd", "--corpus-size", "500", "--trials", "4", "--confirm-seeds", "1"],
    "ibkd-large": ["--method", "ibkd", "--corpus-size", "2000", "--trials", "8"],
}
PREPARE = ("augment", "encode", "PCA", "tokenise")
STAGES = ("start", "prepare", "search", "confirm", "score", "report")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--case", action="append", choices=CASES, help="only this one; repeatable")
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--results", type=Path, default=Path("build/plan-check.jsonl"))
    parser.add_argument("--again", action="store_true", help="also cases that are in the results")
    parser.add_argument("--table", action="store_true", help="print the results, run nothing")
    given = parser.parse_args()
    given.results.parent.mkdir(parents=True, exist_ok=True)
    done = results(given.results)
    for name in [] if given.table else given.case or CASES:
        if name not in done or given.again:
            row = check(name, given.cpus, given.results.resolve().with_suffix(""))
            with given.results.open("a") as file:
                file.write(json.dumps(row) + "\n")
            done[name] = row
            show({name: row})
    print("\nAll results:")
    show(done)


def results(path: Path) -> dict[str, dict[str, Any]]:
    """The newest result of each case."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {row["case"]: row for row in map(json.loads, lines)}


def check(name: str, cpus: int, folder: Path) -> dict[str, Any]:
    """Plan a case, carry it out, and plan it with the rates of the smaller one's run."""
    work = folder / name
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    options = [*CASES[name], "--cpus", str(cpus), "--no-dashboard", "--name", name]
    places = ["--store", str(work / "store"), "--runs", str(folder / "runs"), "--reports", str(work / "reports")]
    machine = ["--nodes", f"1x{cpus}"]
    load = os.getloadavg()[0]
    took = timed(
        ["plan", *options, *places, *machine, "--measure", f"{work}/rates.json", "--json", f"{work}/plan.json"]
    )
    planned = json.loads((work / "plan.json").read_text())
    run = folder / "runs" / name
    shutil.rmtree(run, ignore_errors=True)
    seconds = timed(["sweep", *options, *places])
    row: dict[str, Any] = {
        "case": name,
        "cpus": cpus,
        "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "load": [load, os.getloadavg()[0]],
        "plan_s": took,
        "planned": stages(planned),
        "measured": measured(run, seconds),
        "steps": [planned["methods"][0]["expected_steps"], steps(run)],
        "trials": planned["methods"][0]["trials"],
    }
    smaller = folder / "runs" / name.replace("-large", "-small")
    if smaller != run and smaller.exists():
        timed(["plan", *options, *places, *machine, "--rates", str(smaller), "--json", f"{work}/from-run.json"])
        row["planned_from_run"] = stages(json.loads((work / "from-run.json").read_text()))
    return row


def timed(command: list[str]) -> float:
    """Seconds of a command of ours."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "distilbench", *command], check=True, stdout=sys.stderr)
    return time.monotonic() - began


def stages(planned: dict[str, Any]) -> dict[str, float]:
    """Planned seconds; what is prepared together, and a stage of several methods, is one."""
    found = dict.fromkeys(STAGES, 0.0)
    for stage in planned["clusters"][0]["stages"]:
        name = "prepare" if stage["name"].startswith(PREPARE) else stage["name"].partition(" (")[0]
        found[name] += stage["seconds"] or 0.0
    return found


def measured(run: Path, seconds: float) -> dict[str, float]:
    """Measured seconds; what no stage had (imports, above all) counts as start."""
    found = dict.fromkeys(STAGES, 0.0)
    for took in json.loads((run / "timings.json").read_text()):
        name = {"references": "score"}.get(took["stage"], took["stage"])
        if name in found:  # not a pool's: it is within prepare
            found[name] += took["seconds"]
    found["start"] = seconds - sum(s for name, s in found.items() if name != "start")
    return found


def steps(run: Path) -> int:
    """Optimiser steps up to the last rung of each trial."""
    records = [json.loads(line) for line in (run / "trials.jsonl").read_text().splitlines()]
    return sum(record["rungs"][-1]["step"] for record in records if record["rungs"])


def show(rows: dict[str, dict[str, Any]]) -> None:
    print(f"\n{'':<14}{'trials':>7}  " + "".join(f"{name:>18}" for name in (*STAGES, "total", "steps")))
    for name, row in rows.items():
        for key, label in (("planned", name), ("planned_from_run", "  by the run")):
            if key not in row:
                continue
            pairs = [(row[key][s], row["measured"][s]) for s in STAGES]
            pairs += [(sum(row[key].values()), sum(row["measured"].values())), tuple(row["steps"])]
            cells = [f"{p:,.0f}/{m:,.0f} {p / m if m else 0:>5.2f}" for p, m in pairs]
            print(f"{label:<14}{row['trials']:>7}  " + "".join(f"{cell:>18}" for cell in cells))
        print(
            f"{'':<14}load {row['load'][0]:.1f} before the plan, {row['load'][1]:.1f} after; it took {row['plan_s']:.0f} s"
        )


if __name__ == "__main__":
    main()
