"""One trial, as its worker runs it, with the searcher beside it: embeddings that collapse, losses that diverge."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optuna.trial import FrozenTrial, TrialState
from simulated import Events

from distilbench.evaluation.geometry import geometry
from distilbench.methods.mcr2 import MCR2 as Mcr2
from distilbench.methods.mcr2 import MCR2Params as Mcr2Params
from distilbench.methods.method import Method
from distilbench.prepare.prepared import load_prepared
from distilbench.records import Score, TrialRecord, append_records, read_records
from distilbench.search.run_trials import trial_record
from distilbench.search.search_plan import Search
from distilbench.search.searcher import RungScheduler, StudySearcher
from distilbench.search.space import SearchSpace
from distilbench.search.space_files import load_space
from distilbench.search.starts import starts_for
from distilbench.search.study import best_per_group, open_study, study_url
from distilbench.search.trial import TrialTrainable
from distilbench.training.params import Params
from distilbench.trials.dev import dev_report
from distilbench.trials.rung_training import build_method

MCR2 = """
method: mcr2
budget: {trials: 1, steps: 18, rungs: 3, eta: 3, start: false}
parameters: {lr: {low: 0.001, high: 0.01}}
enqueue: [{lr: 0.003}]
fixed: {output_dim: 8, batch_size: 16, clusters: 4, lambda: LAMBDA}
"""


class Trial:
    """A sweep of one trial in a folder, driven as Tune drives it: to the end, or to the report after which it is killed."""

    def __init__(self, run: Path, prepared: Path, yaml: str, params: type[Params] = Mcr2Params) -> None:
        self.run, self.prepared = run, prepared
        run.mkdir(exist_ok=True)
        (run / "space.yaml").write_text(yaml)
        self.method = "pca" if params is Params else "mcr2"
        self.space: SearchSpace = load_space(run / "space.yaml", self.method, params, native=32)
        self.study = open_study(study_url(run), "s")
        self.search = Search("r", self.space, ("quality",), 1, starts_for(self.space, 1), max_pending=1, seed=0)
        self.events = Events()
        self.results: list[dict[str, Any]] = []

    @property
    def finished(self) -> list[FrozenTrial]:
        return self.events.ended

    def drive(self, reports: int = 99) -> TrialTrainable:
        s = self.search
        searcher = StudySearcher(self.study, s, 1, self.events)
        suggested = searcher.suggest("a")
        assert isinstance(suggested, dict)
        config = {"run": str(self.run), "prepared": str(self.prepared), "method": self.method, "seed": 0, "gpus": 0}
        config |= {"cpus": 1, "costs": {}, "deadline": math.inf}
        trainable = TrialTrainable({**config, "budget": self.space.budget.model_dump(), **suggested})
        tune_trial = type("TuneTrial", (), {"trial_id": "a"})()
        for _ in range(reports):
            result = trainable.step()
            self.results.append(result)
            if result["done"]:
                searcher.on_trial_complete("a", result)
                break
            if RungScheduler(searcher).on_trial_result(None, tune_trial, result) == "STOP":
                searcher.on_trial_complete("a", result)
                break
        return trainable

    def record(self) -> TrialRecord:
        """The record, through its file."""
        [trial] = self.finished
        append_records(self.run / "trials.jsonl", [trial_record(trial, self.search)])
        [record] = read_records(self.run / "trials.jsonl")
        assert isinstance(record, TrialRecord)
        return record


def test_a_trial_reports_its_rungs_and_the_shape_of_its_embeddings(tmp_path: Path, prepared_folder: Path) -> None:
    trial = Trial(tmp_path / "r", prepared_folder, MCR2.replace("LAMBDA", "50"))
    training = trial.drive().training
    assert [(r["rung"], r["step"], r["final"]) for r in trial.results] == [(1, 2, False), (2, 6, False), (3, 18, True)]
    record = trial.record()
    assert (record.state, record.reason, len(record.rungs)) == ("COMPLETE", "", 3)
    assert record.result is not None
    best, metrics = record.result.metrics, record.rungs[-1].metrics
    assert best["dev_score"] - best["dev_pca_score"] == pytest.approx(record.objective)
    assert metrics.keys() >= {
        "dev_score",
        "dev_pca_score",
        "effective_rank",
        "variance",
        "loss",
        "rung_seconds",
        "peak_mb",
    }
    assert training is not None
    shape = geometry(training.method.embed(load_prepared(prepared_folder).selection.rows))
    assert (metrics["effective_rank"], metrics["variance"]) == pytest.approx(shape)


@pytest.mark.parametrize(
    ("scale", "shift", "reason"),
    [
        # One embedding for all sentences but for a little noise; or all of them on one line.
        (
            [1.0] * 8,
            10000.0,
            r"collapsed: the unit vectors have \d\S*e-\d\d of the teacher's variance, below 0\.005: .* 1",
        ),
        ([1.0] + [1e-4] * 7, 0.0, r"collapsed: effective rank 1\.\d\d of 8 dimensions, below 1\.5"),
    ],
)
@pytest.mark.parametrize("rung", [1, 2, 3])
def test_a_collapsed_trial_fails_with_the_reason_and_keeps_its_metrics(
    tmp_path: Path,
    prepared_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    rung: int,
    scale: list[float],
    shift: float,
    reason: str,
) -> None:
    trial = Trial(tmp_path / "r", prepared_folder, MCR2.replace("LAMBDA", "50"))
    real, calls = Mcr2.embed, []

    def collapsing(self: Mcr2, rows: np.ndarray) -> np.ndarray:
        calls.append(len(rows))
        vectors = real(self, rows)
        if len(calls) < rung:
            return vectors
        return ((vectors - vectors.mean(axis=0)) / vectors.std(axis=0) * scale + shift).astype(np.float32)

    monkeypatch.setattr(Mcr2, "embed", collapsing)
    trial.drive()
    assert len(trial.results) == len(calls) == rung  # nothing is trained after it
    assert [t.state for t in trial.finished] == [TrialState.FAIL]
    record = trial.record()
    assert record.state == "FAIL"
    assert re.fullmatch(reason, record.reason), record.reason
    assert trial.study.trials[0].user_attrs["reason"] == record.reason
    assert [r.rung for r in record.rungs] == list(range(1, rung + 1))
    last = record.rungs[-1].metrics
    measured = (f"{last['relative_variance']:.2g}", f"{last['effective_rank']:.2f}")
    assert any(number in record.reason for number in measured)
    assert last["dev_score"] is not None and last["loss"] is not None
    assert record.rungs[-1].step == [2, 6, 18][rung - 1]
    assert best_per_group(trial.study.trials) == {}  # however good its last score was


def test_a_methods_own_task_is_the_objective(prepared_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = load_prepared(prepared_folder)
    scores = {
        "dev": [
            Score(task="pairs", set="MRPC", split="dev", metric="f1", variant="all", value=70.0, n=9),
            Score(task="pairs", set="MRPC", split="dev", metric="accuracy", variant="all", value=60.0, n=9),
        ],
        "test": [Score(task="pairs", set="MRPC", split="test", metric="f1", variant="all", value=99.0, n=9)],
    }
    monkeypatch.setattr(Method, "task_scores", lambda self, split: scores[split])
    method = build_method("pca", {"output_dim": 8}, prepared, 0, "cpu")
    objective, metrics, collapsed = dev_report(method, prepared_folder, prepared)
    assert (objective, collapsed) == (70.0, "")
    assert (metrics["dev_MRPC_f1"], metrics["dev_MRPC_accuracy"]) == (70.0, 60.0)
    assert math.isfinite(metrics["dev_score"]) and "test" not in str(metrics)
