"""The objective and the dev metrics of a student that is selected by something else than STS."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from distilbench.data.corpus import HeldOut, RetrievalSet, Rows
from distilbench.evaluation.selection import SelectionSets
from distilbench.methods.method import Method
from distilbench.prepare.prepared import Prepared, load_prepared
from distilbench.prepare.selection_sets import held_out_set, search_set
from distilbench.records import Rung, Score
from distilbench.selection import Selection
from distilbench.trials import dev as module
from distilbench.trials.dev import dev_report
from distilbench.trials.rung_training import build_method


def prepared_for(select: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Prepared]:
    """The small data, selected by that; a folder of its own, since PCA's score is kept by the folder's name."""
    own, prepared = Path(shutil.copytree(folder, tmp_path / select)), load_prepared(folder)
    rows = prepared.train[:100]
    task = RetrievalSet("own", "dev", rows[:20], rows[20:], tuple(np.array([q, q + 20]) for q in range(20)))
    sets = {
        "retrieval": (search_set(task, prepared.vectors.take),),
        "fidelity": (held_out_set(HeldOut("dev", rows), prepared.vectors.take),),
    }
    selection = Selection.parse(select)
    found = replace(prepared, judged=SelectionSets(selection, sets))
    monkeypatch.setattr(module, "load_prepared", lambda _: found)
    return own, found


@pytest.mark.parametrize("select", ["mrr@10", "fidelity", "retrieval=0.5,fidelity=0.5"])
@pytest.mark.parametrize("code", [{}, {"bits": 8}])
def test_the_objective_is_beside_pca_of_the_same_size(
    select: str, code: dict[str, int], prepared_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, prepared = prepared_for(select, prepared_folder, tmp_path, monkeypatch)
    params = {"output_dim": 8, "lr": 0.01, "lambda": 50, "steps": 1, "clusters": 4, "batch_size": 16, **code}
    method = build_method(
        "mcr2" if code else "random_projection", params if code else {"output_dim": 8}, prepared, 0, "cpu"
    )
    objective, metrics, reason = dev_report(method, folder, prepared)
    assert reason == "" and "dev_spearman" not in metrics
    assert objective == pytest.approx(metrics["dev_score"] - metrics["dev_pca_score"])
    assert metrics["dev_quality"] == metrics["dev_score"]
    rung = Rung(rung=1, step=1, objective=objective, metrics=metrics)
    assert rung.dev == metrics["dev_score"] and rung.dev_pca is not None
    parts = {part.name: part.weight for part in prepared.selection.selection.parts}
    if select == "mrr@10":  # the score itself is not told twice
        assert "dev_mrr@10" not in metrics
    else:
        assert sum(w * metrics[f"dev_{name}"] for name, w in parts.items()) == pytest.approx(metrics["dev_score"])
    if not code:
        expected = prepared.selection.score(lambda rows: prepared.pca.project(prepared.vectors.take(rows), 8))
        assert metrics["dev_pca_score"] == pytest.approx(expected)


def test_pca_is_level_with_itself(prepared_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, prepared = prepared_for("retrieval", prepared_folder, tmp_path, monkeypatch)
    method = build_method("pca", {"output_dim": 8}, prepared, 0, "cpu")
    assert dev_report(method, folder, prepared)[0] == pytest.approx(0, abs=0.1)


def test_nested_widths_have_scores_of_their_own(
    prepared_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, prepared = prepared_for("retrieval", prepared_folder, tmp_path, monkeypatch)
    method = build_method("random_projection", {"output_dim": 8}, prepared, 0, "cpu")
    monkeypatch.setattr("distilbench.trials.dev.nested_widths", lambda params: (8, 4))
    objective, metrics, _ = dev_report(method, folder, prepared)
    rung = Rung(rung=1, step=1, objective=objective, metrics=metrics)
    assert rung.objective_at(4) == pytest.approx(metrics["dev_score_4"] - metrics["dev_pca_score_4"])
    assert objective == pytest.approx(np.mean([rung.objective_at(8), rung.objective_at(4)]))


@pytest.mark.parametrize("asked", [True, False])
def test_a_task_of_the_methods_own_selects_unless_something_is_asked_for(
    asked: bool, prepared_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, prepared = prepared_for("fidelity", prepared_folder, tmp_path, monkeypatch)
    assert prepared.judged is not None
    selection = replace(prepared.judged.selection, asked=asked)
    prepared = replace(prepared, judged=replace(prepared.judged, selection=selection))
    own = [Score(task="pairs", set="MRPC", split="dev", metric="accuracy", variant="all", value=70.0, n=9)]
    monkeypatch.setattr(Method, "task_scores", lambda self, split: own)
    objective, metrics, _ = dev_report(build_method("pca", {"output_dim": 8}, prepared, 0, "cpu"), folder, prepared)
    assert (objective == 70.0) == (not asked) and (metrics["dev_quality"] == 70.0) == (not asked)


@pytest.mark.parametrize("code", [{}, {"bits": 8}])
def test_queries_are_judged_among_the_teachers_documents(
    code: dict[str, int], prepared_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, prepared = prepared_for(
        "retrieval=0.5,fidelity=0.5,documents=teacher", prepared_folder, tmp_path, monkeypatch
    )
    method = build_method("hpd", {"output_dim": 8, "lr": 0.01, "batch_size": 16, **code}, prepared, 0, "cpu")
    asked: list[int] = []

    def perfect(rows: Rows) -> NDArray[np.float32]:
        asked.extend(rows.tolist())
        return prepared.pca.project(prepared.vectors.take(rows), 8)

    monkeypatch.setattr(method, "embed", perfect)
    objective, metrics, _ = dev_report(method, folder, prepared)
    assert set(asked) == set(prepared.selection.asked_rows.tolist()), "the student embeds queries alone"
    if not code:
        assert objective == pytest.approx(0, abs=1e-4), "queries that are the targets find what PCA finds"
    monkeypatch.setattr(method, "embed", lambda rows: -perfect(rows))
    assert dev_report(method, folder, prepared)[1]["dev_score"] < metrics["dev_score"] - 10


def test_trials_of_one_size_are_judged_beside_one_pca_whatever_the_space_that_they_share(
    prepared_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, prepared = prepared_for("retrieval,documents=teacher", prepared_folder, tmp_path, monkeypatch)
    given = {"output_dim": 32, "lr": 0.01, "batch_size": 16, "negatives": 16}
    for critic_dim in (2, 8):
        method = build_method("crd", {**given, "critic_dim": critic_dim}, prepared, 0, "cpu")
        metrics = dev_report(method, folder, prepared)[1]
        wanted = prepared.selection.score(lambda rows: prepared.pca.project(prepared.vectors.take(rows), 32))
        assert metrics["dev_pca_score"] == pytest.approx(wanted), critic_dim
