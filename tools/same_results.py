"""Do two checkouts give the same trials and scores? Run small sweeps in each, then compare their records.

    python tools/same_results.py run CHECKOUT OUT DATA [NAME ...]     # about 20 minutes on two cores; what is there stays
    python tools/same_results.py compare OUT_BEFORE OUT_AFTER

DATA is a data folder that both read, such as distilbench/data/demonstration. Both checkouts use the Python that runs this
script, on the same machine: other processors give other last digits.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SWEEPS = {
    "pca": ["--method", "pca"],
    "mcr2": ["--method", "mcr2", "--trials", "8"],
    "neighbours": ["--method", "neighbours", "--trials", "8"],
    "retrieval": ["--method", "mcr2", "--trials", "5", "--select", "retrieval"],
    "fidelity": ["--method", "neighbours", "--trials", "5", "--select", "fidelity"],
    "objectives": ["--method", "neighbours", "--trials", "6", "--objectives", "quality,bytes"],
    "static": ["--method", "hpd", "--trials", "2", "--student", "static", "--space", "search_spaces/static"],
    "hpd": ["--method", "hpd", "--trials", "3", "--student", "auto:2"],
    "ibkd": ["--method", "ibkd", "--trials", "2", "--student", "auto:2"],
    "dse": ["--method", "dse", "--trials", "2", "--student", "auto:2"],
}
FAISS_TOLERANCE = 0.1
"""Points by which a row in a code may move: FAISS may make it another way. All else is equal to the last digit."""


def run(checkout: Path, out: Path, data: Path, names: list[str]) -> None:
    """Run the named sweeps (none: all) of `checkout` on `data`, and score the teacher with `evaluate`, into `out`."""
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    places = ["--store", str(out / "store"), "--runs", str(out / "runs")]
    commands = {name: ["sweep", *sweep, "--no-dashboard", "--cpus", "2"] for name, sweep in SWEEPS.items()}
    commands["evaluate"] = ["evaluate", "all-MiniLM-L6-v2"]
    for name in names or commands:
        log = out / "logs" / f"{name}.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as file:
            command = [
                sys.executable,
                "-m",
                "distilbench",
                *commands[name],
                "--name",
                name,
                "--data",
                str(data),
                *places,
            ]
            status = subprocess.run(command, cwd=checkout, env=environment, stdout=file, stderr=file).returncode
        print(f"{name}: {'done' if status == 0 else f'FAILED with {status}, see {log}'}", flush=True)


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in text.splitlines()]


def figures(run_folder: Path) -> dict[str, Any]:
    """Return all figures of a run that must not change, each under a name that says whose it is."""
    named: dict[str, Any] = {}
    for line in [*_lines(run_folder / "trials.jsonl"), *_lines(run_folder / "confirmations.jsonl")]:
        trial = f"trial {line['number']} seed {line['seed']}"
        named |= {f"{trial} {key}": line[key] for key in ("state", "params", "objective", "values")}
        for rung in line["rungs"]:
            named[f"{trial} step {rung['step']}"] = {
                key.replace("spearman", "score"): value
                for key, value in rung["metrics"].items()
                if "loss" in key or "dev" in key
            }
    for line in _lines(run_folder / "scores.jsonl"):
        row = " ".join(str(line[key]) for key in ("label", "method", "dim", "quantisation", "seed", "trial"))
        named[f"{row} bytes"] = line["bytes_per_vector"]
        for score in line["scores"]:
            parts = (score[key] for key in ("task", "set", "split", "metric", "variant"))
            named[f"{row} {' '.join(parts)}"] = score["value"]
    return named


def same(name: str, before: Any, after: Any) -> bool:
    """Tell whether a figure is what it was; a score in a code may differ by `FAISS_TOLERANCE`."""
    if before == after:
        return True
    numbers = isinstance(before, float) and isinstance(after, float)
    return numbers and "float32" not in name and abs(before - after) <= FAISS_TOLERANCE


def compare(before: Path, after: Path) -> int:
    """Print what differs between two folders of runs, and return how many figures do."""
    different = 0
    for folder in sorted((before / "runs").iterdir()):
        old, new = figures(folder), figures(after / "runs" / folder.name)
        if not old:
            continue
        changed = [name for name in old if name in new and not same(name, old[name], new[name])]
        gone, added = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
        print(f"{folder.name}: {len(old)} figures, {len(changed)} differ, {len(gone)} gone, {len(added)} new")
        for name in changed[:8]:
            print(f"  {name}: {old[name]} -> {new[name]}")
        for kind, names in (("gone", gone), ("new", added)):
            for name in names[:4]:
                print(f"  {kind}: {name}")
        different += len(changed) + len(gone)
    return different


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", checkout, out, data, *names]:
            run(Path(checkout).resolve(), Path(out).resolve(), Path(data).resolve(), names)
        case ["compare", before, after]:
            sys.exit(compare(Path(before), Path(after)) > 0)
        case _:
            sys.exit(__doc__)
