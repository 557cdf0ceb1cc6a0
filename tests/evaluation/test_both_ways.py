"""One encoder scored both ways, as a row of a run and by `evaluate` of its folder, has the same numbers."""

from __future__ import annotations

import io
import random
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from samples import WORDS, make_data, random_sentences, write_tsv

from distilbench.choices import EVERY_TASK, Stored
from distilbench.cluster.resources import TrialResources
from distilbench.commands.evaluate import evaluate
from distilbench.data.corpus import Corpus
from distilbench.data.evaluation_sets import with_scored_tasks
from distilbench.data.folder import Limits, folder_corpus
from distilbench.encoders.encoder import EncoderSpec
from distilbench.evaluation.predictions import Predictions, predictions_path
from distilbench.methods import get_method
from distilbench.prepare.encode import CorpusEncoding
from distilbench.prepare.pca import pca_artifact
from distilbench.prepare.prepared import Artifacts, StudentArtifacts, load_prepared
from distilbench.prepare.tokens import tokens_artifact
from distilbench.records import ScoreRecord, read_records
from distilbench.settings.commands import EvaluateSettings
from distilbench.storage.store import ArtifactStore
from distilbench.trials.budget import Budget
from distilbench.trials.jobs import Job, finish
from distilbench.trials.rows import RowScorer
from distilbench.trials.scoring import Candidate, Encoded, Scoring

CODES = ("int8", "binary")
METHODS: dict[str, dict[str, Any]] = {
    "pca": {"output_dim": 8},
    "hpd": {"output_dim": 8, "lr": 0.001, "batch_size": 16},
    "matryoshka": {"output_dim": 8, "halvings": 1, "lr": 0.001, "batch_size": 16, "labelled": "pairs"},
}
STORED: tuple[Stored, ...] = ("float16", "float32")
FLOAT32 = {"float32": 1e-3, "int8": 1e-3, "binary": 1e-3}
FLOAT16 = {"float32": 0.02, "int8": 0.05, "binary": 0.2}
"""The largest difference of a row's numbers where the run has kept the teacher's vectors in float32, or in float16.

Float16 puts a number beside a border on its other side, whatever the quantiser was calibrated on: 4 of 52,320 bits at 8
dimensions and 39 of the teacher's 209,280 have another value (calibrated on float32: 4 and 41). In a set of 1,000 pairs one
bit moves Spearman by 0.05 at 8 dimensions (0.14 at most) and by 0.014 at 32. Of int8, 2 % of the codes are a step off: the
scores are within 0.02, an end of an interval is up to 0.03 off.
"""
TIMES = {"build_s", "ms_per_1000_queries", "fit_s", "assign_s", "search_s"}


@dataclass(frozen=True)
class Run:
    """A run's prepared corpus and what it was made from."""

    data: Path
    encoder: Path
    corpus: Corpus
    prepared: Path
    """A folder for each precision of the teacher's vectors."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, encoder_folder: Path) -> Run:
    """A folder with a set of each kind, prepared twice, with the teacher's vectors in float16 and in float32.

    STS sets have 1,000 pairs, so that two that change places move Spearman by less than 0.001, and no sentence is paired
    with itself: the rounding of such cosines, all 1, would decide their ranks.
    """
    root = tmp_path_factory.mktemp("both-ways")
    data, rng = make_data(root / "data"), random.Random(7)
    for name in ("queries", "qrels"):
        shutil.copy(data / "quora" / "retrieval" / f"{name}.dev.tsv", data / "quora" / "retrieval" / f"{name}.test.tsv")
    shutil.rmtree(data / "sts")
    text = random_sentences(4_000, seed=123)
    for name in ("STSB.dev", "STSB.test", "STS12.MSRpar"):
        rows = []
        for _ in range(1_000):
            one = text.pop()
            words = one.split()
            changed = rng.randint(1, len(words))
            other = words[: len(words) - changed] + rng.choices(WORDS, k=changed + 1)
            rows.append([one, " ".join(other), f"{5 * (1 - (changed - 1) / len(words)):.2f}"])
        write_tsv(data / "sts" / f"{name}.tsv", ["sentence1", "sentence2", "score"], rows)
    mr = [[t, int("dog" in t or "cat" in t or "man" in t)] for t in (text.pop() for _ in range(120))]
    write_tsv(data / "sc" / "MR.tsv", ["text", "label"], mr)
    for split, count in (("train", 90), ("dev", 40), ("test", 40)):
        pairs = [[one := text.pop(), f"{one} today" if i % 2 else text.pop(), i % 2] for i in range(count)]
        write_tsv(data / "glue" / f"MRPC.{split}.tsv", ["sentence1", "sentence2", "label"], pairs)
    corpus = with_scored_tasks(folder_corpus(data, Limits()), data, EVERY_TASK, None)
    teacher, store = EncoderSpec(str(encoder_folder)), ArtifactStore(root / "store")
    tokens = tokens_artifact(corpus.text, teacher, store)
    for stored in STORED:
        vectors, _ = CorpusEncoding(teacher, store, "test", stored, in_process=True).vectors(corpus.text)
        pca = pca_artifact(vectors, corpus.train, store)
        student = StudentArtifacts("layers:0,2", tokens=tokens)
        Artifacts(corpus, teacher, vectors, pca, student).save(root / stored)
    return Run(data, encoder_folder, corpus, root)


def swept(run: Run, folder: Path, name: str, stored: Stored = "float32") -> list[ScoreRecord]:
    """The rows of a student that was trained for a few steps, or of the teacher."""
    folder.mkdir()
    prepared = run.prepared / stored
    scoring = Scoring(folder, load_prepared(prepared), run.corpus, EVERY_TASK)
    board = RowScorer(scoring, "r", CODES, Console(file=io.StringIO()))
    if name == "teacher":
        return next(board.references([], 0))
    method = get_method(name)
    params = method.params_type.model_validate(METHODS[name]).model_dump(mode="json", by_alias=True)
    candidate = Candidate("r", "student", name, 8, params, 0)
    job = Job(candidate, Budget(trials=1, steps=6, rungs=1, eta=3), folder, folder / "job", "students/s")
    assert finish(job, prepared, run.corpus, TrialResources(1, 0, 1, "")).failed == ""
    encoded = Encoded.load(job.folder)
    assert encoded is not None
    return board.rows(candidate, method.widths_of(params), lambda: encoded)


def evaluated(
    run: Run, folder: Path, model: Path, dims: Iterable[int], quantise: tuple[str, ...] = CODES
) -> list[ScoreRecord]:
    given = {
        "model": (str(model),),
        "data": str(run.data),
        "tasks": EVERY_TASK,
        "dims": tuple(dims),
        "quantise": quantise,
        "indexes": ("flat", "ivf"),
        "cost": False,
        "name": "e",
        **{name: folder / name for name in ("runs", "store")},
    }
    evaluate(EvaluateSettings.model_validate(given), Console(quiet=True))
    return [r for r in read_records(folder / "runs" / "e" / "scores.jsonl") if isinstance(r, ScoreRecord)]


def numbers(items: Iterable[Any], *key: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """By their key the fields of scores or costs, without what was timed."""
    dumps = [item.model_dump(exclude=TIMES) for item in items]
    return {tuple(dump[field] for field in key): dump for dump in dumps}


def differences(mine: dict[tuple[Any, ...], dict[str, Any]], other: dict[tuple[Any, ...], dict[str, Any]]) -> float:
    """The largest difference of two rows' numbers; all that is no number is equal."""
    assert mine.keys() == other.keys()
    largest = 0.0
    for key, fields in mine.items():
        for field, value in fields.items():
            if isinstance(value, float):
                largest = max(largest, abs(value - other[key][field]))
            else:
                assert value == other[key][field], (key, field)
    return largest


@pytest.mark.parametrize(
    ("name", "stored", "tolerances"),
    [
        # All in float32: what differs is how batches are padded, 1e-7 of a number.
        ("hpd", "float32", FLOAT32),
        ("matryoshka", "float32", FLOAT32),
        ("teacher", "float32", FLOAT32),
        ("pca", "float16", FLOAT16),
    ],
)
def test_a_row_of_a_run_and_evaluate_of_its_folder(
    run: Run, tmp_path: Path, name: str, stored: Stored, tolerances: dict[str, float]
) -> None:
    ours = {(r.dim, r.quantisation): r for r in swept(run, tmp_path / "run", name, stored)}
    model = run.encoder if name == "teacher" else tmp_path / "run" / "students" / "s"
    whole = max(dim for dim, _ in ours)
    theirs = {(r.dim, r.quantisation): r for r in evaluated(run, tmp_path, model, {dim for dim, _ in ours} - {whole})}
    assert ours.keys() == theirs.keys() and len(ours) == (6 if name == "matryoshka" else 3)
    for row, mine in ours.items():
        other, exact = theirs[row], row[1] == "float32"
        most = tolerances[row[1]]
        for field in ("bytes_per_vector", "parameters", "notes"):
            assert getattr(mine, field) == getattr(other, field)
        labelled = {"classification", "pair-probe"} if row == (whole, "float32") else set()
        assert {s.task for s in mine.scores} == {"sts", "retrieval", *labelled}
        key = ("task", "set", "split", "metric", "variant")
        scores, expected = numbers(mine.scores, *key), numbers(other.scores, *key)
        assert len(scores) == len(mine.scores) and differences(scores, expected) < most, row
        costs, expected = (numbers(r.indexes, "set", "split", "kind") for r in (mine, other))
        assert len(costs) == (3 if exact else 2) and differences(costs, expected) < most, row
        kept = [
            Predictions.load(predictions_path(tmp_path / place, record.record_id))
            for place, record in (("run", mine), ("runs/e", other))
        ]
        assert kept[0].test.keys() == kept[1].test.keys() >= {"sts/STSB/spearman", "sts/STS12/spearman"}


def test_evaluate_takes_the_quantiser_that_was_saved(run: Run, tmp_path: Path) -> None:
    """Another one beside the student gives other codes; without one they are calibrated on training text."""
    swept(run, tmp_path / "run", "hpd")
    model = tmp_path / "run" / "students" / "s"
    own = {r.quantisation: r for r in evaluated(run, tmp_path / "own", model, ())}
    unasked = {r.quantisation: r for r in evaluated(run, tmp_path / "unasked", model, (), quantise=())}
    assert {kind: r.scores for kind, r in unasked.items()} == {kind: r.scores for kind, r in own.items()}
    assert [r.quantisation for r in evaluated(run, tmp_path / "none", model, (), quantise=("none",))] == ["float32"]
    for kind in CODES:
        for suffix in ("json", "faiss"):
            (model / f"quantisation-{kind}.{suffix}").unlink()
    calibrated = {r.quantisation: r for r in evaluated(run, tmp_path / "calibrated", model, ())}
    # The same training text, but for a few steps of rounding: on one processor 0, on another 0.0022 was seen.
    for kind in CODES:
        values = [[s.value for s in r.scores] for r in (own[kind], calibrated[kind])]
        assert values[0] == pytest.approx(values[1], abs=5e-3)
    from distilbench.evaluation.faiss_codes import Code

    rng = np.random.default_rng(0)
    for kind in CODES:
        Code.calibrate(kind, rng.standard_normal((50, 8)) + 1).save(model)
    other = {r.quantisation: r for r in evaluated(run, tmp_path / "other", model, ())}
    assert [s.value for s in other["float32"].scores] == [s.value for s in own["float32"].scores]
    for kind in CODES:
        assert [s.value for s in other[kind].scores] != [s.value for s in own[kind].scores]
