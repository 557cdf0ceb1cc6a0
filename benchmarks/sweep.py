"""What the search itself costs per trial, beside Optuna alone and Ray Tune's own OptunaSearch; and a thousand trials.

    python benchmarks/sweep.py overhead [--trials 24] [--steps 50] [--rounds 3] [--store DIR] [--json FILE]
    python benchmarks/sweep.py thousand [--trials 1000] [--method random_projection] [--store DIR] [--json FILE]

`overhead` searches the same space (MCR2's head on the frozen teacher's embeddings; one rung, so nothing is stopped early)
several ways, in turn in this run, each with the same seed, trials and steps and with one torch thread per trial:

* Optuna's ask and tell in this process, on SQLite and in memory: the floor;
* Ray Tune with `OptunaSearch` and a function trainable, as its documentation has it, with 1 and 2 trials at a time;
* the sweep's search stage, with 1 and 2 trials at a time.

Overhead is wall time minus the time in training and dev evaluation inside trials; with 2 at a time, minus half of that.
"in all" is from the call to its return, with the start of the workers; "once warm" is from the end of the first trial of
each worker to the end of the last trial. Loading the prepared data and building the method count as overhead everywhere;
the sweep's checkpoint of each trial, which the others do not write, counts as training. Ray runs already, and the teacher's
embeddings are in the store.

`thousand` runs trials that do next to nothing, two at a time, and watches the time per trial, memory and files as they grow.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import optuna
import psutil
import torch
from rich.console import Console

from distilbench.cluster.resources import ray_cluster, trial_resources
from distilbench.data.about import DEMONSTRATION
from distilbench.data.folder import folder_corpus
from distilbench.methods import get_method
from distilbench.methods.method import requirements_of
from distilbench.prepare.prepared import load_prepared
from distilbench.prepare.stage import prepare_corpus
from distilbench.records import TrialRecord, read_records
from distilbench.search.space import SearchSpace
from distilbench.search.space_files import load_space
from distilbench.settings.sweep import SweepSettings
from distilbench.training.loop import Trainer
from distilbench.trials.dev import dev_report
from distilbench.trials.rung_training import build_method

CPUS = 2
SPACES = Path(__file__).resolve().parents[1] / "search_spaces" / "small"


class Task(NamedTuple):
    """What every peer searches."""

    prepared: Path
    space: SearchSpace
    seed: int


class Searched(NamedTuple):
    """One search: when it was called and had returned, when each trial ended (rising), seconds of training in each."""

    began: float
    ended: float
    ends: list[float]
    training: list[float]


def our_search(task: Task, run: Path, concurrency: int) -> tuple[list[float], list[float]]:
    """The search stage alone: each trial's end and seconds of training, in the order in which they ended."""
    from distilbench.progress.console import ProgressFile, on_console
    from distilbench.progress.tally import Tally
    from distilbench.search.run_trials import SearchPlace, run_trials
    from distilbench.search.search_plan import Search
    from distilbench.search.starts import starts_for
    from distilbench.search.study import open_study, study_url

    study, trials = open_study(study_url(run), run.name), task.space.budget.trials
    starts = starts_for(task.space, trials)
    search = Search(run.name, task.space, ("quality",), trials, starts, max(8, concurrency), task.seed)
    tally = Tally(run, task.space.method, trials)
    tally.listeners += [on_console(tally, Console(file=io.StringIO())), ProgressFile(tally)]
    resources = replace(trial_resources(), concurrency=concurrency)
    try:
        run_trials(study, search, SearchPlace(run, task.prepared, resources), tally)
    finally:
        tally.close()
    ends = sorted(t.datetime_complete.timestamp() for t in study.trials if t.datetime_complete)
    records = [r for r in read_records(run / "trials.jsonl") if isinstance(r, TrialRecord)]
    return ends, [record.seconds for record in records]


def trained(task: Task, params: dict[str, Any]) -> tuple[float, float]:
    """Objective and seconds of training and dev evaluation of one trial."""
    prepared = load_prepared(task.prepared)
    method = build_method(task.space.method, params, prepared, task.seed, "cpu")
    trainer = Trainer(method, task.seed, task.space.budget.steps)
    began = time.perf_counter()
    trainer.train_until(trainer.total_steps)
    objective, _, _ = dev_report(method, task.prepared, prepared)
    return objective, time.perf_counter() - began


def optuna_alone(task: Task, run: Path, *, storage: bool) -> tuple[list[float], list[float]]:
    url = f"sqlite:///{run / 'study.db'}" if storage else None
    study = optuna.create_study(
        storage=url, direction="maximize", sampler=optuna.samplers.TPESampler(seed=task.seed, n_startup_trials=8)
    )
    ends, training = [], []
    for _ in range(task.space.budget.trials):
        trial = study.ask()
        objective, seconds = trained(task, task.space.suggest(trial))
        study.tell(trial, objective)
        ends.append(time.time())
        training.append(seconds)
    return ends, training


def _suggest(space: SearchSpace, trial: optuna.Trial) -> None:
    space.suggest(trial)  # OptunaSearch keeps what is suggested


def _tune_trial(config: dict[str, Any], task: Task) -> None:
    from ray import tune

    torch.set_num_threads(1)
    objective, seconds = trained(task, {**task.space.fixed, **config})
    tune.report({"objective": objective, "training": seconds})


def optuna_search(task: Task, run: Path, concurrency: int) -> tuple[list[float], list[float]]:
    from ray import tune
    from ray.tune.search.optuna import OptunaSearch

    ends, training = [], []

    class Ends(tune.Callback):  # type: ignore[misc]
        def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            ends.append(time.time())
            training.append(trial.last_result["training"])

    tuner = tune.Tuner(
        tune.with_parameters(_tune_trial, task=task),
        tune_config=tune.TuneConfig(
            search_alg=OptunaSearch(
                functools.partial(_suggest, task.space), metric="objective", mode="max", seed=task.seed
            ),
            num_samples=task.space.budget.trials,
            max_concurrent_trials=concurrency,
        ),
        run_config=tune.RunConfig(name="peer", storage_path=str(run), callbacks=[Ends()], verbose=0),
    )
    with defaults():
        errors = tuner.fit().errors
    if errors:
        raise errors[0]
    return ends, training


@contextlib.contextmanager
def defaults() -> Iterator[None]:
    """Without the settings of Tune that our own cluster makes."""
    ours = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("TUNE_")}
    try:
        yield
    finally:
        os.environ.update(ours)


PEERS: dict[str, tuple[int, Callable[[Task, Path], tuple[list[float], list[float]]]]] = {
    "Optuna alone, in memory": (1, functools.partial(optuna_alone, storage=False)),
    "Optuna alone, SQLite": (1, functools.partial(optuna_alone, storage=True)),
    "Ray Tune, OptunaSearch, 1 at a time": (1, functools.partial(optuna_search, concurrency=1)),
    "Ray Tune, OptunaSearch, 2 at a time": (2, functools.partial(optuna_search, concurrency=2)),
    "sweep, 1 at a time": (1, functools.partial(our_search, concurrency=1)),
    "sweep, 2 at a time": (2, functools.partial(our_search, concurrency=2)),
}


def searched(search: Callable[[Task, Path], tuple[list[float], list[float]]], task: Task, run: Path) -> Searched:
    """Time one search in the new folder `run`.

    Raises:
        RuntimeError: it did not finish as many trials as it was asked to.
    """
    run.mkdir(parents=True)
    began = time.time()
    ends, training = search(task, run)
    found = Searched(began, time.time(), ends, training)
    if not len(ends) == len(training) == task.space.budget.trials:
        raise RuntimeError(f"{run.name}: {len(ends)} trials ended, {task.space.budget.trials} were asked for")
    return found


def per_trial(found: Searched, concurrency: int) -> dict[str, float]:
    """Seconds per trial: wall and overhead, in all and once warm."""
    count, warm = len(found.ends), len(found.ends) - concurrency
    wall, warm_wall = found.ended - found.began, found.ends[-1] - found.ends[concurrency - 1]
    return {
        "training": statistics.mean(found.training),
        "wall, in all": wall / count,
        "overhead, in all": (wall - sum(found.training) / concurrency) / count,
        "wall, once warm": warm_wall / warm,
        "overhead, once warm": (warm_wall - sum(found.training[concurrency:]) / concurrency) / warm,
    }


def overhead(chosen: argparse.Namespace) -> dict[str, Any]:
    names = [name for name in PEERS if chosen.only in name]
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder, ray_cluster(None, CPUS, dashboard=False):
        task = prepared_task(chosen, Path(folder))
        for number in range(chosen.rounds):
            for name in names:
                concurrency, search = PEERS[name]
                run = Path(folder) / f"{number}-{name}".replace(" ", "-").replace(",", "")
                rounds[name].append(per_trial(searched(search, task, run), concurrency))
    measures = list(rounds[names[0]][0])
    print(f"{'ms per trial: median (lowest to highest round)':<46}" + "".join(f"{m:>24}" for m in measures))
    for name in names:
        cells = []
        for measure in measures:
            values = [1000 * r[measure] for r in rounds[name]]
            cells.append(f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})")
        print(f"{name:<46}" + "".join(f"{cell:>24}" for cell in cells))
    return {**conditions(chosen), "steps": chosen.steps, "seconds_per_trial": rounds}


def thousand(chosen: argparse.Namespace) -> dict[str, Any]:
    concurrency = 2
    with tempfile.TemporaryDirectory() as folder, ray_cluster(None, CPUS, dashboard=False):
        task = prepared_task(chosen, Path(folder))
        run = Path(folder) / "run"
        with watched(run) as seen:
            found = searched(functools.partial(our_search, concurrency=concurrency), task, run)
    count = len(found.ends)
    starts = list(range(0, count, max(1, count // 10)))
    windows = []
    for start, stop in zip(starts, [*starts[1:], count], strict=True):
        first = max(start, concurrency)  # the first trial of each worker waits for its process
        seconds = (found.ends[stop - 1] - found.ends[first - 1]) / max(1, stop - first)
        # The last sample before the window's end: as old as the time between samples.
        at = max((s for s in seen if s["time"] <= found.ends[stop - 1]), key=lambda s: s["time"], default=seen[0])
        windows.append({"trials": stop, "ms_per_trial": 1000 * seconds, **{k: v for k, v in at.items() if k != "time"}})
    names = list(windows[0])
    print("".join(f"{name:>17}" for name in names))
    for window in windows:
        print("".join(f"{value:>17,.0f}" if name == "trials" else f"{value:>17,.1f}" for name, value in window.items()))
    ratio = windows[-1]["ms_per_trial"] / windows[0]["ms_per_trial"]
    result = {
        "first_trial_s": found.ends[0] - found.began,
        "after_last_trial_s": found.ended - found.ends[-1],
        "wall_s": found.ended - found.began,
        "training_ms_per_trial": 1000 * statistics.mean(found.training),
        "last_window_to_first": ratio,
    }
    print("  ".join(f"{name} {value:.2f}" for name, value in result.items()))
    return {**conditions(chosen), **result, "windows": windows}


@contextlib.contextmanager
def watched(run: Path, every_s: float = 2.0) -> Iterator[list[dict[str, float]]]:
    """Samples of resident memory (MB: this process, trial workers, raylet, GCS) and of the size of files of `run` (MB)."""
    seen: list[dict[str, float]] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            seen.append({"time": time.time(), **memory(), **files(run)})
            stop.wait(every_s)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def memory() -> dict[str, float]:
    me = psutil.Process()
    found = {"driver_MB": me.memory_info().rss / 1e6, "workers": 0.0}
    found |= dict.fromkeys(("workers_MB", "raylet_MB", "gcs_server_MB"), 0.0)
    for process in me.children(recursive=True):
        with contextlib.suppress(psutil.Error, IndexError):
            name, rss = process.cmdline()[0].rpartition("/")[2], process.memory_info().rss / 1e6
            if name.startswith("ray::") and not name.startswith("ray::IDLE"):
                found["workers"] += 1
                found["workers_MB"] += rss
            elif f"{name}_MB" in found:
                found[f"{name}_MB"] += rss
    return found


def files(run: Path) -> dict[str, float]:
    def size(path: Path) -> float:
        with contextlib.suppress(FileNotFoundError):  # of a temporary file
            return path.stat().st_size / 1e6
        return 0.0

    # Files only: a thousand empty folders are 4 MB more on most disks.
    return {
        "study.db_MB": sum(size(path) for path in run.glob("study.db*")),
        "tune_MB": sum(size(Path(root) / name) for root, _, names in os.walk(run / "tune") for name in names),
        "tune_folders": float(sum(len(folders) for _, folders, _ in os.walk(run / "tune"))),
    }


def prepared_task(chosen: argparse.Namespace, folder: Path) -> Task:
    """The space with the budget asked for, and what its trials read, from the store where it is there."""
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    method = get_method(chosen.method)
    settings = SweepSettings(
        method=(chosen.method,),
        teacher=chosen.teacher,
        max_sentences=chosen.max_sentences,
        store=chosen.store,
        seed=chosen.seed,
    )
    native = method.native_dim(settings.teacher_encoder, settings.student)
    space = load_space(SPACES / f"{chosen.method}.yaml", chosen.method, method.params_type, native)
    budget = space.budget.model_copy(update={"trials": chosen.trials, "steps": chosen.steps, "rungs": 1})
    space = space.model_copy(update={"budget": budget})
    corpus = folder_corpus(DEMONSTRATION, settings.limits, method.needs(space.possible))
    method.check_corpus(space.possible, corpus, native)
    made = prepare_corpus(settings, corpus, requirements_of([(method, space.possible)]), Console(file=io.StringIO()))
    made.save(folder / "prepared", settings)
    return Task(folder / "prepared", space, chosen.seed)


def conditions(chosen: argparse.Namespace) -> dict[str, Any]:
    return {
        "method": chosen.method,
        "trials": chosen.trials,
        "seed": chosen.seed,
        "max_sentences": chosen.max_sentences,
        "cpus": len(os.sched_getaffinity(0)),
        "load_at_the_end": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("overhead", "thousand"))
    parser.add_argument("--method", help="default: mcr2 for overhead, random_projection for thousand")
    parser.add_argument("--trials", type=int, help="default: 24 and 1000")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="of overhead: the peers with this in their name")
    parser.add_argument("--max-sentences", type=int, help="of the demonstration; default: 1000 and 200")
    parser.add_argument("--teacher", default="all-MiniLM-L6-v2")
    parser.add_argument("--store", type=Path, default=Path(tempfile.gettempdir()) / "distilbench-benchmark-store")
    parser.add_argument("--json", type=Path, help="where the numbers are written")
    chosen = parser.parse_args()
    small = chosen.what == "thousand"
    chosen.method = chosen.method or ("random_projection" if small else "mcr2")
    chosen.trials = chosen.trials or (1000 if small else 24)
    chosen.max_sentences = chosen.max_sentences or (200 if small else 1000)
    found = (thousand if small else overhead)(chosen)
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
