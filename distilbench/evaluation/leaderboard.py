"""After the search: score the teacher, the baselines at every output dimension and the best students, on every set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial
from rich.console import Console

from distilbench.data.corpus import Corpus, Rows
from distilbench.encoder import EncoderSpec, default_device
from distilbench.evaluation.sts import Embed
from distilbench.evaluation.suite import evaluate
from distilbench.methods import get_method
from distilbench.prepare.encode import encode_corpus
from distilbench.prepare.prepared import Prepared
from distilbench.provenance import provenance
from distilbench.records import ScoreRecord, append_records, read_records
from distilbench.search.space import SearchSpace
from distilbench.search.study import trial_params
from distilbench.search.trial import build_method, trial_folder
from distilbench.store import ArtifactStore, fingerprint, remove_folder
from distilbench.student import describe_student
from distilbench.training.checkpoint import load_checkpoint

FLOAT32 = 4
FROZEN = "teacher (frozen)"


class Leaderboard:
    """The rows of one run. A row that is already in `scores.jsonl` (same identity) is not scored again."""

    def __init__(
        self, run: Path, prepared: Prepared, corpus: Corpus, space: SearchSpace, seed: int, store: ArtifactStore
    ) -> None:
        self.run, self.prepared, self.corpus, self.space = run, prepared, corpus, space
        self.seed, self.store = seed, store
        self.file = run / "scores.jsonl"
        self.known = {r.record_id: r for r in read_records(self.file) if isinstance(r, ScoreRecord)}

    def rows(self, best: dict[int, FrozenTrial]) -> Iterator[ScoreRecord]:
        """Teacher, then PCA and random projection, then the students, by rising dimension."""
        vectors, pca = self.prepared.vectors, self.prepared.pca
        yield self._row("teacher", "teacher", vectors.width, lambda: (vectors.take, ""))
        for d in self.space.dimensions:
            yield self._row("baseline", "pca", d, lambda d=d: (lambda rows: pca.project(vectors.take(rows), d), ""))
            basis_Dd = random_projection(vectors.width, d, self.seed)
            yield self._row(
                "baseline",
                "random projection",
                d,
                lambda basis_Dd=basis_Dd: (lambda rows: vectors.take(rows) @ basis_Dd, ""),
            )
        for d, trial in best.items():
            yield self._row("student", self.space.method, d, lambda trial=trial: self._student(trial), trial)

    def _row(
        self,
        role: Literal["teacher", "student", "baseline"],
        method: str,
        d: int,
        source: Any,
        trial: FrozenTrial | None = None,
    ) -> ScoreRecord:
        teacher = self.prepared.teacher
        hyperparameters = {} if trial is None else trial_params(trial, self.space)
        title = {"teacher": teacher.title, "pca": "PCA", "random projection": "Random projection"}.get(method)
        if title is None:
            variant = get_method(method).variant(hyperparameters)
            title = get_method(method).title + (f" ({variant})" if variant else "")
        trains_encoder = role == "student" and get_method(method).trains_encoder
        identity: dict[str, Any] = {
            "run": self.run.name,
            "label": f"{title} d={d}",
            "role": role,
            "method": method,
            "dim": d,
            "teacher": teacher.title,
            "start": describe_student(self.prepared.student, teacher) if trains_encoder else FROZEN,
            "trial": None if trial is None else trial.number,
            "hyperparameters": hyperparameters,
            "seed": self.seed,
            "corpus": self.corpus.name,
            "corpus_fingerprint": self.corpus.fingerprint,
            "demonstration": self.corpus.demonstration,
        }
        record_id = fingerprint([identity, self.prepared.vectors.folder.name])
        if record_id in self.known:
            return self.known[record_id]
        embed, model = source()
        scores, indexes = evaluate(embed, self.corpus)
        record = ScoreRecord(
            **identity,
            record_id=record_id,
            bytes_per_vector=FLOAT32 * d,
            parameters=self._parameters(role, method, d, model),
            scores=scores,
            indexes=indexes,
            model=model,
            provenance=provenance(),
        )
        append_records(self.file, [record])
        return record

    def _student(self, trial: FrozenTrial) -> tuple[Embed, str]:
        """Export the trial's student, and embed with it: a head on cached teacher vectors, an encoder on Ray Data."""
        params = trial_params(trial, self.space)
        method = build_method(self.space.method, params, self.prepared, self.seed, default_device())
        if load_checkpoint(trial_folder(self.run, trial.number), method, None) is None:
            raise RuntimeError(f"{trial_folder(self.run, trial.number)}: no checkpoint of the best trial in it")
        method.eval()
        name = f"students/{self.space.method}-d{method.params.output_dim}"
        folder = self.run / name
        partial = folder.with_name(folder.name + ".partial")
        remove_folder(partial)
        partial.parent.mkdir(parents=True, exist_ok=True)
        rows = evaluation_rows(self.corpus)
        # An export moves the head to the CPU, so a head embeds first; an encoder is scored as the folder it becomes.
        vectors = None if method.trains_encoder else method.embed(rows)
        method.export(partial)
        if vectors is None:
            vectors = self._encoded(partial, name, rows)
        remove_folder(folder)
        partial.rename(folder)
        return from_rows(rows, vectors), name

    def _encoded(self, folder: Path, name: str, rows: Rows) -> NDArray[np.float32]:
        sentences = tuple(self.corpus.sentences[i] for i in rows)
        key = fingerprint([self.corpus.sentences_fingerprint, rows.tolist()])
        spec = EncoderSpec(str(folder.resolve()))
        label = f"Encoding with {name}"
        encoded, _ = encode_corpus(sentences, key, spec, self.store, label=label, stored="float32")
        return encoded.take(np.arange(len(rows)))

    def _parameters(self, role: str, method: str, d: int, model: str) -> int:
        """Parameters of the whole encoder: for a baseline the teacher's and its D x d matrix."""
        if model:
            return count_parameters(self.run / model)
        folder = self.prepared.teacher.folder()
        teacher = (
            count_parameters(folder) if folder else sum(p.numel() for p in self.prepared.teacher.load().parameters())
        )
        return teacher + (0 if role == "teacher" else self.prepared.vectors.width * d)


def score_rows(
    run: Path,
    prepared: Prepared,
    corpus: Corpus,
    space: SearchSpace,
    best: dict[int, FrozenTrial],
    seed: int,
    store: ArtifactStore,
    console: Console,
) -> list[ScoreRecord]:
    """All rows of the leaderboard, scored now or found in the run's `scores.jsonl`; a progress line for each."""
    rows = []
    for record in Leaderboard(run, prepared, corpus, space, seed, store).rows(best):
        rows.append(record)
        tests = [s for s in record.scores if s.split == "test" and s.variant == "all" and s.task == "sts"]
        console.print("  ".join([f"{record.label:<24}", *(f"{s.set} {s.value:.2f}" for s in tests)]), markup=False)
    missing = [d for d in space.dimensions if d not in best]
    if missing:
        console.print(f"No trial of output dimension {', '.join(map(str, missing))} was completed")
    return rows


def evaluation_rows(corpus: Corpus) -> Rows:
    """The distinct rows that any STS or retrieval set uses, rising."""
    sts = [side for s in corpus.sts for side in (s.left_P, s.right_P)]
    return np.unique(np.concatenate([*sts, *(r for t in corpus.retrieval for r in (t.queries, t.documents))]))


def from_rows(rows: Rows, vectors: NDArray[np.float32]) -> Embed:
    """Embed by looking up `vectors` of the rising `rows`."""
    return lambda asked: vectors[np.searchsorted(rows, asked)]


def random_projection(width: int, d: int, seed: int) -> NDArray[np.float32]:
    """A random orthonormal basis, width x d."""
    gaussian = np.random.default_rng([seed, d]).standard_normal((width, d))
    return np.linalg.qr(gaussian)[0].astype(np.float32)


def count_parameters(folder: Path) -> int:
    """Parameters in the safetensors files of an encoder folder, read from their headers; 0 when it has none."""
    total = 0
    for path in folder.rglob("*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        shapes = [v["shape"] for k, v in header.items() if k != "__metadata__" and v["dtype"].startswith(("F", "BF"))]
        total += sum(int(np.prod(shape)) for shape in shapes)
    return total
