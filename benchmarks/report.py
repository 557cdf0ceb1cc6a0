"""How long a report of many rows and trials takes to write, how large it is, and how long a browser takes to sort it.

    python benchmarks/report.py [--rows 500] [--trials 10000] [--json FILE]

The records are synthetic: shapes of real ones, numbers from a seeded generator. Sorting is timed in headless Chromium from
the click to the next frame, layout included (needs selenium and chromedriver; without them only the writing is timed).
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from distilbench.records import IndexCost, Provenance, Rung, Score, ScoreRecord, TrialRecord
from distilbench.reporting.page import write_report

SUBSETS = {"STS12": 5, "STS13": 3, "STS14": 6, "STS15": 5, "STS16": 5, "STSB": 0, "SICK": 0}
CLASSES = ("MR", "CR", "SUBJ", "MPQA", "SST2", "SST5", "TREC", "MRPC", "SICK-E")
DIMS = (16, 32, 64, 128, 256)
ORIGIN = Provenance(
    created_at="2001-01-01T00:00:00Z", commit="0" * 40, versions={"synthetic": "0.0"}, device="none", cpus=1
)


def scores(quality: float) -> Iterator[Score]:
    """All STS sets with their subsets, SentEval's classification sets, and one retrieval set."""

    def one(task: str, name: str, metric: str, value: float, variant: str = "all", split: str = "test") -> Score:
        return Score.model_validate(
            {"task": task, "set": name, "split": split, "metric": metric, "variant": variant, "value": value, "n": 1000}
            | {"low": value - 1, "high": value + 1}
        )

    for name, subsets in SUBSETS.items():
        for task in ("sts", "sts-tokenised"):
            yield one(task, name, "spearman", quality)
            yield one(task, name, "pearson", quality + 1)
            for variant in ("mean", "wmean", *(f"subset-{k}" for k in range(subsets))) if subsets else ():
                yield one(task, name, "spearman", quality + 2, variant)
    yield one("sts", "STSB", "spearman", quality + 3, split="dev")
    yield from (one("classification", name, "accuracy", quality + 5) for name in CLASSES)
    yield from (one("retrieval", "quora", metric, quality - 5) for metric in ("mrr@10", "ndcg@10", "recall@100"))


def index_costs(dim: int, quality: float) -> Iterator[IndexCost]:
    for number, kind in enumerate(("flat", "ivf", "hnsw", "int8")):
        yield IndexCost.model_validate(
            {"set": "quora", "split": "test", "kind": kind, "nlist": None, "nprobe": None, "documents": 20_000}
            | {"queries": 5_000, "build_s": 0.1, "bytes": 4 * dim * 20_000, "ms_per_1000_queries": dim / (number + 1)}
            | {"threads": 1, "mrr10": quality, "recall100": quality + 9, "overlap10_with_flat": 100 - 5 * number}
        )


def records(rows: int, trials: int) -> list[ScoreRecord | TrialRecord]:
    """A teacher and `rows` - 1 students of one sweep, and its trials of six parameters and eight rungs."""
    rng = np.random.default_rng(0)
    found: list[ScoreRecord | TrialRecord] = []
    for number in range(rows):
        dim = 384 if number == 0 else DIMS[number % len(DIMS)]
        quality = 80.0 if number == 0 else 80 - 100 / dim - float(rng.exponential(3))
        found.append(
            ScoreRecord.model_validate(
                {"record_id": f"{number:064x}", "run": "synthetic", "label": f"student {number} d={dim}", "dim": dim}
                | {"role": "student" if number else "teacher", "method": "mcr2" if number % 2 else "hpd"}
                | {"bytes_per_vector": 4 * dim, "teacher": "synthetic-teacher", "start": "layers", "parameters": 10**7}
                | {"trial": number, "hyperparameters": {"lr": 1e-4, "lambda": 100.0}, "seed": 0, "corpus": "synthetic"}
                | {"corpus_fingerprint": "f" * 64, "demonstration": False, "model": f"students/{number}"}
                | {"latency_ms": 1.0, "scores": [s.model_dump() for s in scores(quality)], "provenance": ORIGIN}
                | {"indexes": [c.model_dump() for c in index_costs(dim, quality)]}
            )
        )
    for number in range(trials):
        rungs = 8 if number % 3 == 0 else 1 + number % 7
        params: dict[str, Any] = {
            "output_dim": DIMS[number % len(DIMS)],
            "activation": "tanh" if number % 2 else "none",
        }
        params |= {name: float(10 ** rng.uniform(-4, 1)) for name in ("lr", "lambda", "beta", "tau")}
        value = float(rng.normal(0, 2))
        found.append(
            TrialRecord(
                run="synthetic",
                number=number,
                state="COMPLETE" if rungs == 8 else "PRUNED",
                reason="",
                method="mcr2",
                params=params,
                seed=0,
                dim=params["output_dim"],
                objective=value,
                rungs=[Rung(rung=k, step=50 * (k + 1), objective=value + k - rungs, metrics={}) for k in range(rungs)],
                provenance=ORIGIN,
            )
        )
    return found


def sorting_ms(page: Path, times: int = 15) -> list[float] | None:
    """Milliseconds from a click on a column's heading to the frame that shows the sorted rows; None without a browser."""
    binary, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if binary is None or driver is None:
        return None
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--disable-gpu", "--no-sandbox", "--disable-background-networking"):
        options.add_argument(argument)
    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        browser.set_window_size(1280, 900)
        browser.get(page.as_uri())
        # Drawing the figures is over once the page answers again.
        browser.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0], 1000))")
        script = """
            const [place, done] = arguments;
            const buttons = [...document.querySelectorAll('#board thead tr.titles th')]
              .filter(h => getComputedStyle(h).display !== 'none').map(h => h.querySelector('button'));
            const began = performance.now();
            buttons[place % buttons.length].click();
            document.body.getBoundingClientRect();
            requestAnimationFrame(() => setTimeout(() => done(performance.now() - began), 0));
        """
        return [float(browser.execute_async_script(script, place)) for place in range(times)]
    finally:
        browser.quit()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    made = records(chosen.rows, chosen.trials)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        page = write_report(made, Path(folder) / "report", title="Synthetic")
        wall = time.perf_counter() - began
        sizes = {p.name: p.stat().st_size for p in page.parent.iterdir() if p.is_file()}
        for name in ("encoders", "runs"):
            sizes[f"{name}/"] = sum(p.stat().st_size for p in (page.parent / name).iterdir())
        sorting = sorting_ms(page)
    found: dict[str, Any] = {"rows": chosen.rows, "trials": chosen.trials, "seconds": wall, "bytes": sizes}
    if sorting is not None:
        found["sorting ms"] = {"median": statistics.median(sorting), "most": max(sorting)}
    print(json.dumps(found, indent=1))
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
