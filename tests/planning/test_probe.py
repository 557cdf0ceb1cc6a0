"""What a probe measures, method by method, on a sample of a corpus; in this process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_steps import COMMON, PARAMS

from distilbench.data.builtin import builtin_corpus
from distilbench.data.corpus import Corpus
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.needs import Needs
from distilbench.methods import get_method
from distilbench.planning.probe import _driver_seconds, _pca, _spread
from distilbench.planning.probe_worker import ProbeJob, _training, per_second
from distilbench.planning.sample import TRAIN, prepare_sample, sample_of
from distilbench.prepare.prepared import load_prepared
from distilbench.prepare.stage import Wanted
from distilbench.settings.sweep import SweepSettings
from distilbench.training.phases import within_budget
from distilbench.trials.budget import Budget
from distilbench.trials.rung_training import build_method

EVERY: dict[str, dict[str, Any]] = {
    **PARAMS,
    "dse": {"output_dim": 64, "task": "DEMO-DUP", "pooled_layers": 2, "epochs": 1, "alpha": 0.5},
    "pca": {"output_dim": 4},
}


@pytest.fixture(scope="module")
def corpora(data_folder: Path) -> dict[bool, Corpus]:
    demonstration = builtin_corpus(60, needs=Needs(pair_tasks=("DEMO-DUP",)))
    return {False: folder_corpus(data_folder, Limits(), Needs(triplets=True)), True: demonstration}


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(EVERY))
def test_each_method_is_measured(
    method: str, corpora: dict[bool, Corpus], encoder_folder: Path, tmp_path: Path
) -> None:
    whole = corpora[method == "dse"]
    own = sample_of(whole)
    settings = SweepSettings(
        method=(method,), teacher=str(encoder_folder), student="layers:0,2", store=tmp_path / "store"
    )
    prepared = prepare_sample(settings, whole, own, tmp_path, Wanted(augmentation=False, tokens=True, logits=True))
    params = {**(COMMON if method != "pca" else {}), **EVERY[method]}
    job = ProbeJob(0, 1, 0.0, tmp_path, prepared, own.sentences, settings.teacher_encoder, None, False, (), (), 1)
    budget = Budget(trials=1, steps=30)
    found = _training(job, method, budget, params, 0.2, "cpu")
    says = within_budget(build_method(method, params, load_prepared(prepared), 0, "cpu").phases(), 30)
    assert [(name, batch) for name, (batch, _) in found["phases"].items()] == [(p.name, p.batch_size) for p in says]
    assert all(step_s > 0 for _, step_s in found["phases"].values())
    assert min(found[key] for key in ("begin_s", "judge_s", "finish_s", "embed_per_s")) > 0
    assert get_method(method).title


def test_a_student_that_loses_tokens_is_measured_without_them(
    corpora: dict[bool, Corpus], encoder_folder: Path, tmp_path: Path
) -> None:
    none = {"pairs_P2": np.empty((0, 2), np.int64), "triplets_T3": np.empty((0, 3), np.int64)}
    train = corpora[False].train
    small = sample_of(replace(corpora[False], train=train[:2], **none))
    settings = SweepSettings(method=("hpd",), teacher=str(encoder_folder), store=tmp_path / "store")

    def tables(whole: Corpus, *students: str) -> list[int]:
        wanted = Wanted(augmentation=False, tokens=True, logits=False, students=students)
        ready = load_prepared(prepare_sample(settings, whole, small, tmp_path / str(len(whole.train)), wanted))
        params = [{**PARAMS["hpd"], **COMMON, "student": student} for student in students]
        methods = [build_method("hpd", own, ready, 0, "cpu") for own in params]
        return [max(len(parameter) for parameter in method.parameters()) for method in methods]

    static, layer = tables(replace(corpora[False], train=train[:2], **none), "static:corpus", "layers:0:corpus")
    found = tables(
        replace(corpora[False], train=train[:12], **none), "static:corpus", "static", "layers:0:corpus", "layers:0"
    )
    assert static < found[0] < found[1] and layer < found[2] < found[3], "those of the whole corpus, not of the sample"
    assert not settings.store.exists(), "a plan leaves nothing behind"


def test_a_sample_has_what_it_needs_and_no_more(corpora: dict[bool, Corpus]) -> None:
    whole = corpora[True]
    small = sample_of(whole)
    assert len(small.sentences) < len(whole.sentences) and not small.retrieval
    assert {s.split for s in small.sts} == {"dev"} and len(small.train) <= 3 * TRAIN
    before, after = next(s for s in whole.sts if s.split == "dev"), small.sts[0]
    assert [small.sentences[i] for i in after.left_P] == [whole.sentences[i] for i in before.left_P]
    assert [small.sentences[i] for i in small.pairs_P2[3]] == [whole.sentences[i] for i in whole.pairs_P2[3]]
    one, other = small.pair_tasks[0].splits["train"], whole.pair_tasks[0].splits["train"]
    assert small.sentences[int(one.right_P[5])] == whole.sentences[int(other.right_P[5])]
    assert set(small.pairs_P2.ravel()) <= set(small.train)


def test_sentences_in_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now, read = [0.0], []

    def work(part: list[str]) -> None:
        read.extend(part)
        now[0] += len(part) / 50

    monkeypatch.setattr("distilbench.planning.probe_worker.time.perf_counter", lambda: now[0])
    assert per_second(list("abcdefgh"), 3, 1.0, work) == pytest.approx(50)
    assert "".join(read).startswith("abcdefghabc") and 50 <= len(read) < 53


def test_what_the_driver_measures(tmp_path: Path) -> None:
    assert 0 < _driver_seconds(tmp_path) < 10
    pca = _pca(32)
    assert 0 < pca["pca_row_s"] < 1 and pca["pca_s"] > 0


def test_settings_are_spread_over_the_search() -> None:
    drawn = [{"n": n} for n in range(24)]
    assert [own["n"] for own in _spread(drawn)] == [0, 7, 15, 23]
    assert _spread(drawn[:2]) == drawn[:2]
    assert np.all(np.diff([own["n"] for own in _spread(drawn[:5])]) > 0)
