"""Synthetic records: shapes of real ones, numbers from formulas. Nothing here was measured."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from distilbench.evaluation.examples import Examples, Pair, Query, Searched
from distilbench.records import IndexCost, Provenance, Rung, Score, ScoreRecord, TrialRecord

# Set, subsets (none: a single one), offset of its score from the row's quality.
STS = (("STS12", 5, -8.0), ("STS13", 3, 1.0), ("STS14", 6, -2.0), ("STSB", 0, 3.0))


def provenance(created_at: str = "2001-01-01T00:00:00Z") -> Provenance:
    return Provenance(
        created_at=created_at,
        commit="0123abc+changes",
        versions={"synthetic": "0.0"},
        device="no device: synthetic",
        cpus=1,
    )


def sts_scores(quality: float, dev: float, skip: tuple[str, ...] = ()) -> list[Score]:
    scores = []
    for name, subsets, offset in STS:
        if name in skip:
            continue
        common: dict[str, Any] = {"task": "sts", "set": name, "split": "test", "metric": "spearman"}
        scores.append(Score(**common, variant="all", value=quality + offset, n=1000))
        if subsets:
            scores.append(Score(**common, variant="wmean", value=quality + offset + 1.5, n=1000))
            scores += [
                Score(**common, variant=f"subset {k}", value=quality + offset + k, n=1000 // subsets)
                for k in range(subsets)
            ]
    scores.append(Score(task="sts", set="STSB", split="dev", metric="spearman", variant="all", value=dev, n=1500))
    return scores


def index_costs(dim: int, quality: float) -> list[IndexCost]:
    common: dict[str, Any] = {"set": "quora", "split": "test", "documents": 20000, "queries": 5000, "threads": 1}
    found = {"mrr10": quality - 20, "recall100": quality + 10, "overlap10_with_flat": 100.0}
    took = {"build_s": 0.01, "bytes": dim * 4 * 20000, "ms_per_1000_queries": dim * 0.9}
    flat = IndexCost(**common, **found, **took, kind="flat", nlist=None, nprobe=None)
    found = {"mrr10": quality - 23, "recall100": quality + 2, "overlap10_with_flat": 82.0}
    took = {"build_s": 1.234, "bytes": dim * 4 * 20000 + 160000, "ms_per_1000_queries": dim * 0.07}
    return [flat, IndexCost(**common, **found, **took, kind="ivf", nlist=1024, nprobe=5)]


def coded_cost(kind: str, overlap: float, **changes: Any) -> IndexCost:
    """The index of codes, of which `overlap` % of the first 10 are those of the float32 vectors."""
    fields = index_costs(64, 75.0)[0].model_dump() | {"kind": kind, "overlap10_with_flat": overlap} | changes
    return IndexCost(**fields)


def pair_scores(value: float, name: str = "QQP", split: str = "test", metrics: tuple[str, ...] = ("accuracy", "f1")):
    return [
        Score(task="pairs", set=name, split=split, metric=metric, variant="all", value=value + k, n=500)
        for k, metric in enumerate(metrics)
    ]


def score_record(label: str = "student-64", quality: float = 75.0, **changes: Any) -> ScoreRecord:
    dim = changes.get("dim", 64)
    scores = sts_scores(quality, changes.pop("dev", quality + 4), changes.pop("skip", ()))
    scores += changes.pop("pairs", [])
    searched: dict[str, Any] = {"task": "retrieval", "set": "quora", "split": "test", "variant": "all", "n": 5000}
    scores += [Score(**searched, metric="mrr@10", value=quality - 20)]
    scores += [Score(**searched, metric="recall@100", value=quality + 10)]
    fields: dict[str, Any] = {
        "record_id": f"id-{label}",
        "run": "synthetic",
        "label": label,
        "role": "student",
        "method": "hpd",
        "dim": dim,
        "bytes_per_vector": 4 * dim,
        "teacher": "synthetic-teacher",
        "start": "teacher layers 1,3,5",
        "parameters": 17_000_000,
        "trial": None if "configuration" in changes else 3,  # a comparison names its rows
        "hyperparameters": {"lr": 1e-4, "batch": 256, "activation": "identity"},
        "seed": 0,
        "corpus": "synthetic corpus",
        "corpus_fingerprint": "f" * 64,
        "demonstration": False,
        "scores": scores,
        "indexes": index_costs(dim, quality),
        "model": f"students/{label}",
        "provenance": provenance(),
    }
    return ScoreRecord(**(fields | changes))


def trial_record(number: int = 0, **changes: Any) -> TrialRecord:
    state = changes.pop("state", "COMPLETE")
    steps = changes.pop("steps", 300 if state == "COMPLETE" else 100)
    objective = changes.pop("objective", 70.0 + number % 7)
    fields: dict[str, Any] = {
        "run": "synthetic",
        "number": number,
        "state": state,
        "reason": {"COMPLETE": "finished", "PRUNED": "stopped at rung 0", "FAIL": "loss was not finite"}[state],
        "method": "hpd",
        "params": {"lr": 1e-4 * (number + 1), "dim": 64},
        "seed": 0,
        "dim": 64,
        "objective": objective,
        "rungs": [Rung(rung=k, step=100 * (k + 1), objective=objective, metrics={}) for k in range(steps // 100)],
        "provenance": provenance(),
    }
    return TrialRecord(**(fields | changes))


def whole_study(trials: int = 40) -> list[TrialRecord | ScoreRecord]:
    """A teacher of 384 dimensions, two baselines and two methods at four dimensions, and their trials."""
    records: list[TrialRecord | ScoreRecord] = [
        score_record(
            "synthetic-teacher",
            81.0,
            role="teacher",
            method="none",
            dim=384,
            start="as published",
            trial=None,
            hyperparameters={},
            parameters=22_713_216,
            model="",
        )
    ]
    for dim in (32, 64, 128, 256):
        loss = 120.0 / dim
        for method, role, penalty in (
            ("pca", "baseline", 1.2),
            ("random-projection", "baseline", 4.5),
            ("hpd", "student", 0.8),
            ("mcr2", "student", 2.0 - dim / 128),
        ):
            records.append(
                score_record(
                    f"{method}-{dim}",
                    80.5 - loss * penalty,
                    role=role,
                    method=method,
                    dim=dim,
                    trial=None if role == "baseline" else dim,
                    start="teacher (frozen)" if role == "baseline" else "teacher layers 1,3,5",
                )
            )
    for number in range(trials):
        state = "FAIL" if number % 19 == 7 else "PRUNED" if number % 3 else "COMPLETE"
        objective = None if state == "FAIL" else 79 - 14 / (number + 2) - (number * 7 % 11) / 2
        records.append(trial_record(number, state=state, objective=objective))
    return records


def rows_of_page(text: str) -> dict[str, dict[str, Any]]:
    found = re.search(r'<script type="application/json" id="rows">\n(.*?)\n</script>', text, re.S)
    assert found is not None
    rows = [json.loads(line) for line in found[1].splitlines()]
    return {row["name"]: row for row in rows}


def seeded_study() -> list[TrialRecord | ScoreRecord]:
    """A comparison: a teacher and PCA of one seed, students of three seeds at two dimensions in each quantisation.

    Quality of the students: 70 at d = 32 and 74 at d = 128, minus 1 for int8 and 6 for binary, -1, 0 and +1 by seed.
    """
    teacher = score_record("teacher d=384", 81.0, role="teacher", method="teacher", dim=384, trial=None, model="")
    records: list[TrialRecord | ScoreRecord] = [teacher]
    for dim, quality in ((32, 70.0), (128, 74.0)):
        records.append(
            score_record(
                f"PCA d={dim}",
                quality - 1,
                configuration=f"PCA-{dim}",
                role="baseline",
                method="pca",
                dim=dim,
                model="",
            )
        )
        for quantisation, loss, size in (("float32", 0.0, 4 * dim), ("int8", 1.0, dim), ("binary", 6.0, dim // 8)):
            for seed in (0, 1, 2):
                name, value = f"MCR2-{dim}-{quantisation}", quality - loss + seed - 1
                records.append(
                    score_record(
                        f"MCR2 d={dim}",
                        value,
                        record_id=f"{name}-seed{seed}",
                        configuration=name,
                        method="mcr2",
                        dim=dim,
                        quantisation=quantisation,
                        bytes_per_vector=size,
                        seed=seed,
                        model=f"students/{name}-seed{seed}",
                        pairs=pair_scores(value + 5) if quantisation == "float32" else [],
                    )
                )
    records += [trial_record(0, seed=seed) for seed in (0, 1, 2)]
    return records


def examples_of(text: str, **changes: Any) -> Examples:
    """22 of 40 queries lost, 20 of them drawn, one won, and two pairs that moved: all of the same `text`."""
    lost = [Query(place=q, query=f"{text} {q}", answer=text, rank=2, instead=text) for q in range(20)]
    won = [Query(place=39, query=text, answer=text, rank=1, instead="")]
    searched = Searched(queries=40, lost=22, won=1, lost_examples=lost, won_examples=won)
    moved = [Pair(one=text, two=text, gold=4.5, rank=1200.5, teacher_rank=3)] * 2
    return Examples(**({"searches": {"own": searched}, "sts": {"STS12": moved}, "text": text} | changes))


@pytest.fixture(scope="session")
def make_examples():
    """`examples_of(text, **changes)`: what a row loses."""
    return examples_of


@pytest.fixture(scope="session")
def page_rows():
    """`rows_of_page(text)`: by the name of a row what the leaderboard's page carries of it."""
    return rows_of_page


@pytest.fixture(scope="session")
def make_score():
    """`score_record(label, quality, **changes)`: STS sets at fixed offsets from `quality`, without those to `skip`; `dev`."""
    return score_record


@pytest.fixture(scope="session")
def make_trial():
    """`trial_record(number, state=..., steps=..., objective=..., **changes)`."""
    return trial_record


@pytest.fixture(scope="session")
def make_study():
    """`whole_study(trials)`: teacher, baselines, students and trials."""
    return whole_study


@pytest.fixture(scope="session")
def make_seeded():
    """`seeded_study()`: a comparison with three seeds, three quantisations, and pair tasks."""
    return seeded_study


@pytest.fixture(scope="session")
def make_pairs():
    """`pair_scores(value, name, split, metrics)`: the k-th metric is value + k."""
    return pair_scores


@pytest.fixture(scope="session")
def make_cost():
    """`coded_cost(kind, overlap, **changes)`: the index of a quantised row."""
    return coded_cost
