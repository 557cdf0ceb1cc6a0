"""One encoder's rows of the leaderboard: at each of its widths, as it is and quantised, on every set of a corpus."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from distilbench.choices import SWEPT_TASKS, TaskKind
from distilbench.cluster.provenance import provenance
from distilbench.cluster.run_copy import active_copy
from distilbench.codes import FAISS_PEER, code_of, family_of
from distilbench.data.corpus import Corpus, Rows
from distilbench.data.sampling import CALIBRATION, CODEBOOK_ROWS, calibration_rows
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.prompts import Prompts
from distilbench.encoders.shared_space import SharedSpace
from distilbench.encoders.student import describe_student, with_encoder
from distilbench.errors import InputError
from distilbench.evaluation.encoders import Vectors, check_vectors, encoder_rows
from distilbench.evaluation.faiss_codes import Code, fitted_code, not_possible, saved_code
from distilbench.evaluation.indexes import IndexSpec
from distilbench.evaluation.predictions import Predictions
from distilbench.evaluation.sts import from_rows
from distilbench.methods import get_method
from distilbench.methods.method import Method
from distilbench.prepare.prepared import Prepared
from distilbench.records import FROZEN, ON_VECTORS, EncoderCost, Quantisation, Role, Score, ScoreRecord
from distilbench.storage.arrays import save_array
from distilbench.storage.files import fingerprint, remove_folder, write_json
from distilbench.storage.remote import files_in
from distilbench.storage.store import ArtifactStore

BASELINES = ("pca", "random_projection")
TEACHER = "teacher"
CROSS_ENCODER = "cross-encoder"
INDEXES = (IndexSpec("flat"), IndexSpec("ivf"))
"""The indexes of a run's rows, beside those of their codes."""
PARAMETERS = {"F64": 1, "F32": 1, "F16": 1, "BF16": 1, "I8": 1, "U8": 2}
"""Parameters in a number of a safetensors file, by its type; those of other types are positions and ids."""
ENCODED, SPACE = "encoded.json", "space"
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
    documents: str = ""
    """As in its records (`ScoreRecord.documents`)."""

    def identity(
        self,
        prepared: Prepared,
        corpus: Corpus,
        width: int,
        quantisation: Quantisation,
        tasks: Sequence[TaskKind] = SWEPT_TASKS,
    ) -> dict[str, Any]:
        """What names a row and, with the artifact of the teacher's vectors, the tasks and the selection, makes its id."""
        teacher = prepared.teacher
        start = FROZEN if teacher.vectors is None else ON_VECTORS
        label = ""
        if self.method == TEACHER:
            title = teacher.title
        elif self.method == FAISS_PEER:
            title = label = f"FAISS {quantisation}"
        elif self.method == CROSS_ENCODER:
            title, label, start = "Cross-encoder", "Cross-encoder", "both sentences at once, no embedding"
        else:
            method = get_method(self.method)
            named = self.params.get("student")
            student = with_encoder(named, lambda name: EncoderSpec(name).title) if named else ""
            variant = ", ".join(filter(None, [student, method.variant(self.params)]))
            title = method.title + (f" ({variant})" if variant else "")
            if method.trains_encoder:
                start = describe_student(prepared.of(self.params).student, teacher)
        identity = {
            "run": self.run,
            "label": label or f"{title} d={width}" + (", teacher's documents" if self.documents else ""),
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
            **({"documents": self.documents} if self.documents else {}),
        }
        decided_by = [identity, prepared.vectors.folder.name, sorted(tasks), str(corpus.selection)]
        return {**identity, "record_id": fingerprint(decided_by), "source": teacher.name}


@dataclass(frozen=True)
class Encoded:
    """An encoder's vectors: of the evaluation rows of a corpus, and of training rows to calibrate quantisers on."""

    vectors_ND: NDArray[np.float32]
    calibration_ND: NDArray[np.float32]
    model: str = ""
    """Folder of the saved student, relative to the run; "" where none is saved."""
    task_scores: Sequence[Score] = ()
    space: SharedSpace | None = None
    """What a student shares with its teacher; None where that is nothing."""

    def save(self, folder: Path) -> None:
        """Write it whole: `encoded.json` comes last, and that of earlier vectors goes first."""
        (folder / ENCODED).unlink(missing_ok=True)
        remove_folder(folder / SPACE)
        if self.space is not None:
            self.space.save(folder / SPACE)
        save_array(folder / "vectors.npy", self.vectors_ND)
        save_array(folder / "calibration.npy", self.calibration_ND)
        scores = [score.model_dump() for score in self.task_scores]
        write_json(folder / ENCODED, {"model": self.model, "task_scores": scores})

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
            SharedSpace.load(folder / SPACE),
        )


def remove_encoded(folder: Path) -> None:
    """Delete what `Encoded.save` wrote, once it is scored; in the storage too."""
    names = [ENCODED, "vectors.npy", "calibration.npy", *(f"{SPACE}/{name}" for name in files_in(folder / SPACE))]
    for name in names:
        (folder / name).unlink(missing_ok=True)
    remove_folder(folder / SPACE)
    if copy := active_copy():
        copy.remote_of(folder).delete(*names)


def encode_method(method: Method, corpus: Corpus, model: str = "") -> Encoded:
    """Vectors of a trained method, each row embedded once; its task's scores."""
    rows = corpus.scored_rows
    vectors_ND = method.embed(rows)
    scores = [score for split in SPLITS for score in method.task_scores(split)]
    count = calibrated_on(method.params.model_dump())
    calibration_ND = method.embed(calibration_rows(method.prepared.train, count))
    apart = method.apart(lambda name: [getattr(method.params, name, None)])
    return Encoded(vectors_ND, calibration_ND, model, scores, None if apart else method.shared_space())


def calibrated_on(params: Mapping[str, Any], method: str = "") -> int:
    """How many training sentences the codes of a row with these hyper-parameters are calibrated on at most."""
    return CODEBOOK_ROWS if method == FAISS_PEER or family_of(code_of(params)) else CALIBRATION


def encode_teacher(prepared: Prepared, corpus: Corpus, calibrated: int | None = None) -> Encoded:
    """The teacher's own vectors; `calibrated`: how many training sentences its codes are calibrated on."""
    take = prepared.vectors.take
    return Encoded(take(corpus.scored_rows), take(calibration_rows(prepared.train, calibrated)))


@dataclass(frozen=True)
class Scoring:
    """What every candidate of a run is scored on."""

    run: Path
    prepared: Prepared
    corpus: Corpus
    tasks: Sequence[TaskKind] = SWEPT_TASKS


def score_candidate(
    candidate: Candidate,
    encoded: Encoded,
    scoring: Scoring,
    widths: Sequence[int],
    kinds: Sequence[Quantisation],
    cost: EncoderCost | None = None,
) -> Iterator[tuple[ScoreRecord, Predictions]]:
    """Make a record for each width, in float32 and each code of `kinds`, one by one, with what its test scores are of.

    `encoded` has the evaluation rows of `corpus.of_tasks(tasks)`. `cost` is what the encoder costs; None: not measured.
    """
    prepared, corpus = scoring.prepared, scoring.corpus
    scored, whole = corpus.of_tasks(scoring.tasks), encoded.vectors_ND.shape[1]
    take = from_rows(scored.scored_rows, encoded.vectors_ND)
    name = candidate.configuration or candidate.identity(prepared, corpus, whole, "float32")["label"]
    vectors = Vectors(name, whole, take, coded_only=candidate.method == FAISS_PEER)  # float32 ones are the teacher's
    model = scoring.run / encoded.model if encoded.model else None
    coded_in, calibration_ND = model, encoded.calibration_ND
    of_splits = zip(SPLITS, (prepared.judged, prepared.tested), strict=True)
    judged = {split: sets for split, sets in of_splits if sets}
    if candidate.documents:
        coded_in = space_folder(scoring.run, encoded.model)
        vectors, calibration_ND = _across(vectors, encoded, prepared, coded_in)
        scored = scored.of_tasks(("retrieval",))
        judged = {split: sets for split, sets in judged.items() if "sts" not in sets.sets}
    if set(kinds) - {"float32"}:
        rows = calibration_rows(prepared.train, len(calibration_ND))
        check_vectors(calibration_ND, name, corpus, rows)
    of_candidate = {
        "parameters": parameters_of(prepared, candidate.method, candidate.dim, model),
        "sets": corpus.set_digests,
        "prompts": prompts_of(prepared.of(candidate.params), candidate),
        "select": str(corpus.selection),
        "cost": cost,
        "latency_ms": cost and cost.latency_ms,
        "model": encoded.model,
        "provenance": provenance(),
    }

    def codes_of(width: int) -> list[Code]:
        folder = coded_in / f"d{width}" if coded_in and len(widths) > 1 else coded_in
        store = prepared.store
        return [_code(candidate, calibration_ND, kind, width, folder, store) for kind in kinds_for(kinds, width)]

    for row in encoder_rows(vectors, scored, widths, codes_of, INDEXES, judged):
        whole_row = (row.width, row.quantisation) == (whole, "float32") and not candidate.documents
        record = ScoreRecord(
            **candidate.identity(prepared, corpus, row.width, row.quantisation, scoring.tasks),
            **of_candidate,
            bytes_per_vector=row.bytes_per_vector,
            disk_bytes=row.disk_bytes,
            fit_s=row.fit_s,
            scores=[*row.scores, *(encoded.task_scores if whole_row else ())],
            indexes=row.indexes,
            notes=row.notes,
        )
        yield record, row.predictions


def _code(
    candidate: Candidate,
    calibration_ND: NDArray[np.float32],
    kind: Quantisation,
    width: int,
    folder: Path | None,
    store: ArtifactStore,
) -> Code:
    """The code that was trained with the model, or one calibrated on vectors of training sentences and saved in `folder`.

    Those of the teacher's vectors are artifacts of the `store`: rows of many runs share them.
    """
    trained = bool(candidate.params.get("codebooks")) and kind == code_of(candidate.params)
    if trained and (place := saved_code(folder, kind, width)):
        return Code.load(kind, place, width)
    vectors_Nd = np.ascontiguousarray(calibration_ND[:, :width])
    of_teacher = candidate.documents or candidate.method == FAISS_PEER
    code = fitted_code(kind, vectors_Nd, store) if of_teacher else Code.calibrate(kind, vectors_Nd)
    if folder is not None:
        code.save(folder)
    return code


def space_folder(run: Path, model: str) -> Path:
    """Where a student's `SharedSpace` is kept, with the codes of the teacher's documents in it."""
    return run / "spaces" / Path(model).name


def across(candidate: Candidate, scoring: Scoring) -> tuple[Candidate, list[int]] | None:
    """The candidate with the teacher's documents, and the widths of the space that they share, largest first.

    None where there is no such space, or nothing to search.
    """
    retrieval = "retrieval" in scoring.tasks and scoring.corpus.retrieval
    if not retrieval or candidate.role != "student":
        return None
    method = get_method(candidate.method)
    params = method.params_type.model_validate(candidate.params).model_dump()
    if method.apart(lambda name: [params[name]]):
        return None
    width, head = method.space_of(params, scoring.prepared.vectors.width)
    by = ", ".join(filter(None, (scoring.prepared.teacher.title, head)))
    return replace(candidate, documents=by), [width, *method.widths_of(params)[1:]]


def _across(
    vectors: Vectors, encoded: Encoded, prepared: Prepared, folder: Path
) -> tuple[Vectors, NDArray[np.float32]]:
    """The student's queries and the teacher's documents in the space that they share, which `folder` keeps from now on; and
    the teacher's vectors of training sentences there, on which the documents' codes are calibrated."""
    space = encoded.space
    if space is None:
        raise InputError(
            f"{encoded.model}: what it shares with its teacher was not kept; the next call embeds it again"
        )
    space.save(folder)

    def documents(rows: Rows) -> NDArray[np.float32]:
        return space.documents(prepared.vectors.take(rows))

    name = f"{vectors.encoder}, documents by its teacher"
    both = Vectors(name, space.width, lambda rows: space.queries(vectors.take(rows)), documents)
    return both, documents(calibration_rows(prepared.train, len(encoded.calibration_ND)))


def prompts_of(prepared: Prepared, candidate: Candidate) -> dict[str, str]:
    """The prompts of a candidate's encoder, or of the teacher's, as records have them; {} where all text is read alike."""
    method = candidate.method
    if method in (CROSS_ENCODER, TEACHER, FAISS_PEER) or not get_method(method).trains_encoder:
        teacher = prepared.teacher
        return Prompts.of(teacher).described() if teacher.by_role and method != CROSS_ENCODER else {}
    own = prepared.student_prompts.described() if prepared.student_prompts else {}
    if not candidate.documents:
        return own
    document = Prompts.of(prepared.teacher).document
    return {"query": own.get("query", ""), "document": document} if own or document else {}


def kinds_for(quantisations: Sequence[Quantisation], width: int) -> list[Quantisation]:
    """The codes among these, each once, that vectors of this width have."""
    return [k for k in dict.fromkeys(quantisations) if k != "float32" and not not_possible(k, width)]


def parameters_of(prepared: Prepared, method: str, dim: int, model: Path | None) -> int:
    """Parameters of the whole encoder: of a saved model's files; else the teacher's, and D x d of the baseline's matrix."""
    if model is not None:
        return count_parameters(model)
    matrix = 0 if method in (TEACHER, FAISS_PEER) else prepared.vectors.width * dim
    return encoder_parameters(prepared.teacher) + matrix


def encoder_parameters(spec: EncoderSpec) -> int:
    """Parameters of an encoder: of its folder's files, or, where it has none, as it is loaded; 0 of given vectors."""
    if spec.vectors is not None:
        return 0
    folder = spec.folder()
    if folder is None:
        return sum(p.numel() for p in spec.load().parameters())
    pickled = any(not any(p.parent.glob("model*.safetensors")) for p in folder.rglob("pytorch_model*.bin"))
    return sum(p.numel() for p in spec.skeleton().parameters()) if pickled else count_parameters(folder)


def count_parameters(folder: Path) -> int:
    """Parameters in the model files of an encoder folder, read from the safetensors headers; 0 when it has none.

    Those of a static table in int8 or int4 are its codes, two in a byte of int4, and the scale of each row.
    """
    total = 0
    for path in folder.rglob("model*.safetensors"):
        with safe_open(path, framework="np") as file:
            tensors = [file.get_slice(name) for name in file.keys()]
            total += sum(PARAMETERS.get(t.get_dtype(), 0) * math.prod(t.get_shape()) for t in tensors)
    return total
