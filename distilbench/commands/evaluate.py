"""`distilbench evaluate`: encoders, trained here or not, scored on every set of a data folder and put on a leaderboard."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from distilbench.cluster.provenance import provenance
from distilbench.cluster.resources import ray_cluster
from distilbench.commands.corpus import print_sets
from distilbench.commands.run_folder import one_writer, publish, run_name
from distilbench.data.corpus import Corpus
from distilbench.data.evaluation_sets import evaluation_corpus
from distilbench.data.retrieval_sets import SPLITS
from distilbench.data.roles import with_roles
from distilbench.data.sentences import CorpusText
from distilbench.encoders.encoder import EncoderSpec, default_device
from distilbench.encoders.prompts import Prompts, reading_notes
from distilbench.errors import InputError, NotAllScored, unforeseen
from distilbench.evaluation.cost import CostBench
from distilbench.evaluation.encoders import Codes, TaskScores, Vectors, check_vectors, encoder_rows
from distilbench.evaluation.examples import keep_predictions
from distilbench.evaluation.faiss_codes import Code, not_possible, saved_code, saved_kinds, too_few
from distilbench.evaluation.pairs import pair_scores
from distilbench.machine import torch_threads
from distilbench.prepare.encode import CorpusEncoding
from distilbench.progress.console import scores_told
from distilbench.records import (
    AS_IT_CAME,
    ON_DEMONSTRATION,
    Quantisation,
    Role,
    Score,
    ScoreRecord,
    append_records,
    read_records,
)
from distilbench.reporting.names import name_by_source, source_ends
from distilbench.settings.commands import EvaluateSettings
from distilbench.storage.files import claim_folder, fingerprint
from distilbench.storage.store import ArtifactStore
from distilbench.trials.scoring import encoder_parameters

SCORES = "scores.jsonl"
GROWS = frozenset({"models", "dims", "quantisations"})
"""Settings of an evaluation that may differ when it is run again under its name: its rows are added to."""


class Evaluation:
    """The rows of one evaluation, `scores.jsonl` in its folder. A row that is there is not scored again."""

    def __init__(
        self, settings: EvaluateSettings, models: Sequence[EncoderSpec], corpus: Corpus, run: Path, console: Console
    ) -> None:
        self.settings, self.models, self.corpus, self.run, self.console = settings, models, corpus, run, console
        self.store = ArtifactStore(settings.store)
        self.read = with_roles(corpus, self.store) if any(spec.by_role for spec in models) else corpus
        """The corpus with a row for each way in which a text is read."""
        self.known = {r.record_id: r for r in read_records(run / SCORES) if isinstance(r, ScoreRecord)}
        self.notes: dict[str, None] = {}
        self.quantisations: tuple[Quantisation, ...] = tuple(dict.fromkeys(("float32", *settings.quantisations)))

    def score(self, spec: EncoderSpec, role: Role) -> None:
        """Score the model's rows that are not known: its own width and every smaller one asked for, in every quantisation."""
        whole = spec.width()
        widths = [whole, *sorted((d for d in set(self.settings.dims) if d < whole), reverse=True)]
        common, measured = self._identity(spec), [[str(i) for i in self.settings.index_specs], self.settings.cost]
        identities: dict[tuple[int, Quantisation], dict[str, Any]] = {}
        for width in widths:
            label, row_role = (spec.title, role) if width == whole else (f"{spec.title} d={width}", "encoder")
            for kind in self._kinds(spec, width):
                if kind == "float32" or not self._left_out(spec, kind, width):
                    own = {"label": label, "role": row_role, "dim": width, "quantisation": kind}
                    identity = fingerprint([common, own, measured])
                    identities[width, kind] = {**common, **own, "record_id": identity, "source": spec.name}
        missing = {width for (width, _), row in identities.items() if row["record_id"] not in self.known}
        for note in reading_notes(spec, searches=bool(self.corpus.retrieval)):
            self._told(note)
        if not missing:
            return
        vectors = self._vectors(spec)
        cost = None
        if whole in missing and self.settings.cost:
            rows = self.corpus.sts[0].left_P if self.corpus.sts else self.corpus.train
            cost = CostBench([self.corpus.sentences[int(row)] for row in rows], self.store).cost(spec)
        parameters, codes = encoder_parameters(spec), self._codes(spec, vectors)
        prompts = Prompts.of(spec).described() if spec.by_role else {}
        missing_widths, indexes = [w for w in widths if w in missing], self.settings.index_specs
        for row in encoder_rows(vectors, self.read, missing_widths, codes, indexes):
            if identities[row.width, row.quantisation]["record_id"] in self.known:
                continue
            as_it_is = (row.width, row.quantisation) == (whole, "float32")
            own_cost = cost if as_it_is else None
            own_head = _pair_head_scores(spec, self.corpus) if as_it_is else TaskScores()
            record = ScoreRecord(
                **identities[row.width, row.quantisation],
                bytes_per_vector=row.bytes_per_vector,
                disk_bytes=row.disk_bytes,
                fit_s=row.fit_s,
                parameters=parameters,
                scores=[*row.scores, *own_head.scores],
                indexes=row.indexes,
                sets=self.corpus.set_digests,
                cost=own_cost,
                latency_ms=own_cost and own_cost.latency_ms,
                notes=[*row.notes, *own_head.notes],
                model="",
                prompts=prompts,
                provenance=provenance(),
            )
            keep_predictions(self.run, record, row.predictions, self.read, self.known.values())
            append_records(self.run / SCORES, [record])
            self.known[record.record_id] = record
            self.console.print(_line(record, self.called(record)), markup=False)

    def _identity(self, spec: EncoderSpec) -> dict[str, Any]:
        """What all rows of a model have in common; how it reads text stands for hyper-parameters."""
        settings, corpus = self.settings, self.corpus
        backend = "int8" if spec.int8 else settings.float_backend
        prompts = {"query_prompt": spec.query_prompt, "document_prompt": spec.document_prompt}
        how = {
            "weights": fingerprint(spec.identity()),
            "prompt": spec.prompt,
            **{name: prompt for name, prompt in prompts.items() if prompt is not None},
            "max_tokens": spec.max_tokens,
            "kinds": list(settings.tasks),
            **({"backend": backend} if backend != "torch" else {}),
        }
        return {
            "run": self.run.name,
            "method": "encoder",
            "teacher": settings.teacher_encoder.title if settings.teacher_encoder else "",
            "start": AS_IT_CAME,
            "trial": None,
            "hyperparameters": how,
            "seed": 0,
            "corpus": corpus.name,
            "corpus_fingerprint": corpus.fingerprint,
            "demonstration": corpus.demonstration,
        }

    def called(self, record: ScoreRecord) -> str:
        """The record's name, which tells it from those of every model of the evaluation."""
        sources = {spec.name for spec in self.models} | {known.source for known in self.known.values()}
        return name_by_source(record, source_ends(sources))

    def _codes(self, spec: EncoderSpec, vectors: Vectors) -> Codes:
        """The codes that were saved with a student; for any other encoder, and width, calibrated on training text."""

        @functools.cache
        def calibration() -> NDArray[np.float32]:
            rows = self.read.train
            vectors_ND = vectors.take(rows)
            check_vectors(vectors_ND, spec.name, self.read, rows)
            return vectors_ND

        def codes(width: int) -> Iterator[Code]:
            for kind in self._kinds(spec, width):
                if kind != "float32" and not self._left_out(spec, kind, width):
                    place = saved_code(spec.folder(), kind, width)
                    yield Code.load(kind, place, width) if place else Code.calibrate(kind, calibration()[:, :width])

        return lambda width: list(codes(width))

    def _kinds(self, spec: EncoderSpec, width: int) -> list[Quantisation]:
        """The codes that a model is scored in: those asked for, and those that are saved with it."""
        saved = [] if "none" in self.settings.quantise else saved_kinds(spec.folder(), width)
        return list(dict.fromkeys((*self.quantisations, *saved)))

    def _left_out(self, spec: EncoderSpec, kind: Quantisation, width: int) -> str:
        """Why a model is not scored in a code, which is told once; "" where it is."""
        why = not_possible(kind, width)
        if not why and not saved_code(spec.folder(), kind, width):
            why = too_few(kind, width, len(self.corpus.train))
        if why:
            self._told(f"{spec.title}, not scored in {why}")
        return why

    def _told(self, note: str) -> None:
        if note not in self.notes:
            self.notes[note] = None
            self.console.print(note, markup=False)

    def _vectors(self, spec: EncoderSpec) -> Vectors:
        settings, corpus, width = self.settings, self.read, spec.width()
        rows = corpus.scored_rows
        if settings.quantisations:
            rows = np.union1d(rows, corpus.train)
        texts = [corpus.sentences[int(row)] for row in rows]
        roles_N = None if corpus.roles_N is None else corpus.roles_N[rows]
        key = fingerprint([texts, *(() if roles_N is None else roles_N.tolist())])
        encoding = CorpusEncoding(
            spec,
            self.store,
            spec.title,
            stored="float32",
            backend=settings.float_backend,
            size=settings.pool,
            in_process=not _on_ray(settings),
        )
        vectors = encoding.vectors(CorpusText(texts, key, roles_N))[0]
        if vectors.width != width:
            raise InputError(f"encoder {spec.name!r}: vectors of {vectors.width} dimensions, but its files say {width}")
        return Vectors(spec.name, width, lambda asked: vectors.take(np.searchsorted(rows, asked)))


def _on_ray(settings: EvaluateSettings) -> bool:
    """Whether encoding is spread over a Ray cluster: where one, or a number of workers, was asked for."""
    return settings.address is not None or settings.workers is not None


def evaluate(settings: EvaluateSettings, console: Console) -> Path:
    """Score every model and publish the leaderboard; its path. What was scored before is not scored again.

    A model that cannot be scored does not keep the others from it.

    Raises:
        InputError: bad input, found before anything is encoded.
        NotAllScored: the models that could not be scored, with the reasons; the others are published.
    """
    settings.check_folders()
    teacher = settings.teacher_encoder
    models = list(dict.fromkeys((*([teacher] if teacher else ()), *settings.models)))  # the teacher first, each once
    failed: dict[EncoderSpec, str] = {}
    for spec in models:
        with _noted(failed, spec, console):
            spec.check("model")
    if len(failed) == len(models):
        raise _not_scored(failed, models)
    corpus = evaluation_corpus(settings.data_folder, settings.tasks, settings.limits)
    print_sets(corpus, console)
    run = settings.runs / run_name(settings.name, "evaluate", corpus.name)
    with one_writer(run):
        claim_folder(run, _config(settings, corpus), may_change=GROWS)
        ray = ray_cluster(settings.address, settings.cpus, settings.dashboard)
        with ray if _on_ray(settings) else torch_threads(settings.cpus, most=True):
            evaluation = Evaluation(settings, models, corpus, run, console)
            for spec in models:
                if spec not in failed:
                    with _noted(failed, spec, console):
                        evaluation.score(spec, "teacher" if spec == teacher else "encoder")
        records = list(evaluation.known.values())
        notes = [*(f"Not scored: {reason}" for reason in failed.values()), *evaluation.notes]
        notes += dict.fromkeys(f"{evaluation.called(record)}: {note}" for record in records for note in record.notes)
        page = publish(settings.report_folder, corpus, run, records, notes) if records else None
    if failed or page is None:
        raise _not_scored(failed, models)
    return page


@contextmanager
def _noted(failed: dict[EncoderSpec, str], spec: EncoderSpec, console: Console) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        failed[spec] = str(error) if isinstance(error, InputError) else f"encoder {spec.name!r}: {unforeseen(error)}"
        console.print(f"not scored: {failed[spec]}", markup=False)


def _not_scored(failed: dict[EncoderSpec, str], models: Sequence[EncoderSpec]) -> NotAllScored:
    return NotAllScored(f"{len(failed)} of {len(models)} models not scored: {'; '.join(failed.values())}")


def _config(settings: EvaluateSettings, corpus: Corpus) -> dict[str, Any]:
    return {
        "kind": "evaluation",
        "corpus": corpus.name,
        "data_fingerprint": corpus.fingerprint,
        "kinds": list(settings.tasks),
        "models": [spec.name for spec in settings.models],
        "teacher": fingerprint(settings.teacher_encoder.identity()) if settings.teacher_encoder else "",
        "dims": list(settings.dims),
        "quantisations": list(settings.quantisations),
        "indexes": [str(index) for index in settings.index_specs],
        "backend": settings.float_backend,
    }


def _line(record: ScoreRecord, name: str) -> str:
    """A row for the terminal: the test scores by which encoders are usually told apart."""
    shown = {("sts", "spearman"), ("classification", "accuracy"), ("retrieval", "ndcg@10")}
    tested = {(s.task, s.set) for s in record.scores if s.split == "test"}
    scores = [
        s
        for s in record.scores
        if (s.task, s.metric) in shown
        and s.variant == "all"
        and (s.split == "test" or (s.task, s.set) not in tested)  # of a set without a test split, what there is
    ]
    kind = "" if record.quantisation == "float32" else f" {record.quantisation}"
    where = [f"({ON_DEMONSTRATION})"] if scores and record.demonstration else []
    return "  ".join([f"{name + kind:<32}", *scores_told(scores), *where])


def _pair_head_scores(spec: EncoderSpec, corpus: Corpus) -> TaskScores:
    """The scores of DSE's pair head, of the task that it was trained for, and a note where the data have no such task.

    Nothing of an encoder without such a head.
    """
    from distilbench.encoders.pair_head import DESCRIPTION, load_pair_scorer

    folder = spec.folder()
    if folder is None or not (folder / DESCRIPTION).is_file():
        return TaskScores()
    scorer = load_pair_scorer(folder, default_device())
    task = next((task for task in corpus.probed if task.name == scorer.task), None)
    if task is None:
        return TaskScores([], [f"its own pair head, for {scorer.task}, is not scored: there is no such pair task"])
    text, scores = corpus.sentences, list[Score]()
    for split in (split for split in SPLITS if split in task.splits):
        pairs = task.splits[split]
        left, right = ([text[int(row)] for row in side] for side in (pairs.left_P, pairs.right_P))
        scores += pair_scores(task, split, scorer.outputs(left, right))
    return TaskScores(scores)
