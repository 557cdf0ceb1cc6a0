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

from distilbench.commands.evaluate import evaluate
from distilbench.data.corpus import Corpus
from distilbench.data.evaluation import KINDS
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.scored_tasks import with_scored_tasks
from distilbench.encoders.encoder import EncoderSpec
from distilbench.evaluation.predictions import Predictions, predictions_path
from distilbench.methods import get_method
from distilbench.prepare.encode import encode_corpus
from distilbench.prepare.pca import pca_artifact
from distilbench.prepare.prepared import load_prepared, save_prepared
from distilbench.prepare.tokens import tokens_artifact
from distilbench.records import ScoreRecord, read_records
from distilbench.settings.evaluate import EvaluateSettings
from distilbench.storage.store import ArtifactStore
from distilbench.trials.budget import Budget
from distilbench.trials.jobs import Job, finish
from distilbench.trials.rows import Leaderboard
from distilbench.trials.scoring import Candidate, Encoded

CODES = ("int8", "binary")
METHODS: dict[str, dict[str, Any]] = {
    "mcr2": {"output_dim": 8, "lambda": 50.0, "clusters": 4, "lr": 0.003, "batch_size": 16},
    "hpd": {"output_dim": 8, "lr": 0.001, "batch_size": 16},
    "matryoshka": {"output_dim": 8, "halvings": 1, "lr": 0.001, "batch_size": 16},
}
HALF = 5e-4
"""Float16 keeps 11 bits."""
TIMES = {"build_s", "ms_per_1000_queries", "fit_s", "assign_s", "search_s"}


@dataclass(frozen=True)
class Run:
    """A run's prepared corpus and what it was made from."""

    data: Path
    encoder: Path
    corpus: Corpus
    prepared: Path
    store: Path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, encoder_folder: Path, cluster: None) -> Run:
    """A folder with one set of each kind, prepared with the teacher's vectors in float16.

    No sentence is paired with itself: the rounding of such cosines, all 1, decides their ranks.
    """
    root = tmp_path_factory.mktemp("both-ways")
    data, rng = make_data(root / "data"), random.Random(7)
    shutil.rmtree(data / "sts")
    text = random_sentences(900, seed=123)
    for name in ("STSB.dev", "STSB.test", "STS12.MSRpar", "STS12.OnWN"):
        rows = []
        for _ in range(60):
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
    corpus = with_scored_tasks(folder_corpus(data, Limits()), data, KINDS, None)
    teacher, store, key = EncoderSpec(str(encoder_folder)), ArtifactStore(root / "store"), corpus.sentences_fingerprint
    vectors, _ = encode_corpus(corpus.sentences, key, teacher, store, label="test")
    tokens = tokens_artifact(corpus.sentences, key, teacher, store)
    pca = pca_artifact(vectors, corpus.train, store)
    save_prepared(root / "prepared", corpus, teacher, "layers:0,2", vectors, pca, tokens)
    return Run(data, encoder_folder, corpus, root / "prepared", root / "store")


def swept(run: Run, folder: Path, name: str) -> list[ScoreRecord]:
    """The rows of a student that was trained for a few steps, or of the teacher."""
    board = Leaderboard(
        folder, "r", load_prepared(run.prepared), run.corpus, CODES, Console(file=io.StringIO()), tasks=KINDS
    )
    if name == "teacher":
        return board.teacher(0)
    method = get_method(name)
    params = method.params_type.model_validate(METHODS[name]).model_dump(mode="json", by_alias=True)
    candidate = Candidate("r", "student", name, 8, params, 0)
    job = Job(candidate, Budget(trials=1, steps=6, rungs=1, eta=3), folder, folder / "job", "students/s")
    assert finish(job, run.prepared, run.corpus, threads=1, hang_s=0).failed == ""
    encoded = Encoded.load(job.folder)
    assert encoded is not None
    return board.rows(candidate, method.widths_of(params), lambda: encoded)


def evaluated(run: Run, folder: Path, model: Path, dims: Iterable[int]) -> list[ScoreRecord]:
    given = {
        "model": (str(model),),
        "data": str(run.data),
        "tasks": KINDS,
        "dims": tuple(dims),
        "quantise": CODES,
        "indexes": ("flat", "ivf"),
        "cost": False,
        "name": "e",
        **{name: folder / name for name in ("runs", "reports", "store")},
    }
    evaluate(EvaluateSettings.model_validate(given), Console(quiet=True))
    return [r for r in read_records(folder / "runs" / "e" / "scores.jsonl") if isinstance(r, ScoreRecord)]


def numbers(items: Iterable[Any], *key: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """By their key the fields of scores or costs, without what was timed."""
    dumps = [item.model_dump(exclude=TIMES) for item in items]
    return {tuple(dump[field] for field in key): dump for dump in dumps}


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        # An encoder of its own is read in float32 both ways, in batches that are padded otherwise: roundings of 1e-7.
        ("hpd", 1e-3),
        ("matryoshka", 1e-3),
        # The teacher, and a head on it, are scored from vectors that were kept in float16.
        ("teacher", 0.02),
        ("mcr2", 0.02),
    ],
)
def test_a_row_of_a_run_and_evaluate_of_its_folder(run: Run, tmp_path: Path, name: str, tolerance: float) -> None:
    ours = {(r.dim, r.quantisation): r for r in swept(run, tmp_path / "run", name)}
    model = run.encoder if name == "teacher" else tmp_path / "run" / "students" / "s"
    whole = max(dim for dim, _ in ours)
    theirs = {(r.dim, r.quantisation): r for r in evaluated(run, tmp_path, model, {dim for dim, _ in ours} - {whole})}
    assert ours.keys() == theirs.keys() and len(ours) == (6 if name == "matryoshka" else 3)
    for row, mine in ours.items():
        other = theirs[row]
        assert (mine.bytes_per_vector, mine.parameters, mine.notes) == (
            other.bytes_per_vector, other.parameters, other.notes,
        )  # fmt: skip
        tasks = {s.task for s in mine.scores}
        assert tasks == (
            {*tasks, "classification", "pair-probe"} if row == (whole, "float32") else {"sts", "retrieval"}
        )
        key = ("task", "set", "split", "metric", "variant")
        scores, expected = numbers(mine.scores, *key), numbers(other.scores, *key)
        assert scores.keys() == expected.keys() and len(scores) == len(mine.scores)
        for one in scores:
            assert scores[one] == pytest.approx(expected[one], abs=tolerance), (row, one)
        costs, expected = (numbers(r.indexes, "set", "split", "kind") for r in (mine, other))
        assert costs.keys() == expected.keys() and len(costs) == (2 if row[1] == "float32" else 1)
        for one in costs:
            assert costs[one] == pytest.approx(expected[one], abs=tolerance), (row, one)
        clusters, expected = (numbers(r.clusters, "set", "split", "kind") for r in (mine, other))
        assert clusters.keys() == expected.keys()
        assert bool(clusters) == (name == "mcr2" and row[1] == "float32")
        for one in clusters:
            assert clusters[one] == pytest.approx(expected[one], abs=tolerance), (row, one)
        assert (mine.space is None) == (other.space is None) == (row[1] != "float32")
        if mine.space is not None and other.space is not None:
            own, same = mine.space.model_dump(), other.space.model_dump()
            np.testing.assert_allclose(own.pop("covariance"), same.pop("covariance"), atol=tolerance)
            assert own == pytest.approx(same, abs=tolerance)
        kept = [
            Predictions.load(predictions_path(tmp_path / place, record.record_id))
            for place, record in (("run", mine), ("runs/e", other))
        ]
        assert kept[0].item.keys() == kept[1].item.keys() and kept[0].similarity.keys() == kept[1].similarity.keys()
        for group, similarity_P in kept[0].similarity.items():
            np.testing.assert_allclose(similarity_P, kept[1].similarity[group], atol=max(tolerance / 10, HALF))


def test_evaluate_takes_the_quantiser_that_was_saved(run: Run, tmp_path: Path) -> None:
    """Another one beside the student gives other codes; without one they are calibrated on training text."""
    swept(run, tmp_path / "run", "hpd")
    model = tmp_path / "run" / "students" / "s"
    own = {r.quantisation: r for r in evaluated(run, tmp_path / "own", model, ())}
    for kind in CODES:
        for suffix in ("json", "safetensors"):
            (model / f"quantisation-{kind}.{suffix}").unlink()
    calibrated = {r.quantisation: r for r in evaluated(run, tmp_path / "calibrated", model, ())}
    # The same training text, but for a few steps of rounding.
    for kind in CODES:
        values = [[s.value for s in r.scores] for r in (own[kind], calibrated[kind])]
        assert values[0] == pytest.approx(values[1], abs=1e-3)
    from distilbench.evaluation.quantisation import QUANTISERS

    rng = np.random.default_rng(0)
    for kind in CODES:
        QUANTISERS[kind].calibrate(rng.standard_normal((50, 8)) + 1).save(model)
    other = {r.quantisation: r for r in evaluated(run, tmp_path / "other", model, ())}
    assert [s.value for s in other["float32"].scores] == [s.value for s in own["float32"].scores]
    for kind in CODES:
        assert [s.value for s in other[kind].scores] != [s.value for s in own[kind].scores]
