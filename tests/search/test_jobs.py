"""Jobs: what one leaves in its folder, and that one which is killed anywhere ends as if it had not been."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import comparable_rungs

from distilbench.cluster.resources import TrialResources
from distilbench.data.corpus import Corpus
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.requirements import Requirements
from distilbench.data.sampling import calibration_rows
from distilbench.methods import get_method
from distilbench.methods.mcr2 import MCR2 as Mcr2
from distilbench.prepare.prepared import load_prepared
from distilbench.storage import retry
from distilbench.storage.retry import StorageGone
from distilbench.training.loop import Trainer
from distilbench.trials import jobs as module
from distilbench.trials import rung_training
from distilbench.trials.budget import Budget
from distilbench.trials.jobs import Job, Outcome, finish, finish_jobs
from distilbench.trials.rung_training import RungTraining
from distilbench.trials.scoring import Candidate, Encoded
from distilbench.trials.training_spec import TrainingSpec

MCR2 = {"output_dim": 8, "lambda": 50.0, "clusters": 4, "lr": 0.003, "batch_size": 16}


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the code catches it."""


RESOURCES = TrialResources(1, 0, 2, "")


@pytest.fixture(scope="module")
def corpus(data_folder: Path) -> Corpus:
    """That of `prepared_folder`."""
    return folder_corpus(data_folder, Limits(), Requirements(triplets=True))


def make_job(run: Path, method: str = "mcr2", **params: Any) -> Job:
    run.mkdir(exist_ok=True)
    given = {"output_dim": 8} if method == "pca" else {**MCR2, **params}
    full = get_method(method).params_type.model_validate(given).model_dump(mode="json", by_alias=True)
    candidate = Candidate("r", "student", method, 8, full, 0, configuration="A")
    budget = Budget(trials=1, steps=18, rungs=3, eta=3, start=False)
    return Job(candidate, budget, run, run / "trials" / "key", "students/key")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, prepared_folder: Path, corpus: Corpus) -> tuple[Job, Outcome]:
    """A job that nothing interrupted."""
    job = make_job(tmp_path_factory.mktemp("whole"))
    return job, finish(job, prepared_folder, corpus, RESOURCES)


def test_a_job_trains_reports_saves_and_embeds(
    whole: tuple[Job, Outcome], prepared_folder: Path, corpus: Corpus
) -> None:
    from sentence_transformers import SentenceTransformer

    job, outcome = whole
    assert outcome.failed == ""
    assert [(r.rung, r.step) for r in outcome.rungs] == [(1, 2), (2, 6), (3, 18)]
    last = outcome.rungs[-1].metrics
    assert last.keys() >= {"dev_score", "dev_pca_score", "effective_rank", "variance", "loss"}
    encoded = Encoded.load(job.folder)
    assert encoded is not None and encoded.model == "students/key"
    assert encoded.vectors_ND.shape == (len(corpus.scored_rows), 8)
    assert encoded.calibration_ND.shape == (len(calibration_rows(load_prepared(prepared_folder).train)), 8)
    model = SentenceTransformer(str(job.run / job.model), device="cpu")
    outside = model.encode([corpus.sentences[i] for i in corpus.scored_rows[:9]])
    assert outside == pytest.approx(encoded.vectors_ND[:9], abs=5e-3)  # the stored vectors are float16
    assert not list(job.run.rglob("*.partial"))


def comparable(outcome: Outcome) -> list[tuple[Any, ...]]:
    """What of its rungs does not depend on the machine at that moment."""
    return comparable_rungs(outcome.rungs)


def told(outcome: Outcome) -> tuple[Any, ...]:
    """The same of all of it."""
    return outcome.job, outcome.failed, outcome.machine, comparable(outcome)


POINTS: list[tuple[str, Any, str, int]] = [
    # What is killed at its n-th call.
    ("trained and not embedded", module, "encode_method", 1),
    ("embedded and not exported", Mcr2, "export", 1),
    ("exported and its vectors not kept", Encoded, "save", 1),
]


@pytest.mark.slow
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
            finish(job, prepared_folder, corpus, RESOURCES)
    assert Encoded.load(job.folder) is None
    outcome = finish(job, prepared_folder, corpus, RESOURCES)
    unbroken, wanted = whole
    assert outcome.failed == "" and [(r.rung, r.step) for r in outcome.rungs] == [(1, 2), (2, 6), (3, 18)]
    assert comparable(outcome) == comparable(wanted)
    here, there = Encoded.load(job.folder), Encoded.load(unbroken.folder)
    assert here is not None and there is not None
    assert np.array_equal(here.vectors_ND, there.vectors_ND)
    assert np.array_equal(here.calibration_ND, there.calibration_ND)
    leftovers = [p.name for p in tmp_path.rglob("*") if p.suffix == ".tmp" or ".partial" in p.name]
    assert leftovers == []


def test_a_trial_of_a_search_is_not_trained_or_judged_again(
    tmp_path: Path, prepared_folder: Path, corpus: Corpus, whole: tuple[Job, Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(tmp_path)
    outcome = finish(job, prepared_folder, corpus, RESOURCES)
    (job.folder / "encoded.json").unlink()
    monkeypatch.setattr(rung_training, "dev_report", lambda *_: pytest.fail("judged again"))
    monkeypatch.setattr(Trainer, "_train_step", lambda _: pytest.fail("trained again"))
    again = finish(job, prepared_folder, corpus, RESOURCES)
    assert (again.failed, comparable(again)) == ("", comparable(outcome))
    encoded, wanted = Encoded.load(job.folder), Encoded.load(whole[0].folder)
    assert encoded is not None and wanted is not None and np.array_equal(encoded.vectors_ND, wanted.vectors_ND)


def test_an_interrupted_trial_is_taken_as_it_is(tmp_path: Path, prepared_folder: Path, corpus: Corpus) -> None:
    job = replace(make_job(tmp_path), as_it_is=True)
    candidate, log = job.candidate, tmp_path / "h.txt"
    spec = TrainingSpec(candidate.method, candidate.params, 0, job.budget, prepared_folder, job.folder, log)
    training = RungTraining(spec, "cpu")
    training.advance()
    training.advance(0.0)
    training.keep()
    outcome = finish(job, prepared_folder, corpus, RESOURCES)
    assert (outcome.failed, [r.step for r in outcome.rungs]) == ("", [2])
    encoded = Encoded.load(job.folder)
    rows = corpus.scored_rows
    assert encoded is not None
    assert encoded.vectors_ND == pytest.approx(training.method.embed(rows), abs=1e-6)
    assert RungTraining(spec, "cpu").trainer.step == 3  # it has not gone on


def test_a_job_that_hung_twice_fails(tmp_path: Path, prepared_folder: Path, corpus: Corpus) -> None:
    job = make_job(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "key-hang.txt").write_text("Timeout (0:00:05)!\n  stack\nTimeout (0:00:05)!\n  stack\n")
    outcome = finish(job, prepared_folder, corpus, TrialResources(1, 0, 1, ""))
    assert outcome.failed == "no progress for 600 s, 2 times; where it was stuck is in key-hang.txt"
    assert outcome.rungs == () and not (tmp_path / "students").exists()


@pytest.mark.parametrize("when", ["training", "exporting"])
def test_storage_that_is_gone_is_no_failure_of_the_job(
    tmp_path: Path,
    prepared_folder: Path,
    corpus: Corpus,
    whole: tuple[Job, Outcome],
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    monkeypatch.setattr(retry, "LIMIT_S", 0.1)
    job = make_job(tmp_path)

    def failing(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(*((Trainer, "save", failing) if when == "training" else (Mcr2, "export", failing)))
        with pytest.raises(StorageGone, match="Input/output error"):
            finish(job, prepared_folder, corpus, RESOURCES)
    assert comparable(finish(job, prepared_folder, corpus, RESOURCES)) == comparable(whole[1])
    assert not list(tmp_path.rglob("*.partial"))


RESOURCES = TrialResources(1, 0, 2, "")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_at_the_deadline_jobs_are_stopped_and_go_on_later(
    tmp_path: Path, prepared_folder: Path, corpus: Corpus, cluster: None, whole: tuple[Job, Outcome]
) -> None:
    long = Budget(trials=1, steps=10**6, rungs=1)
    jobs = [replace(make_job(tmp_path / str(n)), budget=long) for n in range(3)]
    found: list[Outcome] = []
    left = finish_jobs([*jobs, whole[0]], prepared_folder, corpus, RESOURCES, found.append, time.time() + 3)
    assert left == jobs
    there = told(replace(whole[1], machine=None))
    assert [told(outcome) for outcome in found] == [there]
    late = finish_jobs([jobs[0], whole[0]], prepared_folder, corpus, RESOURCES, found.append, time.time() - 1)
    assert late == [jobs[0]] and [told(outcome) for outcome in found] == [there] * 2


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("storage", "^f: no room; what is finished is kept$"),
        ("worker", r"its worker died 2 times \(WorkerCrashedError\)"),
    ],
)
def test_what_befalls_a_worker(
    tmp_path: Path,
    prepared_folder: Path,
    corpus: Corpus,
    cluster: None,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    said: str,
) -> None:
    def struck(*_: object) -> None:
        import os

        from distilbench.storage.retry import StorageGone

        if kind == "worker":
            os._exit(1)
        raise StorageGone("f: no room; what is finished is kept")

    monkeypatch.setattr(module, "finish", struck)
    monkeypatch.setattr(module, "RETRIES", 1)
    found: list[Outcome] = []
    if kind == "storage":
        with pytest.raises(StorageGone, match=said):
            finish_jobs([make_job(tmp_path)], prepared_folder, corpus, RESOURCES, found.append)
        assert found == []
    else:
        finish_jobs([make_job(tmp_path)], prepared_folder, corpus, RESOURCES, found.append)
        assert re.fullmatch(said, found[0].failed)
