"""The rows of a leaderboard: teacher, baselines at every output dimension, trained students, on every set."""

from __future__ import annotations

import functools
import itertools
import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from rich.console import Console

from distilbench.cluster.provenance import provenance
from distilbench.cluster.resources import TrialResources
from distilbench.codes import FAISS_PEER, FAMILIES, code_of
from distilbench.data.corpus import Corpus
from distilbench.errors import InputError
from distilbench.evaluation.examples import examples_path, keep_predictions
from distilbench.evaluation.faiss_codes import not_possible, too_few
from distilbench.evaluation.predictions import predictions_path
from distilbench.methods import get_method
from distilbench.prepare.prepared import Prepared
from distilbench.progress.console import RunLog, scores_told
from distilbench.records import (
    ON_DEMONSTRATION,
    EncoderCost,
    Quantisation,
    Score,
    ScoreRecord,
    TrialRecord,
    append_records,
    read_records,
    read_trials,
    result_rung,
)
from distilbench.selection import Selection
from distilbench.storage.files import atomic_path, fingerprint
from distilbench.trials.costs import kind_key
from distilbench.trials.jobs import Job, Outcome, finish_jobs
from distilbench.trials.rung_training import build_method, known_rungs
from distilbench.trials.scoring import (
    BASELINES,
    CROSS_ENCODER,
    ENCODED,
    TEACHER,
    Candidate,
    Encoded,
    Scoring,
    across,
    calibrated_on,
    encode_method,
    encode_teacher,
    kinds_for,
    remove_encoded,
    score_candidate,
)


class Students(NamedTuple):
    """The rows of all jobs that succeeded, the outcomes of those that failed, and the jobs for which time was over."""

    records: list[ScoreRecord]
    failed: list[Outcome]
    unfinished: list[Job]


@dataclass(frozen=True)
class Finishing:
    """When trainings and scoring end (seconds since the epoch; what is left is for another call), and who is told."""

    train_until: float = math.inf
    score_until: float = math.inf
    on_record: Callable[[TrialRecord], None] = lambda record: None
    """Gets the records of trainings."""
    on_scoring: Callable[[], None] = lambda: None
    """Called when the trainings are over."""
    on_counted: Callable[[int, int], None] = lambda done, total: None
    """Told how many trainings are done, then how many students are scored."""


class RowScorer:
    """The rows of one run, `name` in records. A row that is already in `scores.jsonl` (same identity) is not scored again.

    `costs` are those of each kind of student (`trials.costs`), where they were measured. `sibling_runs` are other runs of
    the same command, by their names: their rows of the teacher and the baselines are taken over.
    """

    def __init__(
        self,
        scoring: Scoring,
        name: str,
        quantisations: Sequence[Quantisation],
        console: Console,
        costs: Mapping[str, EncoderCost] = MappingProxyType({}),
        sibling_runs: Mapping[str, Path] = MappingProxyType({}),
    ) -> None:
        self.scoring, self.name, self.quantisations, self.console = scoring, name, quantisations, console
        self.costs, self.sibling_runs = costs, sibling_runs
        self.run, self.prepared, self.corpus = scoring.run, scoring.prepared, scoring.corpus
        self.scored_corpus = scoring.corpus.of_tasks(scoring.tasks)
        """The sentences that encoders embed for their rows; a record's identity is of the whole `corpus`."""
        self.log = RunLog(scoring.run)
        self.told: set[str] = set()
        self.file = scoring.run / "scores.jsonl"
        self.known = _scores(self.file)

    def references(
        self,
        dimensions: Iterable[int],
        seed: int,
        cross_encoder: Sequence[Score] = (),
        peers: Sequence[Quantisation] = (),
    ) -> Iterator[list[ScoreRecord]]:
        """Score what students are compared with, one encoder at each step: the teacher, and what can be left out for want
        of time, the most telling first.

        These are the cross-encoder, PCA and then random projection at each output dimension that the teacher has, and each of
        the `peers`. A baseline that cannot be scored is left out, which is told on the console.
        """
        prepared, corpus, width = self.prepared, self.scored_corpus, self.prepared.vectors.width
        teacher = Candidate(self.name, "teacher", TEACHER, width, {}, seed)
        yield self.rows(teacher, [width], lambda: encode_teacher(prepared, corpus))
        if cross_encoder:
            yield [self._cross_encoder(cross_encoder, seed)]
        for name, d in itertools.product(BASELINES, [d for d in dimensions if d <= width]):
            candidate = Candidate(self.name, "baseline", name, d, {"output_dim": d}, seed)
            yield self._reference(candidate, functools.partial(_encode_baseline, candidate, prepared, corpus))
        peer = Candidate(self.name, "baseline", FAISS_PEER, width, {}, seed)
        encoded = functools.cache(functools.partial(encode_teacher, prepared, corpus, calibrated_on({}, FAISS_PEER)))
        for kind in peers:
            yield self._reference(peer, encoded, [kind])

    def peers(self, sizes: Sequence[int], families: Iterable[str] = FAMILIES) -> list[Quantisation]:
        """FAISS's own codes of the teacher's vectors of so many bytes, in the order of `families`.

        A code that FAISS cannot make of the teacher's dimensions, or of so few training sentences, is left out.
        """
        width, sentences = self.prepared.vectors.width, len(self.prepared.train)
        kinds = [f"{family}{size}" for family in families for size in sizes]
        return [kind for kind in kinds if not (not_possible(kind, width) or too_few(kind, width, sentences))]

    def _reference(
        self, candidate: Candidate, encoded: Callable[[], Encoded], kinds: Sequence[Quantisation] = ()
    ) -> list[ScoreRecord]:
        try:
            return self.rows(candidate, [candidate.dim], encoded, kinds)
        except InputError as error:
            self.say(f"not scored: {error}")
            return []

    def say(self, text: str) -> None:
        """Tell it on the console and in the run's log."""
        self.console.print(text, markup=False)
        self.log.line(text)

    def _cross_encoder(self, scores: Sequence[Score], seed: int) -> ScoreRecord:
        """The row of a cross-encoder: it scores pairs and has no embedding."""
        candidate = Candidate(self.name, "baseline", CROSS_ENCODER, 0, {}, seed)
        identity = candidate.identity(self.prepared, self.corpus, 0, "float32", self.scoring.tasks)
        if identity["record_id"] not in self.known:
            record = ScoreRecord(
                **identity,
                bytes_per_vector=0,
                parameters=0,
                select=str(self.corpus.selection),
                scores=list(scores),
                indexes=[],
                model="",
                provenance=provenance(),
            )
            self._keep([record])
            self.log.line(_line(record))
        return self.known[identity["record_id"]]

    def students(
        self, jobs: Sequence[Job], prepared: Path, resources: TrialResources, finishing: Finishing | None = None
    ) -> Students:
        """Finish the jobs whose rows are not there (side by side), then score them one after the other: searches are timed.

        A training that has a record is over: it gets no second one, and where it failed it is not tried again. A student
        whose vectors cannot be scored has failed; it is scored again by the next call. A trial that was trained to its end
        by the search is no training here: its student is saved.
        """
        finishing = finishing or Finishing()
        wanted, failed, on_outcome = self._trainings(jobs, finishing)
        unfinished = finish_jobs(wanted, prepared, self.scored_corpus, resources, on_outcome, finishing.train_until)
        finishing.on_scoring()
        records: list[ScoreRecord] = []
        gone = {outcome.job.folder for outcome in failed} | {job.folder for job in unfinished}
        trained = [job for job in jobs if job.folder not in gone]
        for number, job in enumerate(trained):
            finishing.on_counted(number, len(trained))
            if time.time() >= finishing.score_until and not self._is_scored(job):
                unfinished.append(job)
                continue
            try:
                records += self._student_rows(job, finishing.score_until)
                unfinished += [] if self._is_scored(job) else [job]
            except InputError as error:
                self.say(f"not scored: {error}")
                failed.append(Outcome(job, f"not scored: {error}", tuple(known_rungs(job.folder))))
            if job not in unfinished:
                remove_encoded(job.folder)
        finishing.on_counted(len(trained), len(trained))
        return Students(records, failed, unfinished)

    def _forms(self, job: Job) -> list[tuple[Candidate, Sequence[int]]]:
        """A student with its own documents and with its teacher's, each with its widths; what selects it comes first.

        One whose vectors are gone, and that has no rows with its teacher's, was scored before there were such rows.
        """
        widths = get_method(job.candidate.method).widths_of(job.candidate.params)
        own, pair = (job.candidate, widths), across(job.candidate, self.scoring)
        if pair and self.scored(*own) and not (self.scored(*pair) or (job.folder / ENCODED).exists()):
            pair = None
        forms: list[tuple[Candidate, Sequence[int]]] = [own, *([pair] if pair else [])]
        return forms[::-1] if self.corpus.selection.by_teacher else forms

    def _is_scored(self, job: Job) -> bool:
        return all(self.scored(*form) for form in self._forms(job))

    def _student_rows(self, job: Job, until: float) -> list[ScoreRecord]:
        """A student's rows, or as many as there is time for: at least those of its whole vectors."""
        records: list[ScoreRecord] = []
        for form in self._forms(job):
            if not records or time.time() < until:
                records += self.rows(*form, functools.partial(_load, job.folder), until=until)
        return records

    def _trainings(
        self, jobs: Sequence[Job], finishing: Finishing
    ) -> tuple[list[Job], list[Outcome], Callable[[Outcome], None]]:
        """The jobs to finish, the trainings that failed before, and what records each that is over and tells of it."""
        recorded: dict[tuple[str, str], TrialRecord] = {}
        for name in {job.recorded_in for job in jobs if job.recorded_in}:
            recorded |= {(name, _training_key(r)): r for r in read_trials(self.run / name)}
        failed: list[Outcome] = []
        wanted: list[Job] = []
        for job in jobs:
            record = recorded.get((job.recorded_in, _training_key(job.candidate)))
            if record is not None and record.state == "FAIL":
                failed.append(Outcome(job, record.reason, tuple(record.rungs)))
            elif not self._is_scored(job):
                wanted.append(job)
        count = sum(bool(job.recorded_in) for job in wanted)
        done = iter(range(1, count + 1))
        finishing.on_counted(0, count)

        def on_outcome(outcome: Outcome) -> None:
            job = outcome.job
            if outcome.failed:
                failed.append(outcome)
            key = (job.recorded_in, _training_key(job.candidate))
            if job.recorded_in and key not in recorded:
                recorded[key] = self._trial_record(outcome, len(recorded))
                append_records(self.run / job.recorded_in, [recorded[key]])
                finishing.on_record(recorded[key])
            self._tell(outcome)
            if job.recorded_in:
                finishing.on_counted(next(done), count)

        return wanted, failed, on_outcome

    def _tell(self, outcome: Outcome) -> None:
        candidate, rung = outcome.job.candidate, result_rung(outcome.rungs)
        value = None if rung is None else rung.dev
        dev = "" if value is None else f": dev {value:.2f}"
        dev += f" ({ON_DEMONSTRATION})" if dev and self.corpus.demonstration else ""
        line = f"{candidate.configuration or outcome.job.model}, seed {candidate.seed}{dev}"
        if outcome.failed:
            self.say(f"training failed: {line}: {outcome.failed}")
        else:
            self.log.line(f"trained {line}")

    def _trial_record(self, outcome: Outcome, number: int) -> TrialRecord:
        candidate, rungs = outcome.job.candidate, list(outcome.rungs)
        result = result_rung(rungs) if outcome.job.best else (rungs[-1] if rungs else None)
        return TrialRecord(
            run=self.name,
            number=number if candidate.trial is None else candidate.trial,
            state="FAIL" if outcome.failed else "COMPLETE",
            reason=outcome.failed,
            method=candidate.method,
            params=candidate.params,
            seed=candidate.seed,
            dim=candidate.dim,
            objective=None if result is None else result.objective,
            rungs=rungs,
            confirms=candidate.trial is not None,
            select=str(self.corpus.selection),
            provenance=provenance(outcome.machine),
        )

    def scored(self, candidate: Candidate, widths: Sequence[int], kinds: Sequence[Quantisation] = ()) -> bool:
        """Whether all of the candidate's rows are there."""
        return all(i in self.known for i in self._ids(candidate, widths, kinds))

    def rows(
        self,
        candidate: Candidate,
        widths: Sequence[int],
        encoded: Callable[[], Encoded],
        kinds: Sequence[Quantisation] = (),
        until: float = math.inf,
    ) -> list[ScoreRecord]:
        """The candidate's records, scored now unless all of them are there; a line for each in the run's log.

        `kinds` are the codes of its vectors; () stands for those in which the run scores such a candidate. After `until`
        (seconds since the epoch) no other width is begun, once there is a new one: another call goes on.
        """
        kinds = kinds or self._kinds(candidate)
        if candidate.role != "student":
            self._take_over(candidate, widths, kinds)
        missing = [kind for kind in kinds if not self.scored(candidate, widths, [kind])]
        if missing or not self.scored(candidate, widths, kinds):
            made = score_candidate(candidate, encoded(), self.scoring, widths, missing, self._cost(candidate))
            before = len(self.known)
            for record, predictions in made:
                if record.record_id not in self.known:
                    keep_predictions(self.run, record, predictions, self.scored_corpus, self.known.values())
                    self._keep([record])
                    self.log.line(_line(record))
                last = record.quantisation == ["float32", *kinds_for(missing, record.dim)][-1]
                if last and len(self.known) > before and time.time() >= until:
                    break  # before the searches of the next width
        return [self.known[i] for i in self._ids(candidate, widths, kinds) if i in self.known]

    def _keep(self, records: Sequence[ScoreRecord]) -> None:
        append_records(self.file, records)
        self.known |= {record.record_id: record for record in records}

    def _take_over(self, candidate: Candidate, widths: Sequence[int], kinds: Sequence[Quantisation]) -> None:
        """Copy the records that runs beside this one have of a reference: they would be scored alike."""
        ids, cost = self._ids(candidate, widths, kinds), self._cost(candidate)
        for name, run in self.sibling_runs.items():
            if all(i in self.known for i in ids):
                return
            theirs = _scores(run / "scores.jsonl")
            for own_id, their_id in zip(ids, self._ids(replace(candidate, run=name), widths, kinds), strict=True):
                predictions = predictions_path(run, their_id)
                if own_id not in self.known and their_id in theirs and predictions.exists():
                    for path in filter(Path.exists, (predictions, examples_path(run, their_id))):
                        with atomic_path(predictions_path(self.run, own_id).with_suffix(path.suffix)) as temporary:
                            shutil.copyfile(path, temporary)
                    own = {"run": self.name, "record_id": own_id, "cost": cost, "latency_ms": cost and cost.latency_ms}
                    self._keep([theirs[their_id].model_copy(update=own)])

    def _cost(self, candidate: Candidate) -> EncoderCost | None:
        """The cost of its encoder; None if that was not measured."""
        if not self.costs or candidate.method == CROSS_ENCODER:
            return None
        return self.costs.get(kind_key(candidate.method, candidate.params))

    def _kinds(self, candidate: Candidate) -> tuple[Quantisation, ...]:
        """The codes of a candidate's vectors: the one that it was trained for, or those of the run."""
        own = code_of(candidate.params)
        if own != "float32" and candidate.params.get("codebooks"):
            return (own,)  # fitted in training
        kinds: Sequence[Quantisation] = self.quantisations if own == "float32" else (own,)
        width, sentences = self.prepared.vectors.width, len(self.prepared.train)
        coded = [kind for kind in kinds if kind != "float32"]
        absent = {kind: not_possible(kind, candidate.dim) or too_few(kind, width, sentences) for kind in coded}
        for why in set(absent.values()) - self.told - {""}:
            self.say(f"not scored in {why}")
            self.told.add(why)
        return tuple(kind for kind in kinds if not absent.get(kind))

    def _ids(self, candidate: Candidate, widths: Sequence[int], kinds: Sequence[Quantisation]) -> list[str]:
        float32 = [] if candidate.method == FAISS_PEER else ["float32"]
        return [
            candidate.identity(self.prepared, self.corpus, width, kind, self.scoring.tasks)["record_id"]
            for width in widths
            for kind in (*float32, *kinds_for(kinds or self._kinds(candidate), width))
        ]


def _scores(file: Path) -> dict[str, ScoreRecord]:
    return {r.record_id: r for r in read_records(file) if isinstance(r, ScoreRecord)}


def _training_key(of: Candidate | TrialRecord) -> str:
    """A key of everything that decides a training's outcome. Rows that differ in their name alone have one record."""
    return fingerprint([of.method, of.params, of.seed])


def _encode_baseline(candidate: Candidate, prepared: Prepared, corpus: Corpus) -> Encoded:
    method = build_method(candidate.method, candidate.params, prepared, candidate.seed, "cpu")
    return encode_method(method, corpus)


def _load(folder: Path) -> Encoded:
    encoded = Encoded.load(folder)
    if encoded is None:
        raise RuntimeError(f"{folder}: its job left no vectors")
    return encoded


def _line(record: ScoreRecord) -> str:
    selection = Selection.parse(record.select)
    shown = {(part.kind, part.metric) for part in selection.parts} | {("sts", "spearman")}
    tests = [s for s in record.scores if s.split == "test" and s.variant == "all"]
    tests = [s for s in tests if s.task == "pairs" or (s.task, s.metric) in shown]
    scores = scores_told(tests)
    if record.select != "sts":
        scores = [
            f"dev {s.value:.2f}" for s in record.scores if (s.task, s.set) == ("selection", str(selection.measure))
        ] + scores
    kind = "" if record.quantisation == "float32" else f" {record.quantisation}"
    name = f"{record.configuration} d={record.dim}" if record.configuration else record.label
    if record.trial is not None and not record.configuration:
        name += f", trial {record.trial}, seed {record.seed}"
    scores += [f"({ON_DEMONSTRATION})"] if scores and record.demonstration else []
    return "  ".join([f"{name + kind:<32}", *scores])
