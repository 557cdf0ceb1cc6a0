"""Samplers and stopping rules over recorded trials: the real searcher replayed in seconds, on virtual workers.

    python benchmarks/samplers.py                                all tables of benchmarks/recorded, 30 seeds
    python benchmarks/samplers.py --portfolio 2                  settings to try first, learnt from all tables of a method
    python benchmarks/samplers.py mcr2 hpd --seeds 5 --workers 1,8,64 --only random,tpe --answers surrogate

The budget is what full random search spends on 40 trials, or on twice as many as run at once: with 64 workers, on 128, for
which a table of 160 settings and fewer is too small. Every other search goes on until it has spent as many steps.
`full` is the share of the budget after which a search has what full random search of the same seed has at its end: the
median, and 90 % of the seeds. `best 1 %` is the share after which it has a setting of the best 1 % of a group, and in how
many groups it found one. Regrets are in points, after 1/9, 1/3 and all of the budget, with 95 % intervals over seeds. A
student is found when its trial ends, or waits for its verdict: a search that ends then can choose it.

The nearest recorded setting that is still unused answers for a suggestion (`--answers nearest`), or Gaussian processes that
are fitted to the table (`surrogate`). With `--keep FILE` every replay's measures are written to FILE, and no replay that
FILE has of the same table is done again, so an interrupted command goes on. Searches are those of `SEARCHES`. Those called
`prior` begin with settings that are learnt from the tables of the same method on other data, and are left out where there
is none.
"""

from __future__ import annotations

import argparse
import functools
import json
import lzma
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import optuna
from replay.answers import Nearest, Surrogate
from replay.measures import CHECKPOINTS, Goal, Measured, goal_of, interval, level, measured
from replay.portfolio import foreseen, others, portfolio
from replay.tables import Table, read_table
from replay.workers import Replayed, replay
from threadpoolctl import threadpool_limits

from distilbench.codes import CompetitionKey
from distilbench.search.search_plan import STARTUP, make_sampler
from distilbench.search.space import SearchSpace
from distilbench.search.suggestions import default_max_pending
from distilbench.storage.files import file_sha256

TABLES = Path(__file__).parent / "recorded"
FULL_TRIALS = 40
"""Trials of the full random search that others are compared with, where few run at once."""


class SearchKind(NamedTuple):
    """A sampler (of the product by its name, or one of Optuna's with options), and a stopping rule."""

    sampler: str
    stopping: str
    options: Mapping[str, Any] = MappingProxyType({})
    prior: int = 0
    """Settings that are tried first at every dimension, learnt from the tables of other data."""
    foreseen: bool = False
    """Whether the table's own settings are tried in the order that a model of all of them foresees."""


SEARCHES: dict[str, SearchKind] = {
    "random+none": SearchKind("random", "none"),
    "foreseen+none": SearchKind("random", "none", foreseen=True),
    "foreseen+asha": SearchKind("random", "asha", foreseen=True),
    "random+asha": SearchKind("random", "asha"),
    "random+halving": SearchKind("random", "halving"),
    "foreseen+halving": SearchKind("random", "halving", foreseen=True),
    "random, prior+halving": SearchKind("random", "halving", prior=2),
    "tpe+halving": SearchKind("tpe", "halving"),
    "random+hyperband": SearchKind("random", "hyperband"),
    "random+median": SearchKind("random", "median"),
    "tpe+asha": SearchKind("tpe", "asha"),
    "tpe, one by one+asha": SearchKind("tpe", "asha", {"multivariate": False}),
    "tpe, groups+asha": SearchKind("tpe", "asha", {"multivariate": True, "group": True}),
    "tpe, no liar+asha": SearchKind("tpe", "asha", {"constant_liar": False}),
    "random, prior+asha": SearchKind("random", "asha", prior=2),
    "tpe, prior+asha": SearchKind("tpe", "asha", prior=2),
    "tpe+hyperband": SearchKind("tpe", "hyperband"),
    "tpe+median": SearchKind("tpe", "median"),
    "tpe+none": SearchKind("tpe", "none"),
}


class Task(NamedTuple):
    """One replay."""

    table: Path
    answers: str
    search: str
    workers: int
    seed: int
    full: int = FULL_TRIALS
    """Trials of the full random search that it is compared with."""

    @property
    def budget(self) -> int:
        """Steps that it may spend."""
        return self.full * table_at(self.table).space.budget.steps


def full_trials(workers: int) -> int:
    """Trials of the full random search: with as many as run at once, no verdict would come before its end."""
    return max(FULL_TRIALS, 2 * workers)


def sampler_of(kind: SearchKind, space: SearchSpace, seed: int) -> optuna.samplers.BaseSampler:
    """The product's sampler, or TPE with other options."""
    if not kind.options:
        return make_sampler(space, seed)
    options = {"seed": seed, "constant_liar": True, "n_startup_trials": STARTUP, **kind.options}
    return optuna.samplers.TPESampler(**options)


@functools.lru_cache(maxsize=32)
def table_at(path: Path) -> Table:
    """A table, read once by each process."""
    return read_table(path)


@functools.lru_cache(maxsize=16)
def answers_of(path: Path, answers: str) -> Nearest | Surrogate:
    """What answers, made once by each process."""
    return Nearest(table_at(path)) if answers == "nearest" else Surrogate(table_at(path))


def elsewhere(path: Path) -> list[Path]:
    """The tables of the same method on other data."""
    tables = [table_at(other) for other in sorted(TABLES.glob("*.parquet"))]
    return [TABLES / f"{other.name}.parquet" for other in others(table_at(path), tables)]


@functools.lru_cache(maxsize=64)
def learnt(path: Path, size: int) -> tuple[dict[str, Any], ...]:
    """What a search over this table may know of others: settings to try first. None of its own trials is among them."""
    sources = [answers_of(other, "surrogate") for other in elsewhere(path)]
    return tuple(portfolio([source for source in sources if isinstance(source, Surrogate)], size))


@functools.lru_cache(maxsize=64)
def foreknown(path: Path) -> tuple[dict[str, Any], ...]:
    """The table's settings, the best first as far as a model can tell."""
    return tuple(foreseen(table_at(path)))


def can_have(search: str, path: Path) -> bool:
    """Whether there is something to learn a search's first settings from."""
    return not SEARCHES[search].prior or bool(elsewhere(path))


def goals_of(path: Path, answers: str) -> dict[CompetitionKey, Goal]:
    """What there is to find in each group."""
    table = table_at(path)
    source = answers_of(path, answers)
    values = source.values if isinstance(source, Surrogate) else table.values
    return {group: goal_of(values(group)) for group in table.groups}


def replayed(task: Task, search: str) -> Replayed:
    """Replay a search, until it has spent its budget."""
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    kind, table = SEARCHES[search], table_at(task.table)
    full, hyperband = search == "random+none", kind.stopping == "hyperband"
    trials = task.full if full else min(5 * task.full, len(table.settings))
    budget = table.space.budget.model_copy(update={"stopping": "asha" if hyperband else kind.stopping})
    first = learnt(task.table, kind.prior) if kind.prior else foreknown(task.table) if kind.foreseen else ()
    space = table.space.model_copy(update={"searcher": kind.sampler, "budget": budget, "enqueue": first})
    return replay(
        space,
        answers_of(task.table, task.answers).afresh(),
        lambda stream: sampler_of(kind, space, task.seed + stream),
        wanted=trials,
        limit=math.inf if full else task.budget,
        workers=task.workers,
        max_pending=default_max_pending(task.workers),
        seed=task.seed,
        hyperband=hyperband,
    )


@functools.lru_cache(maxsize=1024)
def full_level(random: Task) -> float:
    """What full random search has found at its end."""
    return level(replayed(random, random.search).found, goals_of(random.table, random.answers))


def carried_out(task: Task) -> tuple[Task, Measured]:
    """A replay's measures."""
    result = replayed(task, task.search)
    full = full_level(task._replace(search="random+none"))
    return task, measured(result.found, goals_of(task.table, task.answers), task.budget, full)


@functools.lru_cache(maxsize=32)
def trials_of(table: Path) -> str:
    """A digest of the table that a replay was over."""
    return file_sha256(table)


def read_kept(path: Path | None, tables: Sequence[Path]) -> dict[Task, Measured]:
    """The replays over these tables that an earlier command has written, wherever the tables lay then."""
    if path is None or not path.exists():
        return {}
    asked, found = {trials_of(table): table for table in tables}, {}
    with (lzma.open if path.suffix == ".xz" else open)(path, "rt") as file:
        rows = [json.loads(line) for line in file]
    for row in rows:
        if table := asked.get(row["trials"]):
            found[Task(**row["task"] | {"table": table})] = Measured(**row["measured"])
    return found


def keep(path: Path, task: Task, result: Measured) -> None:
    """Add one replay to those that are written."""
    row = {"task": task._asdict() | {"table": task.table.stem}, "measured": result._asdict()}
    row["trials"] = trials_of(task.table)
    with (lzma.open if path.suffix == ".xz" else open)(path, "at") as file:
        file.write(json.dumps(row) + "\n")


def tell_portfolios(tables: Sequence[Table], size: int) -> None:
    """Print what the tables of each method say is good, as a search space has it."""
    by_method: dict[str, list[Surrogate]] = {}
    for table in tables:
        by_method.setdefault(table.space.method, []).append(Surrogate(table))
    for method, sources in by_method.items():
        print(f"{method}, from {', '.join(source.table.name for source in sources)}:\nenqueue:")
        for setting in portfolio(sources, size):
            print("  - " + json.dumps({name: _rounded(value) for name, value in setting.items()}))


def _rounded(value: Any) -> Any:
    return float(f"{value:.2g}") if isinstance(value, float) else value


def line(search: str, measures: Sequence[Measured]) -> str:
    """A row of the table."""
    levels = [m.level_at for m in measures]
    never = f"{100 * np.mean([math.isinf(at) for at in levels]):.0f} %"
    nine = float(np.quantile(levels, 0.9, method="higher"))
    cells = [search, _percent(float(np.median(levels))), _percent(nine), never]
    cells += [
        f"{100 * interval([m.top_at for m in measures])[0]:.0f} %",
        f"{100 * np.mean([m.top_found for m in measures]):.0f} %",
    ]
    for position in range(len(CHECKPOINTS)):
        mean, low, high = interval([m.regrets[position] for m in measures])
        cells.append(f"{mean:.2f} ({low:.2f} to {high:.2f})")
    return "| " + " | ".join(cells) + " |"


def _percent(share: float) -> str:
    return "never" if math.isinf(share) else f"{100 * share:.0f} %"


def tell(path: Path, answers: str, workers: int, results: dict[str, list[Measured]]) -> None:
    """Print the table of one space."""
    table = table_at(path)
    budget = f"{workers} at once, steps of {full_trials(workers)} trials"
    settings = f"{len(table.settings)} settings, groups {table.groups}"
    print(f"\n## {table.name}, {budget}, answered by {answers}: {settings}")
    if answers == "surrogate":
        source = answers_of(path, answers)
        assert isinstance(source, Surrogate)
        print(f"Held-out results agree with the surrogate's: Spearman {source.agreement:.2f}")
    print("\n| search | full: median | 90 % | never | best 1 % after | found | regret at 1/9 | 1/3 | all |")
    print("|---" * 9 + "|")
    for search, measures in results.items():
        print(line(search, measures))


def tell_shares(results: dict[tuple[Path, int, str], list[Measured]], searches: Sequence[str]) -> None:
    """Print of every space after which share of the budget a search has what full random search of the same seed has."""
    spaces = sorted({(path, workers) for path, workers, _ in results})
    print(
        "\n## What full random search has at its end, after which share of the budget: the median, and 90 % of the seeds\n"
    )
    print("| search | " + " | ".join(f"{path.stem}, {workers} at once" for path, workers in spaces) + " |")
    print("|---" * (len(spaces) + 1) + "|")
    for search in searches:
        cells = []
        for path, workers in spaces:
            levels = [m.level_at for m in results.get((path, workers, search), ())]
            nine = float(np.quantile(levels, 0.9, method="higher")) if levels else math.nan
            cells.append(f"{_percent(float(np.median(levels)))}, {_percent(nine)}" if levels else "")
        if any(cells):
            print("| " + " | ".join([search, *cells]) + " |")


def tell_overall(results: dict[tuple[Path, int, str], list[Measured]], searches: Sequence[str]) -> None:
    """Print over all spaces: each search beside random with ASHA, the difference of regrets in standard deviations."""
    spaces = sorted({(path, workers) for path, workers, _ in results})
    if ("random+asha" not in searches) or not spaces:
        return
    print("\n## All spaces: regret minus that of random+asha, as a share of its regret at 1/9; below 0 is better\n")
    print("| search | at 1/9 | at 1/3 | all | spaces in which it is better at 1/3 |")
    print("|---" * 5 + "|")
    for search in searches:
        gains: list[list[float]] = [[] for _ in CHECKPOINTS]
        better = 0
        for path, workers in spaces:
            ours, base = results.get((path, workers, search)), results[path, workers, "random+asha"]
            if not ours:
                continue
            unit = max(float(np.mean([m.regrets[0] for m in base])), 1e-9)
            for position in range(len(CHECKPOINTS)):
                pairs = zip(ours, base, strict=False)  # by seed
                gains[position] += [(a.regrets[position] - b.regrets[position]) / unit for a, b in pairs]
            better += float(np.mean([m.regrets[1] for m in ours])) < float(np.mean([m.regrets[1] for m in base]))
        if not gains[0]:
            continue
        cells = [f"{100 * m:+.0f} % ({100 * lo:+.0f} to {100 * hi:+.0f})" for m, lo, hi in map(interval, gains)]
        print(f"| {search} | " + " | ".join(cells) + f" | {better} of {len(spaces)} |")


def main() -> None:
    """Replay, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "tables", nargs="*", help="names of tables, or their files; default: all of benchmarks/recorded"
    )
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--workers", default="8", help="virtual workers, several with commas")
    parser.add_argument("--answers", choices=("nearest", "surrogate", "both"), default="nearest")
    parser.add_argument("--only", default="", help="searches whose names begin so, with semicolons between")
    parser.add_argument(
        "--portfolio", type=int, default=0, help="print so many settings to try first, learnt from the tables"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument(
        "--keep", type=Path, help="write every replay to this file (.jsonl, .jsonl.xz), and do none that it has"
    )
    given = parser.parse_args()
    paths = [Path(t) if t.endswith(".parquet") else TABLES / f"{t}.parquet" for t in given.tables]
    paths = paths or sorted(TABLES.glob("*.parquet"))
    named = [name for name in given.only.split(";") if name]
    searches = [s for s in SEARCHES if not named or any(s.startswith(name) for name in named)]
    kinds = ["nearest", "surrogate"] if given.answers == "both" else [given.answers]
    tasks = [
        Task(path, answers, search, workers, seed, full_trials(workers))
        for path in paths
        for answers in kinds
        for workers in map(int, given.workers.split(","))
        if 1.5 * full_trials(workers) <= len(table_at(path).settings)
        for search in searches
        if can_have(search, path)
        for seed in range(given.seeds)
    ]
    if given.portfolio:
        return tell_portfolios([table_at(path) for path in paths], given.portfolio)
    kept = read_kept(given.keep, paths)
    missing = [task for task in tasks if task not in kept]
    with ProcessPoolExecutor(given.processes, initializer=threadpool_limits, initargs=(1,)) as pool:
        for task, result in pool.map(carried_out, missing, chunksize=10):
            kept[task] = result
            if given.keep:
                keep(given.keep, task, result)
    every: dict[tuple[Path, str, int, str], list[Measured]] = {}
    for task in tasks:
        every.setdefault((task.table, task.answers, task.workers, task.search), []).append(kept[task])
    for path in paths:
        for answers in kinds:
            for workers in map(int, given.workers.split(",")):
                found = {s: m for s in searches if (m := every.get((path, answers, workers, s)))}
                if found:
                    tell(path, answers, workers, found)
    for answers in kinds:
        print(f"\nAnswered by {answers}:")
        answered = {(p, w, s): m for (p, a, w, s), m in every.items() if a == answers}
        tell_shares(answered, searches)
        tell_overall(answered, searches)
    print(f"\n{len(tasks)} replays, {len(missing)} of them now.")


if __name__ == "__main__":
    main()
