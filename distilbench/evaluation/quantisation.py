"""Quantised embeddings: int8 (a byte a dimension) and binary (a bit), calibrated once on training embeddings.

Every vector is scaled to norm 1 before it is calibrated on or encoded: similarity is the cosine, and otherwise long
vectors would be clipped and a bit would depend on the length.

Axes in names: N vectors or documents, d dimensions, B = ceil(d / 8) bytes, Q queries, C candidates, R ranks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import faiss
import numpy as np
from numpy.typing import DTypeLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save_file

from distilbench.errors import InputError
from distilbench.evaluation.retrieval import unit
from distilbench.storage.files import atomic_path, file_sha256, write_json

T = TypeVar("T")

FORMAT = 1
RESCORE = 2
"""Binary candidates for each result wanted, as in sentence-transformers. With 20,000 Quora documents 4 and 8 moved
MRR@10 by 0.001 and Recall@100 by 0.05 at most (five encoders of 128 to 768 dimensions)."""
BLOCK = 8_192
"""Documents that an int8 search decodes at a time: 50 MB of float64 at 768 dimensions, whatever the size of the index."""
QUERIES = 8
"""Queries whose candidates are rescored at a time: few enough for the processor's cache."""


@dataclass(frozen=True, eq=False)
class Int8:
    """256 even steps a dimension, from `low_d` to `high_d` (float32).

    The range is the minimum and maximum of the training embeddings, as in FAISS and sentence-transformers: quantiles of
    0.1 and 99.9 % doubled the error of the decoded vectors (five encoders of 128 to 768 dimensions).
    """

    low_d: NDArray[np.float32]
    high_d: NDArray[np.float32]
    kind: ClassVar[Literal["int8"]] = "int8"

    def __post_init__(self) -> None:
        _check_tensors({"low": self.low_d, "high": self.high_d})
        above = np.flatnonzero(self.low_d > self.high_d)
        if len(above):
            j = above[0]
            raise ValueError(f"dimension {j}: low is {self.low_d[j]}, expected at most high, {self.high_d[j]}")

    @classmethod
    def calibrate(cls, vectors_Nd: NDArray[Any]) -> Int8:
        """The ranges of training embeddings.

        Raises:
            ValueError: not a matrix of finite floats with at least 2 rows.
        """
        unit_Nd = _calibration(vectors_Nd)
        return cls(unit_Nd.min(axis=0), unit_Nd.max(axis=0))

    @property
    def width(self) -> int:
        """Dimensions d."""
        return len(self.low_d)

    @property
    def bytes_per_vector(self) -> int:
        """Bytes of a code: d."""
        return self.width

    @property
    def step_d(self) -> NDArray[np.float32]:
        """Between neighbouring codes; 0 in a dimension that was constant."""
        return (self.high_d - self.low_d) / np.float32(255)

    def encode(self, vectors_Nd: NDArray[Any]) -> NDArray[np.int8]:
        """Codes -128..127, N x d: the nearest step; what is outside the range is clipped to its end.

        Raises:
            ValueError: not a matrix of finite floats of this width.
        """
        steps_Nd, step_d = _unit(vectors_Nd, self.width) - self.low_d, self.step_d
        steps_Nd[:, step_d == 0] = 0
        with np.errstate(over="ignore"):  # infinitely many steps outside a tiny range are clipped like any other
            np.divide(steps_Nd, step_d, out=steps_Nd, where=step_d > 0)
        # sentence-transformers did not clip until its pull request 3847 (July 2026): a value above the range wrapped
        # around to a low code. 6.2 clips, but still rounds down: up to a whole step off, on average half a step low.
        np.clip(np.rint(steps_Nd, out=steps_Nd), 0, 255, out=steps_Nd)
        return (steps_Nd - 128).astype(np.int8)

    def decode(self, codes_Nd: NDArray[Any]) -> NDArray[np.float32]:
        """The vectors (norm about 1) that codes stand for, N x d: within the range at most half a step off.

        Raises:
            ValueError: not an int8 matrix of this width.
        """
        _check_codes(codes_Nd, np.int8, self.width)
        return self.low_d + (codes_Nd.astype(np.float32) + 128) * self.step_d

    def index(self, documents_Nd: NDArray[Any]) -> faiss.IndexScalarQuantizer:
        """A FAISS index of the codes: d bytes a document, and the ranges. It searches by squared distance.

        By inner product it would rank by the norms of the decoded vectors, which rounding moves off 1: at unit vectors of
        variance 1e-6 a dimension (64 of them, every cosine above 0.999) it found 2 of the first 10 by the decoded vectors'
        cosine. In the squared distance of a unit query the norm's error counts only squared, or times 1 - cosine.
        """
        # Not QT_8bit_direct_signed, which holds the same codes: at widths divisible by 16 (AVX2; 32 with AVX-512) FAISS
        # 1.15 truncates the *query* to integers (pull request 5409), and of a unit vector nothing is left.
        index = faiss.IndexScalarQuantizer(self.width, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_L2)
        # FAISS decodes to the middle of a step: low + (code + 0.5) * step.
        ranges = np.concatenate([self.low_d - self.step_d / 2, self.high_d - self.low_d])
        faiss.copy_array_to_vector(ranges, index.sq.trained)
        index.is_trained = True
        index.add_sa_codes((self.encode(documents_Nd).astype(np.int16) + 128).astype(np.uint8))
        return index

    def search(self, index: faiss.IndexScalarQuantizer, queries_Qd: NDArray[Any], depth: int) -> NDArray[np.int64]:
        """The `depth` documents (at most all) of largest cosine of the decoded vector with each float query, best first.

        Decoded vectors are brought to norm 1 in float64, and the mean of the first block is taken from all of them: that
        moves every inner product of a query alike, and leaves float32 the digits that tell crowded vectors apart. Decoding
        a block for all queries leaves the rest to BLAS, where `index.search` decodes anew for each query.
        """
        unit_Qd = _unit(queries_Qd, self.width)
        best = faiss.ResultHeap(len(unit_Qd), depth, keep_max=True)
        origin_d: NDArray[np.float64] | None = None
        for start in range(0, index.ntotal, BLOCK):
            block_Nd = index.reconstruct_n(start, min(BLOCK, index.ntotal - start)).astype(np.float64)
            norm_N1 = np.linalg.norm(block_Nd, axis=1, keepdims=True)
            np.divide(block_Nd, norm_N1, out=block_Nd, where=norm_N1 > 0)
            if origin_d is None:
                origin_d = block_Nd.mean(axis=0)
            moved_Nd = (block_Nd - origin_d).astype(np.float32)
            similarity, found = faiss.knn(unit_Qd, moved_Nd, min(depth, len(moved_Nd)), faiss.METRIC_INNER_PRODUCT)
            best.add_result(similarity, found + start)
        best.finalize()
        return best.I

    def save(self, folder: Path) -> None:
        """Write `quantisation-int8.safetensors` and `quantisation-int8.json`."""
        _save(folder, self.kind, {"low": self.low_d, "high": self.high_d})

    @classmethod
    def load(cls, folder: Path, width: int | None = None) -> Int8:
        """Read what `save` wrote. `width` is the encoder's; None takes any.

        Raises:
            InputError: a file is missing, damaged, or of another kind or width; it names file, value and expectation.
        """
        return _load(folder, cls.kind, width, ("low", "high"), cls)


@dataclass(frozen=True, eq=False)
class Binary:
    """A bit a dimension: whether the value is above `threshold_d` (float32), the mean of the training embeddings.

    Where a dimension is not centred on 0, the plain sign gives all vectors the same bit. The median did no better than
    the mean (five encoders of 128 to 768 dimensions) and takes a sort.
    """

    threshold_d: NDArray[np.float32]
    kind: ClassVar[Literal["binary"]] = "binary"

    def __post_init__(self) -> None:
        _check_tensors({"threshold": self.threshold_d})

    @classmethod
    def calibrate(cls, vectors_Nd: NDArray[Any]) -> Binary:
        """The mean of training embeddings.

        Raises:
            ValueError: not a matrix of finite floats with at least 2 rows.
        """
        return cls(_calibration(vectors_Nd).mean(axis=0, dtype=np.float64).astype(np.float32))

    @property
    def width(self) -> int:
        """Dimensions d."""
        return len(self.threshold_d)

    @property
    def bytes_per_vector(self) -> int:
        """Bytes of a code: ceil(d / 8)."""
        return -(-self.width // 8)

    def encode(self, vectors_Nd: NDArray[Any]) -> NDArray[np.uint8]:
        """Packed bits, N x ceil(d / 8), the first dimension highest; bits that fill the last byte are 0.

        Raises:
            ValueError: not a matrix of finite floats of this width.
        """
        return np.packbits(_unit(vectors_Nd, self.width) > self.threshold_d, axis=1)

    def decode(self, codes_NB: NDArray[Any]) -> NDArray[np.float32]:
        """The codes as +1 and -1, N x d; the cosine of two is 1 - 2 hamming / d.

        Raises:
            ValueError: not a uint8 matrix of ceil(d / 8) columns.
        """
        _check_codes(codes_NB, np.uint8, self.bytes_per_vector)
        return np.unpackbits(codes_NB, axis=1, count=self.width) * np.float32(2) - 1

    def index(self, documents_Nd: NDArray[Any]) -> faiss.IndexBinaryFlat:
        """A FAISS index of the codes: ceil(d / 8) bytes a document."""
        index: Any = faiss.IndexBinaryFlat(8 * self.bytes_per_vector)  # FAISS's type stubs lack some attributes
        index.use_heap = self.width > 256  # below, FAISS's other way, counting, takes half the time for 200 candidates
        index.add(self.encode(documents_Nd))
        return index

    def search(
        self, index: faiss.IndexBinaryFlat, queries_Qd: NDArray[Any], depth: int, rescore: int = RESCORE
    ) -> NDArray[np.int64]:
        """The `depth` documents (at most all) for each query, best first: of the `rescore` x `depth` nearest by Hamming
        distance, those of largest inner product of the float query with the document's +1 and -1.

        The float query is centred on the threshold, as the codes are: up to 0.3 more MRR@10 on Quora. Candidates that
        tie keep their order by Hamming distance. Rescoring takes one thread.

        Raises:
            ValueError: vectors of another width or not finite, or `rescore` below 1.
        """
        if rescore < 1:
            raise ValueError(f"rescore is {rescore}, expected at least 1")
        codes_QB, centred_Qd = self.encode(queries_Qd), _unit(queries_Qd, self.width) - self.threshold_d
        held: Any = index  # the stubs lack `xb`
        codes_NB = faiss.rev_swig_ptr(held.xb.data(), held.xb.size()).reshape(index.ntotal, -1)
        _, nearest_QC = index.search(codes_QB, min(rescore * depth, index.ntotal))
        best_QR = np.empty((len(nearest_QC), depth), dtype=np.int64)
        for start in range(0, len(nearest_QC), QUERIES):
            here = slice(start, start + QUERIES)
            # By bits, since bits . query = (signs . query + a constant of the query) / 2. Not a matrix product: BLAS
            # would start threads of its own.
            bits_QCd = np.unpackbits(codes_NB[nearest_QC[here]], axis=2, count=self.width).astype(np.float32)
            similarity_QC = np.einsum("qcd,qd->qc", bits_QCd, centred_Qd[here])
            order = np.argsort(-similarity_QC, axis=1, kind="stable")[:, :depth]
            best_QR[here] = np.take_along_axis(nearest_QC[here], order, axis=1)
        return best_QR

    def save(self, folder: Path) -> None:
        """Write `quantisation-binary.safetensors` and `quantisation-binary.json`."""
        _save(folder, self.kind, {"threshold": self.threshold_d})

    @classmethod
    def load(cls, folder: Path, width: int | None = None) -> Binary:
        """Read what `save` wrote. `width` is the encoder's; None takes any.

        Raises:
            InputError: a file is missing, damaged, or of another kind or width; it names file, value and expectation.
        """
        return _load(folder, cls.kind, width, ("threshold",), cls)


Quantiser = Int8 | Binary
QUANTISERS: dict[str, type[Int8] | type[Binary]] = {"int8": Int8, "binary": Binary}


def saved_quantiser(folder: Path | None, kind: str, width: int) -> Path | None:
    """The folder with the quantiser that was saved with a student for the first `width` of its dimensions.

    Where a student was scored at several widths, each has a folder of its own, such as d64.

    Raises:
        InputError: its card is not JSON.
    """
    for place in (folder, folder / f"d{width}") if folder is not None else ():
        card = _card(place, kind)
        if card.is_file() and _described(card).get("width") == width:
            return place
    return None


def _unit(vectors_Nd: NDArray[Any], width: int | None = None) -> NDArray[np.float32]:
    """Checked rows of norm 1 (zero rows stay zero)."""
    shape, dtype = np.shape(vectors_Nd), np.asarray(vectors_Nd).dtype
    if len(shape) != 2 or not np.issubdtype(dtype, np.floating):
        raise ValueError(f"vectors of shape {shape} and type {dtype}, expected floats in rows and columns")
    if shape[1] != width and width is not None:
        raise ValueError(f"vectors of {shape[1]} dimensions, expected {width}, as in calibration")
    float_Nd = np.asarray(vectors_Nd, dtype=np.float32)
    bad = np.argwhere(~np.isfinite(float_Nd))
    if len(bad):
        i, j = bad[0]
        raise ValueError(f"vector {i}, dimension {j} is {vectors_Nd[i][j]}, expected a finite float32")
    return unit(float_Nd)


def _calibration(vectors_Nd: NDArray[Any]) -> NDArray[np.float32]:
    unit_Nd = _unit(vectors_Nd)
    if len(unit_Nd) < 2 or not unit_Nd.shape[1]:
        raise ValueError(f"calibration vectors of shape {unit_Nd.shape}, expected at least 2 rows and 1 column")
    return unit_Nd


def _check_codes(codes: NDArray[Any], dtype: DTypeLike, columns: int) -> None:
    if codes.dtype != dtype or codes.ndim != 2 or codes.shape[1] != columns:
        found = f"codes of shape {codes.shape} and type {codes.dtype}"
        raise ValueError(f"{found}, expected {columns} columns of {np.dtype(dtype)}")


def _check_tensors(tensors: dict[str, NDArray[Any]]) -> None:
    """One float32 vector shape for all, finite."""
    first = next(iter(tensors.values()))
    for name, values_d in tensors.items():
        if values_d.dtype != np.float32 or values_d.ndim != 1 or values_d.shape != first.shape or not len(values_d):
            found = f"{name} has shape {values_d.shape} and type {values_d.dtype}"
            raise ValueError(f"{found}, expected float32 and a number for each dimension")
        bad = np.flatnonzero(~np.isfinite(values_d))
        if len(bad):
            raise ValueError(f"dimension {bad[0]}: {name} is {values_d[bad[0]]}, expected a finite number")


def _save(folder: Path, kind: str, tensors: dict[str, NDArray[np.float32]]) -> None:
    path = folder / f"quantisation-{kind}.safetensors"
    with atomic_path(path) as temporary:
        save_file({name: np.ascontiguousarray(values) for name, values in tensors.items()}, temporary)
    width = len(next(iter(tensors.values())))
    write_json(path.with_suffix(".json"), {"format": FORMAT, "kind": kind, "width": width, "sha256": file_sha256(path)})


def _card(folder: Path, kind: str) -> Path:
    return folder / f"quantisation-{kind}.json"


def _described(card: Path) -> dict[str, Any]:
    """What the card of a saved quantiser says."""
    try:
        described = json.loads(card.read_text())
    except ValueError as error:
        raise InputError(f"{card}: not JSON ({error}), expected what save() writes") from None
    if not isinstance(described, dict):
        raise InputError(f"{card}: {described!r:.80}, expected a JSON object")
    return described


def _load(folder: Path, kind: str, width: int | None, names: tuple[str, ...], make: Callable[..., T]) -> T:
    card = _card(folder, kind)
    path = card.with_suffix(".safetensors")
    for file in (card, path):
        if not file.is_file():
            raise InputError(f"{file}: no such file; expected a quantiser saved as {card.name} and {path.name}")
    described = _described(card)
    wanted: list[tuple[str, object, str]] = [("format", FORMAT, ""), ("kind", kind, "")]
    wanted += [("width", width, ", the width of the encoder")] if width is not None else []
    wanted += [("sha256", file_sha256(path), f", that of {path.name}: one of the two files is damaged")]
    for key, value, why in wanted:
        if described.get(key) != value:
            raise InputError(f"{card}: {key} is {described.get(key)!r}, expected {value!r}{why}")
    try:
        tensors = load(path.read_bytes())
        if sorted(tensors) != sorted(names):
            raise ValueError(f"tensors {sorted(tensors)}, expected {sorted(names)}")
        quantiser = make(*(tensors[name] for name in names))
    except (SafetensorError, ValueError) as error:
        raise InputError(f"{path}: {error}") from None
    if len(tensors[names[0]]) != described.get("width"):
        raise InputError(
            f"{path}: {len(tensors[names[0]])} dimensions, expected {described.get('width')!r}, as in {card.name}"
        )
    return quantiser
