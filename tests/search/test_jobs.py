"""Jobs: what one leaves in its folder, and that one which is killed anywhere ends as if it had not been."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distilbench.data.corpus import Corpus
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.needs import Needs
from distilbench.evaluation.scoring import Candidate, Encoded, calibration_rows, evaluation_rows
from distilbench.methods import get_method
from distilbench.methods.mcr2 import Trainable
from distilbench.prepare.prepared import load_prepared
from distilbench.search import jobs as module
from distilbench.search.cluster import TrialResources
from distilbench.search.jobs import Job, Outcome, finish, finish_jobs
from distilbench.search.space import Budget
from distilbench.training.loop import Trainer

MCR2 = {"output_dim": 8, "lambda": 50.0, "clusters": 4, "lr": 0.003, "batch_size": 16}


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the code catches it."""


@pytest.fixture(scope="module")
def corpus(data_folder: Path) -> Corpus:
    """That of `prepared_folder`."""
    return folder_corpus(data_folder, Limits(), Needs(triplets=True))


def make_job(run: Path, method: str = "mcr2", **params: Any) -> Job:
    given = {"output_dim": 8} if method == "pca" else {**MCR2, **params}
    full = get_method(method).params_type.model_validate(given).model_dump(mode="json", by_alias=True)
    candidate = Candidate("r", "student", method, 8, full, 0, configuration="A")
    budget = Budget(trials=1, steps=18, rungs=3, eta=3)
    return Job(candidate, budget, run, run / "trials" / "key", "students/key")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, prepared_folder: Path, corpus: Corpus) -> tuple[Job, Outcome]:
    """A job that nothing interrupted."""
    job = make_job(tmp_path_factory.mktemp("whole"))
    return job, finish(job, prepared_folder, corpus, threads=1)


def test_a_job_trains_reports_saves_and_embeds(
    whole: tuple[Job, Outcome], prepared_folder: Path, corpus: Corpus
) -> None:
    from sentence_transformers import SentenceTransformer

    job, outcome = whole
    assert outcome.failed == ""
    assert [(r.rung, r.step) for r in outcome.rungs] == [(1, 2), (2, 6), (3, 18)]
    last = outcome.rungs[-1].metrics
    assert last.keys() >= {"dev_spearman", "dev_pca_spearman", "effective_rank", "variance", "loss"}
    encoded = Encoded.load(job.folder)
    assert encoded is not None and encoded.model == "students/key"
    assert encoded.vectors_ND.shape == (len(evaluation_rows(corpus)), 8)
    assert encoded.calibration_ND.shape == (len(calibration_rows(load_prepared(prepared_folder))), 8)
    model = SentenceTransformer(str(job.run / job.model), device="cpu")
    outside = model.encode([corpus.sentences[i] for i in evaluation_rows(corpus)[:9]])
    assert outside == pytest.approx(encoded.vectors_ND[:9], abs=5e-3)  # the stored vectors are float16
    assert not list(job.run.rglob("*.partial"))


POINTS: list[tuple[str, Any, str, int]] = [
    # What is killed at its n-th call.
    ("before the first rung is saved", Trainer, "save", 1),
    ("before the second rung is saved", Trainer, "save", 2),
    ("a rung saved and not judged", module, "dev_report", 1),
    ("a rung judged and not reported", module, "write_json", 2),
    ("the last rung saved and not judged", module, "dev_report", 3),
    ("the last rung not reported", module, "write_json", 3),
    ("trained and not embedded", module, "encode_method", 1),
    ("embedded and not exported", Trainable, "export", 1),
    ("exported and its vectors not kept", Encoded, "save", 1),
]


@pytest.mark.parametrize(("owner", "name", "call"), [p[1:] for p in POINTS], ids=[p[0] for p in POINTS])
def test_killed_anywhere_it_ends_the_same(
    tmp_path: Path,
    prepared_folder: Path,
    corpus: Corpus,
    whole: tuple[Job, Outcome],
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    call: int,
) -> None:
    job, calls, real = make_job(tmp_path), iter(range(1, 99)), getattr(owner, name)

    def deadly(*arguments: Any, **named: Any) -> Any:
        if next(calls) == call:
            raise Killed
        return real(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, deadly)
        with pytest.raises(Killed):
            finish(job, prepared_folder, corpus, threads=1)
    assert Encoded.load(job.folder) is None
    outcome = finish(job, prepared_folder, corpus, threads=1)
    unbroken, wanted = whole
    assert outcome.failed == "" and [(r.rung, r.step) for r in outcome.rungs] == [(1, 2), (2, 6), (3, 18)]
    for ours, theirs in zip(outcome.rungs, wanted.rungs, strict=True):
        assert ours.objective == theirs.objective
        # The mean loss up to a rung is not known any more when it was saved and not reported.
        same = ours.metrics.keys() - {"loss"}
        assert {k: ours.metrics[k] for k in same} == {k: theirs.metrics[k] for k in same}
        assert ours.metrics["loss"] in (None, theirs.metrics["loss"])
    here, there = Encoded.load(job.folder), Encoded.load(unbroken.folder)
    assert here is not None and there is not None
    assert np.array_equal(here.vectors_ND, there.vectors_ND)
    assert np.array_equal(here.calibration_ND, there.calibration_ND)
    leftovers = [p.name for p in tmp_path.rglob("*") if p.suffix == ".tmp" or ".partial" in p.name]
    assert leftovers == []


def test_a_collapsed_job_stays_collapsed(
    tmp_path: Path, prepared_folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, steps, real = make_job(tmp_path), list[int](), Trainer.train_until
    monkeypatch.setattr(Trainable, "embed", lambda self, rows: np.ones((len(rows), 8), dtype=np.float32))
    monkeypatch.setattr(Trainer, "train_until", lambda self, step: (steps.append(step), real(self, step))[1])
    for _ in range(2):  # the second time from its checkpoint: not a step further
        outcome = finish(job, prepared_folder, corpus, threads=1)
        assert outcome.failed == "collapsed: the variance of the unit vectors is 0, below 0.0001"
        assert [(r.rung, r.metrics["effective_rank"], r.metrics["variance"]) for r in outcome.rungs] == [(1, 0.0, 0.0)]
    assert steps == [2]
    assert Encoded.load(job.folder) is None and not (tmp_path / "students").exists()


def test_a_failure_is_an_outcome(tmp_path: Path, prepared_folder: Path, corpus: Corpus) -> None:
    diverged = finish(make_job(tmp_path / "one", **{"lambda": 1e39}), prepared_folder, corpus, threads=1)
    assert diverged.failed == "loss -inf, gradient norm nan at step 0" and diverged.rungs == ()
    job = make_job(tmp_path / "two")
    broken = replace(job, candidate=replace(job.candidate, params={**job.candidate.params, "head": "none"}))
    outcome = finish(broken, prepared_folder, corpus, threads=1)
    assert outcome.failed.startswith("ValidationError: ") and "head" in outcome.failed


def test_a_job_without_training_has_one_rung(tmp_path: Path, prepared_folder: Path, corpus: Corpus) -> None:
    job = make_job(tmp_path, "pca")
    outcome = finish(job, prepared_folder, corpus, threads=1)
    assert (outcome.failed, [(r.rung, r.step, r.metrics["loss"]) for r in outcome.rungs]) == ("", [(1, 0, None)])
    assert finish(job, prepared_folder, corpus, threads=1) == outcome


def test_a_sweeps_trial_is_not_judged_again(
    tmp_path: Path, prepared_folder: Path, corpus: Corpus, whole: tuple[Job, Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(tmp_path)
    finish(job, prepared_folder, corpus, threads=1)
    (job.folder / "encoded.json").unlink()
    (job.folder / "rungs.json").unlink()
    monkeypatch.setattr(module, "dev_report", lambda *_: pytest.fail("judged again"))
    trial = replace(job, candidate=replace(job.candidate, trial=3, configuration=""))
    outcome = finish(trial, prepared_folder, corpus, threads=1)
    assert (outcome.failed, outcome.rungs) == ("", ())
    encoded, wanted = Encoded.load(job.folder), Encoded.load(whole[0].folder)
    assert encoded is not None and wanted is not None and np.array_equal(encoded.vectors_ND, wanted.vectors_ND)


def test_only_jobs_without_vectors_are_run(
    tmp_path: Path,
    prepared_folder: Path,
    corpus: Corpus,
    whole: tuple[Job, Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = make_job(tmp_path)

    def outcomes(open_jobs: list[Job], *_: object) -> Iterator[Outcome]:
        assert open_jobs == [other]
        yield Outcome(other, "no", ())

    monkeypatch.setattr(module, "_outcomes", outcomes)
    found: list[Outcome] = []
    finish_jobs([other, whole[0]], prepared_folder, corpus, TrialResources(1, 0, 2, ""), found.append)
    # Trained by a driver that was killed before it heard of it: an outcome like any other.
    assert found == [whole[1], Outcome(other, "no", ())]
    monkeypatch.setattr(module, "_outcomes", lambda *_: pytest.fail("nothing is left to do"))
    finish_jobs([whole[0]], prepared_folder, corpus, TrialResources(1, 0, 2, ""), found.append)


@pytest.mark.timeout(120)
def test_jobs_run_as_tasks_of_the_cluster(
    tmp_path: Path, prepared_folder: Path, corpus: Corpus, cluster: None, whole: tuple[Job, Outcome]
) -> None:
    jobs = [make_job(tmp_path / "good"), make_job(tmp_path / "bad", **{"lambda": 1e39})]
    found: dict[Path, Outcome] = {}

    def on_outcome(outcome: Outcome) -> None:
        found[outcome.job.run] = outcome

    finish_jobs(jobs, prepared_folder, corpus, TrialResources(1, 0, 2, ""), on_outcome)
    assert found[tmp_path / "good"].rungs == whole[1].rungs
    assert found[tmp_path / "bad"].failed == "loss -inf, gradient norm nan at step 0"
