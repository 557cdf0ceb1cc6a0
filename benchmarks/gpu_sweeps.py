"""What benchmarks/gpu.py measures of trials: whole sweeps, each a process of its own, and what a trial scores where."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_bench import (
    Bench,
    gpu_processes,
    lines,
)
from gpu_faults import spec_of, trained
from gpu_training import small_corpus

# --- scores

SCORED: dict[str, dict[str, Any]] = {"hpd": {"epochs": 100_000}, "neighbours": {"steps": 100_000}}
"""They draw no numbers after their start, so that a CPU and a card train the same."""


def scores(bench: Bench) -> None:
    """What the same trials score on dev: trained on the CPU, on the card in float32, in bfloat16, and there once more."""
    prepared, _ = small_corpus(bench, bench.size(5000, 200))
    batch, steps = bench.size(64, 16), bench.size(300, 4)
    ways = {"cpu": ("cpu", "fp32"), "fp32": (bench.device, "fp32"), "bf16": (bench.device, "bf16")}
    for name, params in SCORED.items():
        with bench.attempt(name):
            found: dict[str, float | None] = {}
            for way, (device, precision) in {**ways, "bf16 again": ways["bf16"]}.items():
                chosen = {"precision": precision, **params}
                training = trained(spec_of(bench, prepared, f"{name}, {way}", batch, steps, name, chosen), device)
                if training.failed:
                    raise RuntimeError(f"{way}: {training.failed}")
                found[way] = training.rungs[-1].objective
            apart = {f"{way}_apart": (found[way] or 0) - (found["cpu"] or 0) for way in ("fp32", "bf16")}
            again = (found["bf16 again"] or 0) - (found["bf16"] or 0)
            bench.note(name, apart["bf16_apart"], "points of dev, bf16 on the card less fp32 on the CPU", **apart)
            bench.note(f"{name}, again", again, "points of dev, once more less the first time", found=found)


# --- headline, kill


def sweep_command(bench: Bench, name: str, trials: int, more: Sequence[str]) -> list[str]:
    """A sweep of HPD with all that it makes in the working folder."""
    places = [f"--{kind}={bench.work / kind}" for kind in ("runs", "store")]
    data = ["--data", str(bench.data)] if bench.data else []
    encoder = str(bench.encoder_folder())
    command = [sys.executable, "-m", "distilbench", "sweep", "--method", "hpd", "--teacher", encoder, *data, *places]
    limits = (
        f"--student auto:2 --name {name} --trials {trials} --no-dashboard --tasks sts --cpus {os.cpu_count()}".split()
    )
    return [*command, *limits, "--space", str(space_file(bench)), *more]


def space_file(bench: Bench) -> Path:
    """benchmarks/gpu-hpd.yaml, with a few steps of small batches where there is no card."""
    space = Path(__file__).with_name("gpu-hpd.yaml")
    if not bench.cpu:
        return space
    small = bench.work / "space.yaml"
    text = space.read_text().replace("steps: 2400", "steps: 9").replace("[128, 256]", "[16]")
    small.write_text(text.replace("[64, 128]", "[8, 16]"))
    return small


def run_sweep(bench: Bench, name: str, trials: int, more: Sequence[str], kill_after: int | None = None) -> float:
    """Run a sweep, its output in OUT/STEP.log; seconds. With `kill_after` its driver is killed after so many records."""
    log, records = bench.out / f"{bench.step}.log", bench.work / "runs" / name / "trials.jsonl"
    began = time.perf_counter()
    with log.open("a") as file:
        driver = subprocess.Popen(sweep_command(bench, name, trials, more), stdout=file, stderr=subprocess.STDOUT)
    try:
        while driver.poll() is None and not (kill_after and len(lines(records)) >= kill_after):
            time.sleep(0.2)
        if driver.poll() is None:
            driver.send_signal(signal.SIGKILL)
        elif driver.returncode:
            raise RuntimeError(f"sweep ended with {driver.returncode}: {log.read_text()[-1000:]}")
    finally:
        if driver.poll() is None:
            driver.terminate()
        driver.wait(15)
    return time.perf_counter() - began


def headline(bench: Bench) -> None:
    """Minutes of a whole sweep by stage, and how busy the card was."""
    card = None if bench.cpu else bench.out / "card.csv"
    fields = "timestamp,utilization.gpu,memory.used,power.draw"
    watch = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits", "-l", "1"]
    watcher = None
    if card is not None:
        with bench.attempt("watch the card"), card.open("w") as file:
            watcher = subprocess.Popen(watch, stdout=file, stderr=subprocess.DEVNULL)
    more = [] if bench.cpu else ["--max-sentences", "0"]
    small = [] if bench.data else ["--max-pairs", "200", "--max-sentences", "400"]
    run = bench.work / "runs" / "headline"
    try:
        took = run_sweep(bench, "headline", bench.trials, more + small)
        bench.note("start to leaderboard", took / 60, "minutes", trials=bench.trials)
    finally:
        if watcher is not None:
            watcher.terminate()
        for name in ("trials.jsonl", "timings.json"):
            if (run / name).exists():
                shutil.copy(run / name, bench.out / f"headline-{name}")
        records = lines(run / "trials.jsonl")
        bench.note("records", len(records), "", states=[str(r.get("state", r.get("status"))) for r in records][:80])
        if card is not None and card.exists():
            busy = [float(row.split(",")[1]) for row in card.read_text().splitlines() if row.count(",") == 3]
            bench.note("the card was busy", statistics.mean(busy) if busy else None, "%, mean")
    for stage in json.loads((run / "timings.json").read_text()):
        bench.note(
            f"stage {stage['stage']}", float(stage["seconds"]), "s", **{k: stage[k] for k in ("count", "workers")}
        )


def kill(bench: Bench) -> None:
    """Twelve trials: killed after four records and started again, beside the same without a break.

    On the CPU they are those of `headline`, which is the sweep without a break where it has run on the same text.
    """
    more = ["--max-sentences", "2000"] if bench.data else ["--max-pairs", "200", "--max-sentences", "400"]
    trials = bench.size(12, bench.trials)
    bench.note("until killed", run_sweep(bench, "killed", trials, more, kill_after=bench.size(4, 1)), "s")
    records = bench.work / "runs" / "killed" / "trials.jsonl"
    known = lines(records)
    began = time.perf_counter()
    while not bench.cpu and set(gpu_processes()) - {os.getpid()} and time.perf_counter() - began < 30:
        time.sleep(0.5)
    bench.note("until no process was on the card", time.perf_counter() - began, "s")
    bench.note("started again", run_sweep(bench, "killed", trials, more), "s")
    kept = lines(records)[: len(known)] == known
    bench.note("records of before as they were", str(kept), "", records=len(known))
    whole = "whole"
    if bench.cpu and not bench.data and (bench.work / "runs" / "headline" / "timings.json").exists():
        whole = "headline"
    else:
        bench.note("without a break", run_sweep(bench, whole, trials, more), "s")
    both = [lines(bench.work / "runs" / name / "trials.jsonl") for name in ("killed", whole)]
    bench.note("records (killed, whole)", str([len(records) for records in both]), f"of {trials}")
    objectives = [{r.get("number"): r.get("objective") for r in records} for records in both]
    bench.note("objectives", str(objectives[0] == objectives[1]), "equal", killed=objectives[0], whole=objectives[1])
