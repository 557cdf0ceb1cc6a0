"""One encoder's rows of the leaderboard: at each of its widths, as it is and quantised, on every set of a corpus."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from distilbench.cluster.provenance import provenance
from distilbench.data.corpus import Corpus, Rows
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.student import describe_student
from distilbench.evaluation.clusters import cluster_costs
from distilbench.evaluation.predictions import Predictions
from distilbench.evaluation.quantisation import QUANTISERS, evaluate_quantised
from distilbench.evaluation.sts import from_rows
from distilbench.evaluation.suite import evaluate
from distilbench.methods import get_method
from distilbench.methods.method import Method
from distilbench.prepare.pca import sample
from distilbench.prepare.prepared import Prepared
from distilbench.records import FROZEN, ClusterCost, Quantisation, Role, Score, ScoreRecord
from distilbench.storage.arrays import save_array
from distilbench.storage.files import fingerprint, write_json

FLOAT32 = 4
TEACHER = "teacher"
CROSS_ENCODER = "cross-encoder"
CALIBRATION = 5_000
"""Training embeddings that a quantiser is calibrated on at most: 1,000 instead of 20,000 moved STS-B by 0.02 at most."""

ENCODED = "encoded.json"
SPLITS: tuple[Literal["dev", "test"], ...] = ("dev", "test")


@dataclass(frozen=True)
class Candidate:
    """What is scored: the teacher (`method` "teacher"), or a method with its hyper-parameters."""

    run: str
    role: Role
    method: str
    dim: int
    params: dict[str, Any]
    seed: int
    trial: int | None = None
    configuration: str = ""

    def identity(self, prepared: Prepared, corpus: Corpus, width: int, quantisation: Quantisation) -> dict[str, Any]:
        """What names a row and, with the artifact of the teacher's vectors, makes its record's id."""
        teacher = prepared.teacher
        start = FROZEN
        label = ""
        if self.method == TEACHER:
            title = teacher.title
        elif self.method == CROSS_ENCODER:
            title, label, start = "Cross-encoder", "Cross-encoder", "both sentences at once, no embedding"
        else:
            method = get_method(self.method)
            variant = method.variant(self.params)
            title = method.title + (f" ({variant})" if variant else "")
            if method.trains_encoder:
                start = describe_student(prepared.student, teacher)
        identity = {
            "run": self.run,
            "label": label or f"{title} d={width}",
            "role": self.role,
            "method": self.method,
            "dim": width,
            "teacher": teacher.title,
            "start": start,
            "trial": self.trial,
            "hyperparameters": self.params,
            "seed": self.seed,
            "corpus": corpus.name,
            "corpus_fingerprint": corpus.fingerprint,
            "demonstration": corpus.demonstration,
            "quantisation": quantisation,
            "configuration": self.configuration,
        }
        return {**identity, "record_id": fingerprint([identity, prepared.vectors.folder.name])}


@dataclass(frozen=True)
class Encoded:
    """An encoder's vectors: of the evaluation rows of a corpus, and of training rows to calibrate quantisers on."""

    vectors_ND: NDArray[np.float32]
    calibration_ND: NDArray[np.float32]
    model: str = ""
    """Folder of the saved student, relative to the run; "" where none is saved."""
    task_scores: Sequence[Score] = ()
    clusters: Sequence[ClusterCost] = ()

    def save(self, folder: Path) -> None:
        """Write it whole: `encoded.json` comes last."""
        save_array(folder / "vectors.npy", self.vectors_ND)
        save_array(folder / "calibration.npy", self.calibration_ND)
        lists = {name: [s.model_dump() for s in getattr(self, name)] for name in ("task_scores", "clusters")}
        write_json(folder / ENCODED, {"model": self.model, **lists})

    @staticmethod
    def load(folder: Path) -> Encoded | None:
        """What `save` wrote, memory-mapped; None when it is not all there."""
        if not (folder / ENCODED).exists():
            return None
        kept = json.loads((folder / ENCODED).read_text())
        return Encoded(
            np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False),
            np.load(folder / "calibration.npy", mmap_mode="r", allow_pickle=False),
            kept["model"],
            [Score.model_validate(s) for s in kept["task_scores"]],
            [ClusterCost.model_validate(c) for c in kept["clusters"]],
        )


def remove_encoded(folder: Path) -> None:
    """Delete what `Encoded.save` wrote, once it is scored."""
    for name in (ENCODED, "vectors.npy", "calibration.npy"):
        (folder / name).unlink(missing_ok=True)


def encode_method(method: Method, corpus: Corpus, model: str = "") -> Encoded:
    """Vectors of a trained method, each row embedded once; its task's scores, and its clusters beside k-means."""
    rows = evaluation_rows(corpus)
    vectors_ND = method.embed(rows)
    scores = [score for split in SPLITS for score in method.task_scores(split)]
    clusters: list[ClusterCost] = []
    if (assign := method.assign()) is not None:
        for task in (t for t in corpus.retrieval if len(t.documents) >= method.params.clusters):
            clusters += cluster_costs(from_rows(rows, vectors_ND), task, method.params.clusters, assign)
    return Encoded(vectors_ND, method.embed(calibration_rows(method.prepared)), model, scores, clusters)


def encode_teacher(prepared: Prepared, corpus: Corpus) -> Encoded:
    """The teacher's own vectors."""
    take = prepared.vectors.take
    return Encoded(take(evaluation_rows(corpus)), take(calibration_rows(prepared)))


def calibration_rows(prepared: Prepared) -> Rows:
    """Training rows that quantisers are calibrated on, a fixed sample."""
    train = sample(prepared.train)
    return train[np.linspace(0, len(train) - 1, min(CALIBRATION, len(train))).astype(np.int64)]


def evaluation_rows(corpus: Corpus) -> Rows:
    """The distinct rows that any STS or retrieval set uses, rising."""
    sts = [side for s in corpus.sts for side in (s.left_P, s.right_P)]
    return np.unique(np.concatenate([*sts, *(r for t in corpus.retrieval for r in (t.queries, t.documents))]))


def score_candidate(
    candidate: Candidate,
    prepared: Prepared,
    corpus: Corpus,
    encoded: Encoded,
    widths: Sequence[int],
    quantisations: Sequence[Quantisation],
    parameters: int,
    run: Path,
) -> list[tuple[ScoreRecord, Predictions]]:
    """A record for each width and quantisation, with what its test scores are of.

    Quantisers are saved with the model (`quantisation-...` in its folder).
    """
    records, rows = [], evaluation_rows(corpus)
    for width in widths:
        embed = from_rows(rows, np.ascontiguousarray(encoded.vectors_ND[:, :width]))
        for quantisation in dict.fromkeys(("float32", *quantisations)):
            if quantisation == "float32":
                found = evaluate(embed, corpus)
                size = FLOAT32 * width
            else:
                quantiser = QUANTISERS[quantisation].calibrate(encoded.calibration_ND[:, :width])
                if encoded.model:
                    quantiser.save(run / encoded.model / f"d{width}" if len(widths) > 1 else run / encoded.model)
                found = evaluate_quantised(embed, corpus, quantiser)
                size = quantiser.bytes_per_vector
            whole = quantisation == "float32" and width == candidate.dim
            record = ScoreRecord(
                **candidate.identity(prepared, corpus, width, quantisation),
                bytes_per_vector=size,
                parameters=parameters,
                scores=[*found.scores, *(encoded.task_scores if whole else ())],
                indexes=found.indexes,
                clusters=list(encoded.clusters) if whole else [],
                sets=corpus.sts_digests,
                model=encoded.model,
                provenance=provenance(),
            )
            records.append((record, found.predictions))
    return records


def parameters_of(prepared: Prepared, method: str, dim: int, model: Path | None) -> int:
    """Parameters of the whole encoder: of a saved model's files; else the teacher's, and D x d of the baseline's matrix."""
    if model is not None:
        return count_parameters(model)
    return encoder_parameters(prepared.teacher) + (0 if method == TEACHER else prepared.vectors.width * dim)


def encoder_parameters(spec: EncoderSpec) -> int:
    """Parameters of an encoder: of its folder's files, or, where it has none, as it is loaded."""
    folder = spec.folder()
    return count_parameters(folder) if folder else sum(p.numel() for p in spec.load().parameters())


def count_parameters(folder: Path) -> int:
    """Parameters in the model files of an encoder folder, read from the safetensors headers; 0 when it has none."""
    total = 0
    for path in folder.rglob("model*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        shapes = [v["shape"] for k, v in header.items() if k != "__metadata__" and v["dtype"].startswith(("F", "BF"))]
        total += sum(int(np.prod(shape)) for shape in shapes)
    return total
