"""Even steps: each dimension of a vector is the nearest of 256 (int8) or 16 (int4) levels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import faiss
import numpy as np
from numpy.typing import NDArray

from distilbench.evaluation.codes.checks import calibration_rows, check_codes, check_tensors, unit_rows
from distilbench.evaluation.codes.code import Code, search_decoded
from distilbench.evaluation.codes.files import load_tensors, save_tensors

SPREADS = np.arange(1.5, 4.01, 0.25)
"""Half ranges of int4, in standard deviations, of which the best is taken: 2.68 for a normal distribution (Max 1960)."""


@dataclass(frozen=True, eq=False)
class Steps(Code):
    """Even steps in every dimension, from `low_d` to `high_d` (float32)."""

    low_d: NDArray[np.float32]
    high_d: NDArray[np.float32]
    levels: ClassVar[int]
    faiss_type: ClassVar[int]

    def __post_init__(self) -> None:
        check_tensors({"low": self.low_d, "high": self.high_d})
        above = np.flatnonzero(self.low_d > self.high_d)
        if len(above):
            j = above[0]
            raise ValueError(f"dimension {j}: low is {self.low_d[j]}, expected at most high, {self.high_d[j]}")

    @property
    def width(self) -> int:
        """Dimensions d."""
        return len(self.low_d)

    @property
    def step_d(self) -> NDArray[np.float32]:
        """Between neighbouring levels; 0 in a dimension that was constant."""
        return (self.high_d - self.low_d) / np.float32(self.levels - 1)

    def levels_of(self, vectors_Nd: NDArray[Any]) -> NDArray[np.float32]:
        """The nearest level of every number, from 0; what is outside the range is clipped to its end."""
        steps_Nd, step_d = unit_rows(vectors_Nd, self.width) - self.low_d, self.step_d
        steps_Nd[:, step_d == 0] = 0
        with np.errstate(over="ignore"):  # infinitely many steps outside a tiny range are clipped like any other
            np.divide(steps_Nd, step_d, out=steps_Nd, where=step_d > 0)
        # sentence-transformers did not clip until its pull request 3847 (July 2026): a value above the range wrapped
        # around to a low code. 6.2 clips, but still rounds down: up to a whole step off, on average half a step low.
        return np.clip(np.rint(steps_Nd, out=steps_Nd), 0, self.levels - 1, out=steps_Nd)

    def index(self, documents_Nd: NDArray[Any]) -> faiss.IndexScalarQuantizer:
        """A FAISS index of the codes, and the ranges. It searches by squared distance.

        By inner product it would rank by the norms of the decoded vectors, which rounding moves off 1: at unit vectors of
        variance 1e-6 a dimension (64 of them, every cosine above 0.999) it found 2 of the first 10 by the decoded vectors'
        cosine. In the squared distance of a unit query the norm's error counts only squared, or times 1 - cosine.
        """
        # Not QT_8bit_direct_signed, which holds the same codes: at widths divisible by 16 (AVX2; 32 with AVX-512) FAISS
        # 1.15 truncates the *query* to integers (pull request 5409), and of a unit vector nothing is left.
        index = faiss.IndexScalarQuantizer(self.width, self.faiss_type, faiss.METRIC_L2)
        # FAISS decodes to the middle of a step: low + (level + 0.5) * step.
        ranges = np.concatenate([self.low_d - self.step_d / 2, self.high_d - self.low_d])
        faiss.copy_array_to_vector(ranges, index.sq.trained)
        index.is_trained = True
        index.add_sa_codes(self.stored(self.encode(documents_Nd)))
        return index

    def stored(self, codes_NB: NDArray[Any]) -> NDArray[np.uint8]:
        """Codes as FAISS holds them."""
        return codes_NB

    def search(self, index: faiss.IndexScalarQuantizer, queries_Qd: NDArray[Any], depth: int) -> NDArray[np.int64]:
        """The `depth` documents (at most all) of largest cosine of the decoded vector with each float query, best first."""
        return search_decoded(index, unit_rows(queries_Qd, self.width), depth)

    def save(self, folder: Path) -> None:
        """Write `quantisation-KIND.safetensors` and `quantisation-KIND.json`."""
        save_tensors(folder, self.kind, {"low": self.low_d, "high": self.high_d})

    @classmethod
    def load(cls, folder: Path, width: int | None = None) -> Self:
        """Read what `save` wrote. `width` is the encoder's; None takes any.

        Raises:
            InputError: a file is missing, damaged, or of another kind or width; it names file, value and expectation.
        """
        return load_tensors(folder, cls.kind, width, ("low", "high"), cls)


@dataclass(frozen=True, eq=False)
class Int8(Steps):
    """256 steps a dimension.

    The range is the minimum and maximum of the training embeddings, as in FAISS and sentence-transformers: quantiles of
    0.1 and 99.9 % doubled the error of the decoded vectors (five encoders of 128 to 768 dimensions).
    """

    kind = "int8"
    levels: ClassVar[int] = 256
    faiss_type: ClassVar[int] = faiss.ScalarQuantizer.QT_8bit

    @classmethod
    def calibrate(cls, vectors_Nd: NDArray[Any]) -> Int8:
        """The ranges of training embeddings.

        Raises:
            ValueError: not a matrix of finite floats with at least 2 rows.
        """
        unit_Nd = calibration_rows(vectors_Nd)
        return cls(unit_Nd.min(axis=0), unit_Nd.max(axis=0))

    @property
    def bytes_per_vector(self) -> int:
        """Bytes of a code: d."""
        return self.width

    def encode(self, vectors_Nd: NDArray[Any]) -> NDArray[np.int8]:
        """Codes -128..127, N x d.

        Raises:
            ValueError: not a matrix of finite floats of this width.
        """
        return (self.levels_of(vectors_Nd) - 128).astype(np.int8)

    def stored(self, codes_NB: NDArray[Any]) -> NDArray[np.uint8]:
        """Levels 0 to 255."""
        return (codes_NB.astype(np.int16) + 128).astype(np.uint8)

    def decode(self, codes_NB: NDArray[Any]) -> NDArray[np.float32]:
        """The vectors (norm about 1) that codes stand for, N x d: within the range at most half a step off.

        Raises:
            ValueError: not an int8 matrix of this width.
        """
        check_codes(codes_NB, np.int8, self.width)
        return self.low_d + (codes_NB.astype(np.float32) + 128) * self.step_d


@dataclass(frozen=True, eq=False)
class Int4(Steps):
    """16 steps a dimension, two dimensions a byte.

    With so few steps a range from minimum to maximum would spend them on outliers: it is the mean and some standard
    deviations to both sides, as many as make the squared error of the training embeddings least.
    """

    kind = "int4"
    levels: ClassVar[int] = 16
    faiss_type: ClassVar[int] = faiss.ScalarQuantizer.QT_4bit

    @classmethod
    def calibrate(cls, vectors_Nd: NDArray[Any]) -> Int4:
        """The ranges of training embeddings.

        Raises:
            ValueError: not a matrix of finite floats with at least 2 rows.
        """
        unit_Nd = calibration_rows(vectors_Nd)
        mean_d, deviation_d = unit_Nd.mean(axis=0, dtype=np.float64), unit_Nd.std(axis=0, dtype=np.float64)
        errors = []
        for spread in SPREADS:
            low_d, step_d = mean_d - spread * deviation_d, 2 * spread * deviation_d / (cls.levels - 1)
            steps_Nd = np.divide(unit_Nd - low_d, step_d, out=np.zeros(unit_Nd.shape), where=step_d > 0)
            rounded_Nd = low_d + np.clip(np.rint(steps_Nd), 0, cls.levels - 1) * step_d
            errors.append(np.square(rounded_Nd - unit_Nd).sum(axis=0))
        half_d = SPREADS[np.argmin(errors, axis=0)] * deviation_d
        return cls((mean_d - half_d).astype(np.float32), (mean_d + half_d).astype(np.float32))

    @property
    def bytes_per_vector(self) -> int:
        """Bytes of a code: ceil(d / 2)."""
        return -(-self.width // 2)

    def encode(self, vectors_Nd: NDArray[Any]) -> NDArray[np.uint8]:
        """Levels 0..15, N x ceil(d / 2): an even dimension in the low half of a byte, the next one in the high half.

        Raises:
            ValueError: not a matrix of finite floats of this width.
        """
        levels_Nd = self.levels_of(vectors_Nd).astype(np.uint8)
        if self.width % 2:
            levels_Nd = np.pad(levels_Nd, ((0, 0), (0, 1)))
        return (levels_Nd[:, ::2] | levels_Nd[:, 1::2] << 4).astype(np.uint8)

    def decode(self, codes_NB: NDArray[Any]) -> NDArray[np.float32]:
        """The vectors (norm about 1) that codes stand for, N x d.

        Raises:
            ValueError: not a uint8 matrix of ceil(d / 2) columns.
        """
        check_codes(codes_NB, np.uint8, self.bytes_per_vector)
        levels_Nd = np.stack([codes_NB & 15, codes_NB >> 4], axis=2).reshape(len(codes_NB), 2 * self.bytes_per_vector)
        return self.low_d + levels_Nd[:, : self.width].astype(np.float32) * self.step_d
