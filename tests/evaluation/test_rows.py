"""The rows of a run: each scored once, each training recorded once, whatever was killed or repeated in between."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from distilbench.choices import SWEPT_TASKS, TaskKind
from distilbench.cluster.resources import TrialResources
from distilbench.data.corpus import Corpus, Rows
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.requirements import Requirements
from distilbench.errors import InputError
from distilbench.evaluation.faiss_codes import Code
from distilbench.evaluation.predictions import Predictions, predictions_path
from distilbench.methods import get_method
from distilbench.prepare.prepared import Prepared, load_prepared
from distilbench.progress.console import LOG
from distilbench.records import ScoreRecord, TrialRecord, read_records
from distilbench.storage.arrays import ShardedArray
from distilbench.storage.store import ArtifactStore
from distilbench.trials import rows as module
from distilbench.trials.budget import Budget
from distilbench.trials.jobs import Job, Outcome, finish
from distilbench.trials.rows import Finishing, RowScorer
from distilbench.trials.rung_training import known_rungs
from distilbench.trials.scoring import Candidate, Encoded, Scoring

PLAIN = "teacher", "float32"
MCR2 = {"output_dim": 8, "lambda": 50.0, "clusters": 4, "lr": 0.003, "batch_size": 16}
RESOURCES = TrialResources(1, 0, 2, "")


class Killed(BaseException):
    """Stands for SIGKILL."""


class Run:
    """A comparison's folder; its jobs are run here instead of on a cluster, and counted."""

    def __init__(self, folder: Path, prepared: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        self.folder, self.prepared, self.corpus = folder, prepared, corpus
        self.trained: list[str] = []
        self.console = io.StringIO()

        def finish_here(
            jobs: Sequence[Job],
            _: Path,
            scored: Corpus,
            __: object,
            on_outcome: Callable[[Outcome], None],
            deadline: float,
            where: object = None,
        ) -> list[Job]:
            for place, job in enumerate(jobs):
                if self.late(job):
                    return list(jobs[place:])
                if Encoded.load(job.folder) is not None:
                    on_outcome(Outcome(job, "", tuple(known_rungs(job.folder))))
                    continue
                self.trained.append(job.candidate.configuration)
                on_outcome(finish(job, prepared, scored, RESOURCES))
            return []

        monkeypatch.setattr(module, "finish_jobs", finish_here)

    def log(self) -> str:
        """The lines of its log."""
        return (self.folder / LOG).read_text()

    def late(self, job: Job) -> bool:
        """Whether time is over when it is the job's turn."""
        return False

    def job(self, name: str, seed: int = 0, trial: int | None = None, **params: Any) -> Job:
        full = get_method("mcr2").params_type.model_validate({**MCR2, **params}).model_dump(mode="json", by_alias=True)
        candidate = Candidate("run", "student", "mcr2", 8, full, seed, trial, "" if trial is not None else name)
        key = f"{name}-{seed}"
        budget = Budget(trials=1, steps=18, rungs=2, eta=3, start=False)
        recorded_in = "trials.jsonl" if trial is None else ""
        folder = self.folder / "trials" / key
        return Job(candidate, budget, self.folder, folder, f"students/{key}", recorded_in=recorded_in)

    def board(
        self,
        quantisations: Sequence[Any] = ("int8",),
        tasks: Sequence[TaskKind] = SWEPT_TASKS,
        name: str = "run",
        **more: Any,
    ) -> RowScorer:
        console, ready = Console(file=self.console, width=200), load_prepared(self.prepared)
        scoring = Scoring(self.folder, ready, self.corpus, tasks)
        return RowScorer(scoring, name, quantisations, console, **more)

    def students(self, *jobs: Job, quantisations: Sequence[Any] = ("int8",)) -> tuple[list[ScoreRecord], list[Outcome]]:
        found = self.board(quantisations).students(jobs, self.prepared, RESOURCES)
        assert found.unfinished == []
        return found.records, found.failed

    def scores(self) -> list[ScoreRecord]:
        return [r for r in read_records(self.folder / "scores.jsonl") if isinstance(r, ScoreRecord)]

    def trials(self) -> list[TrialRecord]:
        return [r for r in read_records(self.folder / "trials.jsonl") if isinstance(r, TrialRecord)]

    def rows(self) -> list[tuple[str, int, str]]:
        return [(r.configuration, r.seed, r.quantisation) for r in self.scores()]


def every(found: Iterator[list[ScoreRecord]]) -> list[ScoreRecord]:
    """The rows of all references."""
    return [row for rows in found for row in rows]


@pytest.fixture(scope="module")
def corpus(data_folder: Path) -> Corpus:
    """That of `prepared_folder`."""
    return folder_corpus(data_folder, Limits(), Requirements(triplets=True))


@pytest.fixture
def run(tmp_path: Path, prepared_folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path / "run", prepared_folder, corpus, monkeypatch)


def test_references_are_the_teacher_and_two_baselines_at_each_width(run: Run) -> None:
    found = every(run.board().references([4, 8, 64], seed=5))  # 64 is above the teacher's 32: a student's own width
    wanted = [("teacher", 32), *((name, d) for name in ("pca", "random_projection") for d in (4, 8))]
    assert [(r.method, r.dim, r.quantisation) for r in found] == [
        (*row, kind) for row in wanted for kind in ("float32", "int8")
    ]
    assert [r.role for r in found[:3]] == ["teacher", "teacher", "baseline"]
    before = (run.folder / "scores.jsonl").read_bytes()
    assert every(run.board().references([4, 8, 64], seed=5)) == found
    assert (run.folder / "scores.jsonl").read_bytes() == before
    assert len({r.record_id for r in run.scores()}) == len(run.scores()) == 10


def test_faisss_codes_are_scored_one_by_one_and_a_killed_driver_loses_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored, sizes = module.score_candidate, [1, 4, 12]

    def killed(*arguments: Any) -> Any:
        if len(run.scores()) >= 5:
            raise Killed
        return scored(*arguments)

    monkeypatch.setattr(module, "score_candidate", killed)
    with pytest.raises(Killed):
        every((board := run.board()).references([], 0, peers=board.peers(sizes)))
    assert [r.quantisation for r in run.scores()[2:]] == ["tq1-1", "tq1-4", "tq2-1"]
    monkeypatch.setattr(module, "score_candidate", scored)
    found = every((board := run.board()).references([], 0, peers=board.peers(sizes)))
    possible = "tq1-1 tq1-4 tq2-1 tq2-4 tq3-1 tq3-4 tq3-12 tq4-1 tq4-4 tq4-12 rabitq1-12 eden1-12 eden2-12 eden4-12 "
    possible += "pcar1 pcar4 pcar12 lsh1 lsh4 itq1 itq4 pq1 pq4 opq1 opq4 opq12 rq1 rq4 rq12"
    assert [r.quantisation for r in found[2:]] == possible.split()  # 32 dimensions have no 96 bits, nor 12 equal parts
    assert found == run.scores()


def test_a_code_of_the_teachers_vectors_is_fitted_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, calibrate = list[str](), Code.calibrate

    def counted(kind: str, vectors: Any) -> Code:
        fitted.append(kind)
        return calibrate(kind, vectors)

    monkeypatch.setattr(Code, "calibrate", counted)
    store = ArtifactStore(run.folder / "store")
    monkeypatch.setattr(Prepared, "store", store)
    first = every((board := run.board(())).references([], 0, peers=board.peers([5])))
    assert fitted == [r.quantisation for r in first[1:]]
    again = every((board := run.board((), name="other")).references([], 0, peers=board.peers([5])))
    assert fitted == [r.quantisation for r in first[1:]] and [r.scores for r in again] == [r.scores for r in first]


def test_what_runs_beside_it_have_of_references_is_taken_over(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = every(run.board(("int8", "binary")).references([4, 8], seed=5))
    other = Run(tmp_path / "other", run.prepared, run.corpus, monkeypatch)
    scored: list[tuple[str, int, list[str]]] = []
    real = module.score_candidate

    def counted(candidate: Candidate, encoded: Any, scoring: Any, widths: Any, kinds: Any, *rest: Any) -> Any:
        scored.append((candidate.method, candidate.dim, list(kinds)))
        return real(candidate, encoded, scoring, widths, kinds, *rest)

    monkeypatch.setattr(module, "score_candidate", counted)
    board = other.board(("int8", "int4"), name="other", sibling_runs={"run": run.folder, "none": tmp_path / "none"})
    found = every(board.references([4], seed=5))
    assert scored == [("teacher", 32, ["int4"]), ("pca", 4, ["int4"]), ("random_projection", 4, ["int4"])]
    assert {r.run for r in found} == {"other"} == {r.run for r in other.scores()} and len(found) == 9
    same = {(r.method, r.dim, r.quantisation): r for r in theirs}
    for record in found:
        own = predictions_path(other.folder, record.record_id)
        assert own.exists()
        if record.quantisation != "int4":
            original = same[record.method, record.dim, record.quantisation]
            assert record.record_id != original.record_id
            assert record.model_copy(update={"run": "run", "record_id": original.record_id}) == original
            there = predictions_path(run.folder, original.record_id)
            assert own.read_bytes() == there.read_bytes()
            beside, theirs_beside = own.with_suffix(".json"), there.with_suffix(".json")
            assert beside.exists() == theirs_beside.exists() == ((record.role, record.quantisation) != PLAIN)
            assert not beside.exists() or beside.read_bytes() == theirs_beside.read_bytes()
    assert (
        len({r.record_id for r in found}) == 9
        and every(other.board(("int8", "int4"), name="other").references([4], seed=5)) == found
    ), "its identities are its own"
    run.students(run.job("a"))  # what is trained is not taken over
    assert not board.scored(replace(run.job("a").candidate, run="other"), [8], ["int8"])


def test_rows_are_scored_once_and_more_are_added(run: Run) -> None:
    first = run.students(run.job("A"))
    assert (run.trained, first[1]) == (["A"], [])
    assert run.students(run.job("A")) == first
    assert run.trained == ["A"]
    records, _ = run.students(run.job("A"), run.job("A", seed=1), run.job("B", lr=0.001))
    assert run.trained == ["A", "A", "B"]
    wanted = [(*row, kind) for row in (("A", 0), ("A", 1), ("B", 0)) for kind in ("float32", "int8")]
    assert [(r.configuration, r.seed, r.quantisation) for r in records] == wanted == run.rows()
    assert records[:2] == first[0]
    assert [(t.number, t.state, t.seed, t.params["lr"]) for t in run.trials()] == [
        (0, "COMPLETE", 0, 0.003),
        (1, "COMPLETE", 1, 0.003),
        (2, "COMPLETE", 0, 0.001),
    ]
    assert [len(t.rungs) for t in run.trials()] == [2, 2, 2]
    assert not list(run.folder.rglob("vectors.npy"))  # deleted once they are scored


@pytest.mark.parametrize("tasks", [("sts",), SWEPT_TASKS])
def test_only_the_rows_of_the_tasks_are_embedded(
    run: Run, monkeypatch: pytest.MonkeyPatch, tasks: Sequence[TaskKind]
) -> None:
    """With `--tasks sts` no encoder embeds a document or a query; the STS scores are the same."""
    asked: dict[str, list[Rows]] = {"teacher": [], "pca": [], "mcr2": []}
    real_take = ShardedArray.take

    def watch(kind: str, owner: Any, name: str) -> None:
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda self, rows: (asked[kind].append(rows), real(self, rows))[1])

    watch("teacher", ShardedArray, "take")
    every(run.board(tasks=tasks).references([], seed=0))
    monkeypatch.setattr(ShardedArray, "take", real_take)
    for kind in ("pca", "mcr2"):
        watch(kind, get_method(kind), "embed")
    board = run.board(tasks=tasks)
    rows = every(board.references([8], seed=0))
    rows += board.students([run.job("A")], run.prepared, RESOURCES).records
    corpus = run.corpus
    used = [side for s in corpus.sts for side in (s.left_P, s.right_P)]
    retrieval = np.concatenate([side for t in corpus.retrieval for side in (t.queries, t.documents)])
    only_retrieval = np.setdiff1d(retrieval, np.concatenate([*used, corpus.train]))
    assert len(only_retrieval) > 60
    for kind, given in asked.items():
        embedded = np.isin(only_retrieval, np.concatenate(given))
        assert embedded.all() if "retrieval" in tasks else not embedded.any(), kind
    assert {r.method for r in rows} == {"teacher", "pca", "random_projection", "mcr2"}
    for row in rows:
        assert {s.task for s in row.scores} == set(tasks)
        assert bool(row.indexes) == ("retrieval" in tasks)


def test_a_pair_that_was_scored_before_a_kill_is_not_scored_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own rows are there, those with the teacher's documents are not; of two seeds each has its own pair."""
    params = get_method("hpd").params_type.model_validate({"output_dim": 8, "lr": 0.01, "batch_size": 16})
    mcr2 = [run.job("a"), run.job("a", seed=1)]
    jobs = [replace(j, candidate=replace(j.candidate, method="hpd", params=params.model_dump())) for j in mcr2]
    real, scored = module.score_candidate, list[str]()

    def killed(candidate: Candidate, *given: Any) -> Any:
        scored.append(candidate.documents)
        if candidate.documents and len(scored) == 2:
            raise KeyboardInterrupt
        return real(candidate, *given)

    monkeypatch.setattr(module, "score_candidate", killed)
    with pytest.raises(KeyboardInterrupt):
        run.students(*jobs)
    before = run.scores()
    by = f"{before[0].teacher}, its PCA"  # the head of HPD's targets
    assert [r.documents for r in before] == ["", ""] and not list(run.folder.glob("spaces/*"))
    records, failures = run.students(*jobs)
    assert not failures and scored == ["", by, by, "", by]
    assert [(r.seed, r.documents, r.quantisation) for r in records] == [
        (seed, documents, kind) for seed in (0, 1) for documents in ("", by) for kind in ("float32", "int8")
    ]
    assert run.scores()[:2] == before and len({r.record_id for r in run.scores()}) == 8
    assert not list((run.folder / "trials").rglob("space.json")) and len(list(run.folder.glob("spaces/*"))) == 2


def test_what_an_earlier_version_embedded_has_its_own_rows(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It kept nothing of what a student shares with its teacher."""
    params = get_method("hpd").params_type.model_validate({"output_dim": 8, "lr": 0.01, "batch_size": 16})
    job = run.job("a")
    job = replace(job, candidate=replace(job.candidate, method="hpd", params=params.model_dump()))
    real = Encoded.load
    with monkeypatch.context() as patch:
        patch.setattr(
            Encoded, "load", staticmethod(lambda folder: (found := real(folder)) and replace(found, space=None))
        )
        _, [failure] = run.students(job)
    assert "students/a-0: what it shares with its teacher was not kept" in failure.failed
    records, failures = run.students(job)
    assert not failures and [bool(r.documents) for r in records] == [False, False] and run.trained == ["a"]


def test_a_student_of_a_run_before_pairs_is_not_made_again_for_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    params = get_method("hpd").params_type.model_validate({"output_dim": 8, "lr": 0.01, "batch_size": 16}).model_dump()
    job = run.job("a")
    job = replace(job, candidate=replace(job.candidate, method="hpd", params=params))
    with monkeypatch.context() as patch:
        patch.setattr(module, "across", lambda *_: None)
        before, _ = run.students(job)
    again, failures = run.students(job)
    assert not failures and [r.record_id for r in again] == [r.record_id for r in before] and run.trained == ["a"]


def test_where_time_is_over_the_narrower_widths_and_the_pair_come_later(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"output_dim": 8, "nested": True, "widths": [4], "lr": 0.01, "batch_size": 16}
    params = get_method("hpd").params_type.model_validate(given).model_dump()
    job = run.job("a")
    job = replace(job, candidate=replace(job.candidate, method="hpd", params=params))

    def of_short_time() -> list[ScoreRecord]:
        now = iter([0.0, *[100.0] * 9])
        with monkeypatch.context() as patch:
            patch.setattr(module, "time", SimpleNamespace(time=lambda: next(now)))
            found = run.board().students([job], run.prepared, RESOURCES, Finishing(score_until=50.0))
        assert found.unfinished == [job]
        return found.records

    first = of_short_time()
    assert [(r.dim, r.quantisation) for r in first] == [(8, "float32"), (8, "int8")]
    assert [r.dim for r in of_short_time()] == [8, 8, 4, 4], "each call goes on"
    records, failures = run.students(job)
    assert not failures and [(r.dim, bool(r.documents)) for r in records if r.quantisation == "int8"] == [
        (8, False),
        (4, False),
        (8, True),
        (4, True),
    ]
    assert [r.record_id for r in run.scores()[:2]] == [r.record_id for r in first] and len(run.scores()) == 8


def test_a_failed_training_is_told_recorded_and_not_tried_again(run: Run) -> None:
    jobs = [run.job("bad", **{"lambda": 1e39}), run.job("good")]
    for _ in range(2):
        records, [failure] = run.students(*jobs)
        assert [r.configuration for r in records] == ["good", "good"]
        assert failure.job == jobs[0] and failure.failed == "loss -inf, gradient norm nan at step 0"
    assert run.trained == ["bad", "good"]
    assert [(t.state, t.reason) for t in run.trials()] == [("FAIL", failure.failed), ("COMPLETE", "")]
    assert "bad, seed 0" in run.console.getvalue() and failure.failed in run.console.getvalue()


def test_a_student_that_cannot_be_scored_has_failed_and_the_others_have_rows(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [run.job("zero"), run.job("good", lr=0.001)]
    real = Encoded.load

    def broken(folder: Path) -> Encoded | None:
        found = real(folder)
        if found is None or folder != jobs[0].folder:
            return found
        vectors = np.array(found.vectors_ND)
        vectors[3] = 0
        return replace(found, vectors_ND=vectors)

    monkeypatch.setattr(Encoded, "load", staticmethod(broken))
    for _ in range(2):
        records, [failure] = run.students(*jobs)
        assert [r.configuration for r in records] == ["good", "good"] and failure.job == jobs[0]
        assert failure.failed.startswith("not scored: encoder 'zero': the vector of ")
        assert failure.failed.endswith("is zero or not finite, and has no cosine")
    assert failure.failed in run.console.getvalue().replace("\n", " ")
    assert not list(run.folder.rglob("vectors.npy")) and {t.state for t in run.trials()} == {"COMPLETE"}
    monkeypatch.undo()


def test_a_teacher_that_cannot_be_scored_ends_it_a_baseline_does_not(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real = module.encode_method

    def broken(method: Any, corpus: Corpus) -> Encoded:
        found = real(method, corpus)
        return replace(found, vectors_ND=np.zeros_like(found.vectors_ND)) if method.params.output_dim == 4 else found

    with monkeypatch.context() as patch:
        patch.setattr(module, "encode_method", broken)
        found = every(run.board(()).references([4, 8], seed=0))
    assert [(r.role, r.dim) for r in found] == [("teacher", 32), ("baseline", 8), ("baseline", 8)]
    assert run.console.getvalue().count("not scored: encoder 'PCA d=4'") == 1
    other = Run(run.folder.with_name("other"), run.prepared, run.corpus, monkeypatch)
    real_teacher = module.encode_teacher

    def zero(*given: Any) -> Encoded:
        found = real_teacher(*given)
        return replace(found, vectors_ND=np.zeros_like(found.vectors_ND))

    with monkeypatch.context() as patch:
        patch.setattr(module, "encode_teacher", zero)
        with pytest.raises(InputError, match="encoder 'tiny d=32': the vector of "):
            every(other.board(()).references([4, 8], seed=0))
    assert other.scores() == []


POINTS: list[tuple[str, Any, str, int]] = [
    ("trained and not recorded", module, "append_records", 1),
    ("recorded and not scored", module, "score_candidate", 1),
    ("scored and not written", module, "append_records", 3),
    ("one row written, its vectors not deleted", module, "remove_encoded", 1),
    ("between two rows", module, "score_candidate", 2),
]


@pytest.mark.slow
@pytest.mark.parametrize(("owner", "name", "call"), [p[1:] for p in POINTS], ids=[p[0] for p in POINTS])
def test_a_driver_killed_anywhere_leaves_every_record_once(
    run: Run, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int
) -> None:
    jobs, calls, real = [run.job("A"), run.job("B", lr=0.001)], iter(range(1, 99)), getattr(owner, name)

    def deadly(*arguments: Any) -> Any:
        if next(calls) == call:
            raise Killed
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, deadly)
        with pytest.raises(Killed):
            run.students(*jobs)
    survived = run.scores(), run.trials()
    records, failures = run.students(*jobs)
    assert failures == [] and run.scores() == records
    assert run.rows() == [(name, 0, kind) for name in "AB" for kind in ("float32", "int8")]
    assert [(t.number, t.params["lr"], t.state) for t in run.trials()] == [
        (0, 0.003, "COMPLETE"),
        (1, 0.001, "COMPLETE"),
    ]
    assert run.scores()[: len(survived[0])] == survived[0] and run.trials()[: len(survived[1])] == survived[1]
    assert run.trained == ["A", "B"]
    assert not list(run.folder.rglob("vectors.npy"))


def kept(run: Run) -> list[str]:
    return sorted(p.name for p in (run.folder / "predictions").iterdir())


def test_every_record_has_its_predictions_from_before_it_is_written(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module, "append_records", killed)
        with pytest.raises(Killed):
            every(run.board().references([8], seed=5))
    assert run.scores() == [] and len(kept(run)) == 1  # the teacher as it is
    records = every(run.board().references([8], seed=5))
    predicted = [f"{r.record_id[:24]}.npz" for r in records]
    examples = [f"{r.record_id[:24]}.json" for r in records if (r.role, r.quantisation) != PLAIN]
    assert kept(run) == sorted(predicted + examples)
    for record in records:
        found = Predictions.load(predictions_path(run.folder, record.record_id))
        assert [len(found.test[f"sts/{name}/spearman"].value_P) for name in ("STS12", "STSB")] == [60, 40]


def test_a_sweeps_students_leave_no_trial_records(run: Run) -> None:
    job = run.job("A", trial=3)
    records, failures = run.students(job)
    assert failures == [] and [r.trial for r in records] == [3, 3]
    assert run.trials() == []
    assert Encoded.load(job.folder) is None
    # What failed is tried again by the next command: the study holds no more than its trial.
    broken = replace(job, candidate=replace(job.candidate, trial=4, params={**job.candidate.params, "lambda": 1e39}))
    broken = replace(broken, folder=run.folder / "trials" / "4")
    for _ in range(2):
        assert run.students(broken)[1][0].failed == "loss -inf, gradient norm nan at step 0"
    assert len(run.trained) == 3 and run.trials() == []


def test_a_confirmation_is_recorded_once_also_where_it_failed(run: Run) -> None:
    told: list[TrialRecord] = []
    jobs = [replace(run.job("A", trial=3, seed=1), recorded_in="confirmations.jsonl")]
    params = {**jobs[0].candidate.params, "lambda": 1e39}
    bad = replace(jobs[0].candidate, trial=4, params=params)
    jobs.append(replace(jobs[0], candidate=bad, folder=run.folder / "bad", model="students/bad"))
    for _ in range(2):
        found = run.board().students(jobs, run.prepared, RESOURCES, Finishing(on_record=told.append))
        assert [(r.trial, r.seed, r.quantisation) for r in found.records] == [(3, 1, "float32"), (3, 1, "int8")]
        [failure] = found.failed
        assert (failure.job.candidate.trial, failure.failed) == (4, "loss -inf, gradient norm nan at step 0")
    records = [r for r in read_records(run.folder / "confirmations.jsonl") if isinstance(r, TrialRecord)]
    assert [(r.number, r.seed, r.state, r.confirms) for r in records] == [
        (3, 1, "COMPLETE", True),
        (4, 1, "FAIL", True),
    ]
    assert told == records and len(run.trained) == 2 and run.trials() == []


def test_what_time_was_over_for_is_left_and_comes_later(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [run.job("A"), run.job("B", lr=0.001), run.job("C", lr=0.002)]
    monkeypatch.setattr(run, "late", lambda job: job == jobs[2])
    now = iter([0.0, *[100.0] * 9])
    with monkeypatch.context() as patch:
        patch.setattr(module, "time", SimpleNamespace(time=lambda: next(now)))  # others ask for the time too
        found = run.board().students(jobs, run.prepared, RESOURCES, Finishing(score_until=50.0))
    assert found.unfinished == [jobs[2], jobs[1]] and found.failed == []
    assert run.rows() == [("A", 0, "float32"), ("A", 0, "int8")]
    monkeypatch.undo()
    assert [t.params["lr"] for t in run.trials()] == [0.003, 0.001]
