"""Tables of recorded trials (benchmarks/recorded/NAME.parquet) out of finished runs, for benchmarks/samplers.py.

python tools/recorded_tables.py OUT runs/NAME runs/OTHER                              a table of each run
python tools/recorded_tables.py OUT RECORDS --space SPACE.yaml --prefix random        one of a study's records
python tools/recorded_tables.py OUT runs/NAME --rungs 2                               NAME-rungs-2: the last two rungs alone

Of a run the search space is the one in its config.json, as it was fitted to the data. Of records the trials of runs whose
names begin with the prefix are taken. Trials that were stopped are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
from replay.tables import Table, write_table

from distilbench.records import TrialRecord, read_records


def trials_of(path: Path) -> list[TrialRecord]:
    """The trials of a search that came to an end of their own, by run and number."""
    found = [r for r in read_records(path) if isinstance(r, TrialRecord) and not r.confirms and r.state != "PRUNED"]
    return sorted(found, key=lambda r: (r.run, r.number))


def space_text(config: dict[str, Any]) -> str:
    """The search space that a run was bound to, as a file of search spaces has it."""
    budget = {k.removeprefix("budget."): v for k, v in config.items() if k.startswith("budget.")}
    ranges = config["parameters"]  # by name; a condition is on a parameter that stands before it
    space = {
        "method": config["method"],
        "searcher": config["searcher"],
        "budget": {"trials": config["trials"], "confirm": config["confirm"], **budget},
        "parameters": dict(sorted(ranges.items(), key=lambda item: bool(item[1].get("when")))),
        "fixed": config["fixed"],
    }
    return yaml.safe_dump(space, sort_keys=False)


def with_last_rungs(trials: list[TrialRecord], rungs: int) -> list[TrialRecord]:
    """Trials as they would be, had they been judged at their starts and at the last rungs alone."""
    first = max(r.rung for trial in trials for r in trial.rungs) - rungs

    def left(trial: TrialRecord) -> TrialRecord:
        kept = [r.model_copy(update={"rung": max(0, r.rung - first)}) for r in trial.rungs if not 0 < r.rung <= first]
        return trial.model_copy(update={"rungs": kept})

    return [left(trial) for trial in trials]


def table_of_run(run: Path, out: Path, rungs: int | None = None) -> Table:
    """The table of a finished run, or of its last rungs alone."""
    config, trials, name = json.loads((run / "config.json").read_text()), trials_of(run / "trials.jsonl"), run.name
    if rungs:
        trials = with_last_rungs(trials, rungs)
        config, name = config | {"budget.rungs": rungs}, f"{name}-rungs-{rungs}"
    widths = config["parameters"].get("output_dim", {}).get("choices") or [config["fixed"].get("output_dim", 1)]
    return write_table(out / f"{name}.parquet", trials, space_text(config), max(widths), run.name)


def table_of_records(records: Path, space: Path, prefix: str, out: Path) -> Table:
    """The table of a study's records, under the name of its search space."""
    trials = [r for r in trials_of(records) if r.run.startswith(prefix)]
    native = max(r.dim for r in trials)
    return write_table(out / f"{space.stem}.parquet", trials, space.read_text(), native, records.name)


def main() -> None:
    """Write the tables, and print what is in each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("sources", type=Path, nargs="+")
    parser.add_argument("--space", type=Path)
    parser.add_argument("--prefix", default="")
    parser.add_argument("--rungs", type=int, help="of runs: judged at so many last rungs, not at those before")
    given = parser.parse_args()
    out = given.out
    if given.space:
        tables = [table_of_records(source, given.space, given.prefix, out) for source in given.sources]
    else:
        tables = [table_of_run(source, out, given.rungs) for source in given.sources]
    for table in tables:
        size = (out / f"{table.name}.parquet").stat().st_size
        print(f"{table.name}: {len(table.settings)} settings, groups {table.groups}, {size:,} bytes")


if __name__ == "__main__":
    main()
