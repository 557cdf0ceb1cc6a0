"""Codes of embeddings: what FAISS stores a vector as, in fewer bytes than float32.

A code is a FAISS factory string (`codes.FAMILIES`) fitted to training embeddings, and a file: an empty index, which holds all
that the code needs. Every vector is scaled to norm 1 before: similarity is the cosine. A stored vector is compared with a
float query, both after the code's linear maps.

Axes in names: N vectors, d dimensions, B bytes of a code, K centroids, M parts of a vector.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import faiss as typed_faiss
import numpy as np
from numpy.typing import NDArray

from distilbench.codes import factory_of, family_of, in_memory
from distilbench.errors import InputError
from distilbench.storage.files import atomic_path, file_sha256, read_json_object, write_json
from distilbench.storage.store import ArtifactStore

faiss: Any = typed_faiss  # its type stubs lack, or have otherwise, much of what is used here
FORMAT = 2
CENTROIDS = 256
"""Of each part of a product code: a byte's."""
ROUNDS = 10
"""Of OPQ, where FAISS has 50: on 20,000 embeddings of all-MiniLM-L6-v2 in 16 bytes the STS average was 73.1 after 10 and 72.6
after 50."""
SPREADS = np.arange(1.5, 4.01, 0.25)
"""Half ranges of int4, in standard deviations, of which the best is taken: 2.68 for a normal distribution (Max 1960)."""
BLOCK = 1_024
"""Codes whose vectors are read off their distances at a time."""
FARTHEST = 1e30
"""Above any squared distance of vectors of norm 1 and decoded ones."""
STILL = 1e-7
"""A dimension that spreads less says nothing: its digits are float32's roundings. all-MiniLM-L6-v2 has two whose values are
about 1e-33: their bits would be noise, and 0 where the vectors were kept in float16."""


@dataclass(frozen=True, eq=False)
class Code:
    """A code of vectors. `trained` is FAISS's own empty index of it, which holds its linear maps."""

    kind: str
    """Its name in records: int8, int4, binary, or one with its bytes, such as opq16."""
    trained: Any
    fit_s: float | None = None
    """Processor seconds, of all threads, that it took to fit; None where that is not known."""

    @classmethod
    def calibrate(cls, kind: str, vectors_Nd: NDArray[Any]) -> Code:
        """Fit the code of that name to training embeddings."""
        began = time.process_time()
        code = cls._fitted(kind, vectors_Nd)
        return replace(code, fit_s=time.process_time() - began)

    @classmethod
    def _fitted(cls, kind: str, vectors_Nd: NDArray[Any]) -> Code:
        unit_Nd = unit_rows(vectors_Nd)
        if why := not_possible(kind, unit_Nd.shape[1]) or too_few(kind, unit_Nd.shape[1], len(unit_Nd)):
            raise ValueError(why)
        if kind != in_memory(kind):
            return cls(kind, _with_vectors_on_disk(kind, unit_Nd))
        factory = factory_of(kind, unit_Nd.shape[1])
        index = faiss.index_factory(unit_Nd.shape[1], factory, faiss.METRIC_L2)
        held = _adjusted(index)
        with quick_clustering():
            index.train(unit_Nd)
        del held
        if kind in ("int8", "int4"):
            _set_ranges(index, unit_Nd)
        if kind in ("int3", "int2"):
            index = _with_levels_of_each(index, unit_Nd)
        if isinstance(inner_of(index), faiss.IndexLSH):
            threshold_d = faiss.vector_to_array(inner_of(index).thresholds) if chain_of(index) else _means(unit_Nd)
            index = _with_float_signs(index, threshold_d)
        return cls(kind, index)

    @property
    def width(self) -> int:
        """Dimensions d."""
        return int(self.trained.d)

    @property
    def bytes_per_vector(self) -> int:
        """Bytes of a code, in memory."""
        return int(in_memory_of(self.trained).sa_code_size())

    @property
    def disk_bytes(self) -> int:
        """Bytes of a vector on disk, by which what is found is ranked again; 0 where there is none."""
        return int(self.trained.sa_code_size()) - self.bytes_per_vector

    def encode(self, vectors_Nd: NDArray[Any]) -> NDArray[np.uint8]:
        """Code vectors as FAISS's index holds them, N x B, those on disk last."""
        codes_NB: NDArray[np.uint8] = self.trained.sa_encode(unit_rows(vectors_Nd, self.width))
        return codes_NB

    def decode(self, codes_NB: NDArray[Any]) -> NDArray[np.float32]:
        """Return the vectors that codes stand for, N x d', after the linear maps: cosines between them stay."""
        expected = self.trained.sa_code_size()
        if codes_NB.dtype != np.uint8 or codes_NB.ndim != 2 or codes_NB.shape[1] != expected:
            described = f"codes of shape {codes_NB.shape} and type {codes_NB.dtype}"
            raise ValueError(f"{described}, expected {expected} columns of uint8")
        inner = inner_of(self.trained)
        if isinstance(inner, faiss.IndexRaBitQ) and inner.rabitq.nb_bits > 1:
            return _read_off_distances(inner, codes_NB)
        vectors_Nd: NDArray[np.float32] = inner.sa_decode(np.ascontiguousarray(codes_NB))
        return vectors_Nd

    def queries(self, vectors_Qd: NDArray[Any]) -> NDArray[np.float32]:
        """Map unit queries as decoded vectors are mapped, Q x d'."""
        return mapped(self.trained, unit_rows(vectors_Qd, self.width))

    def compared(self, vectors_Nd: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return vectors as they are stored, decoded again, and the same as queries that are compared with stored ones."""
        return self.decode(self.encode(vectors_Nd)), self.queries(vectors_Nd)

    def save(self, folder: Path) -> None:
        """Write `quantisation-KIND.faiss` and `quantisation-KIND.json`."""
        path = card_path(folder, self.kind).with_suffix(".faiss")
        with atomic_path(path) as temporary:
            faiss.write_index(self.trained, str(temporary))
        card = {"format": FORMAT, "kind": self.kind, "width": self.width, "bytes": self.bytes_per_vector}
        card |= {} if self.fit_s is None else {"fit_s": self.fit_s}
        write_json(card_path(folder, self.kind), {**card, "sha256": file_sha256(path)})

    @classmethod
    def load(cls, kind: str, folder: Path, width: int | None = None) -> Code:
        """Read what `save` wrote. `width` is the encoder's; None takes any."""
        card = card_path(folder, kind)
        path = card.with_suffix(".faiss")
        for file in (card, path):
            if not file.is_file():
                raise InputError(f"{file}: no such file; expected a code saved as {card.name} and {path.name}")
        described = read_card(card)
        wanted = {"format": FORMAT, "kind": kind, "width": described.get("width") if width is None else width}
        wanted["sha256"] = file_sha256(path)
        for key, value in wanted.items():
            if described.get(key) != value:
                raise InputError(f"{card}: {key} is {described.get(key)!r}, expected {value!r}, as {path.name} has it")
        try:
            index = faiss.read_index(str(path))
        except RuntimeError as error:
            raise InputError(f"{path}: {error}") from None
        if index.d != described.get("width") or index.ntotal or not index.is_trained:
            raise InputError(
                f"{path}: {index.d} dimensions, {index.ntotal} vectors; expected an empty, trained index of "
                f"{described.get('width')!r}"
            )
        fit_s = described.get("fit_s")
        if not isinstance(fit_s, float | int | None):
            raise InputError(f"{card}: fit_s is {fit_s!r}, expected seconds")
        return cls(kind, index, fit_s)


def fitted_code(kind: str, vectors_Nd: NDArray[Any], store: ArtifactStore) -> Code:
    """Find the code that was calibrated on these very vectors, or calibrate it: some take minutes."""
    factory = factory_of(kind, vectors_Nd.shape[1])
    sha256 = hashlib.sha256(vectors_Nd.tobytes()).hexdigest()
    parts = {"code": kind, "factory": factory, "vectors": sha256, "faiss": faiss.__version__, "format": FORMAT}
    card = card_path(Path(), kind)
    names = [str(card), str(card.with_suffix(".faiss"))]
    folder = store.build("code", parts, names, lambda folder, _: Code.calibrate(kind, vectors_Nd).save(folder))
    return Code.load(kind, folder, vectors_Nd.shape[1])


def _read_off_distances(empty: Any, codes_NB: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Vectors v that FAISS compares queries q with, where it decodes a part of them alone, N x d.

    Its squared distance is |q|^2 - 2 q.v + c for each code, so those to 0 and to the axes say v.
    """
    axes_Qd = np.eye(empty.d + 1, empty.d, -1, dtype=np.float32)
    vectors_Nd = np.empty((len(codes_NB), empty.d), dtype=np.float32)
    for start in range(0, len(codes_NB), BLOCK):
        index, block_Bd = copied(empty), vectors_Nd[start : start + BLOCK]
        index.add_sa_codes(np.ascontiguousarray(codes_NB[start : start + BLOCK]))
        limits, distances, places = index.range_search(axes_Qd, FARTHEST)
        assert (np.diff(limits) == len(block_Bd)).all()
        distance_QB = np.empty((len(axes_Qd), len(block_Bd)), dtype=np.float32)
        np.put_along_axis(distance_QB, places.reshape(distance_QB.shape), distances.reshape(distance_QB.shape), axis=1)
        block_Bd[:] = (1 + distance_QB[0] - distance_QB[1:]).T / 2
    return vectors_Nd


def _with_vectors_on_disk(kind: str, unit_Nd: NDArray[np.float32]) -> Any:
    """FAISS's index of a code and of vectors that what it finds is ranked again by: float32's, or another code's."""
    form, _, factor = kind.removeprefix(f"{in_memory(kind)}+").partition("x")
    found = Code.calibrate(in_memory(kind), unit_Nd).trained
    stored = faiss.IndexFlatL2(found.d) if form == "float32" else Code.calibrate(form, unit_Nd).trained
    index = faiss.IndexRefine(found, stored)
    index.k_factor = float(factor)
    return copied(index)


def in_memory_of(index: Any) -> Any:
    """Return the index that is searched first: all of it, but for vectors on disk."""
    return faiss.downcast_index(index.base_index) if isinstance(index, faiss.IndexRefine) else index


def card_path(folder: Path, kind: str) -> Path:
    """Where the card of a code is."""
    return folder / f"quantisation-{kind}.json"


def read_card(card: Path) -> dict[str, Any]:
    """Read what the card of a saved code says."""
    return read_json_object(card, "expected what save() writes")


def saved_kinds(folder: Path | None, width: int) -> list[str]:
    """The codes of vectors of this width that are saved with a student, in the order of their names."""
    cards = [*folder.glob("quantisation-*.json"), *folder.glob("d*/quantisation-*.json")] if folder else []
    return sorted({str(card.get("kind")) for path in cards if (card := read_card(path)).get("width") == width})


def saved_code(folder: Path | None, kind: str, width: int) -> Path | None:
    """Find the folder of a student's code of the first `width` dimensions; None if there is none.

    Where a student was scored at several widths, each has a folder of its own, such as d64.
    """
    for place in (folder, folder / f"d{width}") if folder is not None else ():
        card = card_path(place, kind)
        if card.is_file() and read_card(card).get("width") == width:
            return place
    return None


def too_few(kind: str, width: int, sentences: int) -> str:
    """Say how many sentences the code has to be calibrated on, where there are fewer; "" where there are enough."""
    factory = factory_of(kind, width)
    projected = re.match(r"(?:PCAR?|ITQ)(\d+)", factory)
    least = CENTROIDS if re.search(r"[PR]Q\d", factory) else int(projected[1]) if projected else 2
    return f"{kind}: {sentences} sentences to calibrate on; expected at least {least}" if sentences < least else ""


def not_possible(kind: str, width: int) -> str:
    """Say why vectors of `width` dimensions cannot have this code, and the nearest of its family; "" where they can."""
    kind = in_memory(kind)
    why, named = _why_not(kind, width), family_of(kind)
    if why and named is not None:
        family, asked = named
        sizes = sorted(range(1, 4 * width + 1), key=lambda size: abs(size - asked))
        nearest = next((other for size in sizes if not _why_not(other := f"{family}{size}", width)), "another code")
        why += f"; expected {nearest}"
    return why


def _why_not(kind: str, width: int) -> str:
    factory, named = factory_of(kind, width), family_of(kind)
    takes = re.match(r"(?:PCAR?|ITQ|RR|OPQ\d+_)(-?\d+),", factory)
    if takes and not 0 < int(takes[1]) <= width:
        return f"{kind}: it takes {max(0, int(takes[1]))} dimensions, of vectors of {width}"
    size, error = _made_by_faiss(factory, width)
    if error:
        return f"{kind}: FAISS cannot make {factory} of {width} dimensions: {error}"
    return "" if named is None or size == named[1] else f"{kind}: {factory} has {size} bytes"


@cache
def _made_by_faiss(factory: str, width: int) -> tuple[int, str]:
    """Bytes of a code, and the error where there is none."""
    try:
        return int(faiss.index_factory(width, factory).sa_code_size()), ""
    except RuntimeError as error:
        return 0, str(error).rpartition(": ")[2]


def unit(vectors_ND: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of norm 1 (zero rows stay zero), so that inner product is cosine."""
    norms = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    return np.divide(vectors_ND, norms, out=np.zeros_like(vectors_ND), where=norms > 0)


def unit_rows(vectors_Nd: NDArray[Any], width: int | None = None) -> NDArray[np.float32]:
    """Check rows, and scale them to norm 1; zero rows stay zero."""
    shape, dtype = np.shape(vectors_Nd), np.asarray(vectors_Nd).dtype
    if len(shape) != 2 or not shape[1] or not np.issubdtype(dtype, np.floating):
        raise ValueError(f"vectors of shape {shape} and type {dtype}, expected floats in rows and columns")
    if shape[1] != width and width is not None:
        raise ValueError(f"vectors of {shape[1]} dimensions, expected {width}, as in calibration")
    float_Nd = np.asarray(vectors_Nd, dtype=np.float32)
    bad = np.argwhere(~np.isfinite(float_Nd))
    if len(bad):
        i, j = bad[0]
        raise ValueError(f"vector {i}, dimension {j} is {vectors_Nd[i][j]}, expected a finite float32")
    return np.ascontiguousarray(unit(float_Nd))


def inner_of(index: Any) -> Any:
    """Return the index behind the linear maps."""
    held = faiss.downcast_index(index)
    return faiss.downcast_index(held.index) if isinstance(held, faiss.IndexPreTransform) else held


def chain_of(index: Any) -> list[Any]:
    """List the linear maps before the codes."""
    held = faiss.downcast_index(index)
    if not isinstance(held, faiss.IndexPreTransform):
        return []
    return [faiss.downcast_VectorTransform(held.chain.at(i)) for i in range(held.chain.size())]


def mapped(index: Any, vectors_Nd: NDArray[np.float32]) -> NDArray[np.float32]:
    """Apply the index's linear maps."""
    for transform in chain_of(index):
        vectors_Nd = transform.apply(vectors_Nd)
    return vectors_Nd


@contextmanager
def quick_clustering() -> Iterator[None]:
    """FAISS compares few narrow vectors with centroids by matrix products within the block.

    Left alone, FAISS 1.15 does so from 128,000 numbers on (20,000 vectors of 7 dimensions), and below them pair by pair,
    which takes ten times as long.
    """
    before = faiss.cvar.distance_compute_blas_threshold
    faiss.cvar.distance_compute_blas_threshold = 1
    try:
        yield
    finally:
        faiss.cvar.distance_compute_blas_threshold = before


def _adjusted(index: Any) -> list[Any]:
    """Set what a factory string cannot say: float queries, no warning for few vectors, and OPQ's rounds.

    Keep what is returned until the index is trained: FAISS holds pointers alone.
    """
    held, inner = [], inner_of(index)
    if isinstance(inner, faiss.IndexPQ):
        inner.pq.cp.min_points_per_centroid = 1
    elif isinstance(inner, faiss.IndexRaBitQ):
        inner.qb = 0  # FAISS's own is 4: queries of 4 bits a dimension
    elif isinstance(inner, faiss.IndexResidualQuantizer):
        inner.rq.cp.min_points_per_centroid = 1
        # FAISS's own, dimension by dimension, took 35 s instead of 7.4 for 3,400 vectors in 16 bytes, and found no more.
        inner.rq.train_type = faiss.ResidualQuantizer.Train_default
    for rotation in chain_of(index):
        if isinstance(rotation, faiss.OPQMatrix):
            codes = faiss.ProductQuantizer(rotation.d_out, rotation.M, 8)
            codes.cp.min_points_per_centroid = 1
            rotation.pq, rotation.niter = codes, ROUNDS
            held.append(codes)
    return held


def _set_ranges(index: Any, unit_Nd: NDArray[np.float32]) -> None:
    """Round to the nearest level, where FAISS rounds down; and of 4 bits take the range whose squared error is least.

    With 16 steps a range from minimum to maximum would spend them on outliers: it is the mean and some standard deviations to
    both sides.
    """
    levels = {faiss.ScalarQuantizer.QT_8bit: 256, faiss.ScalarQuantizer.QT_4bit: 16}[index.sq.qtype]
    low_d, high_d = unit_Nd.min(axis=0), unit_Nd.max(axis=0)
    if levels == 16:
        mean_d, deviation_d = unit_Nd.mean(axis=0, dtype=np.float64), unit_Nd.std(axis=0, dtype=np.float64)
        errors = []
        for spread in SPREADS:
            start_d, step_d = mean_d - spread * deviation_d, 2 * spread * deviation_d / (levels - 1)
            steps_Nd = np.divide(unit_Nd - start_d, step_d, out=np.zeros(unit_Nd.shape), where=step_d > 0)
            rounded_Nd = start_d + np.clip(np.rint(steps_Nd), 0, levels - 1) * step_d
            errors.append(np.square(rounded_Nd - unit_Nd).sum(axis=0))
        half_d = SPREADS[np.argmin(errors, axis=0)] * deviation_d
        low_d, high_d = (mean_d - half_d).astype(np.float32), (mean_d + half_d).astype(np.float32)
    half_step_d = (high_d - low_d) / np.float32(2 * (levels - 1))
    faiss.copy_array_to_vector(np.concatenate([low_d - half_step_d, high_d - low_d]), index.sq.trained)


def _means(unit_Nd: NDArray[np.float32]) -> NDArray[np.float32]:
    """Thresholds of plain bits; a little above the mean in a dimension that stands still, whose bit is then 0."""
    mean_d = unit_Nd.mean(axis=0, dtype=np.float64)
    mean_d[np.ptp(unit_Nd, axis=0) < STILL] += STILL
    return mean_d.astype(np.float32)


def _with_float_signs(index: Any, threshold_d: NDArray[np.float32]) -> Any:
    """Turn FAISS's bits, which are compared with bits, into a product code of signs, which is compared with float queries.

    A byte is 8 signs, one of 256 centroids, the first dimension highest.
    """
    d, bits = len(threshold_d), -(-len(threshold_d) // 8) * 8
    inner = _product_of_levels(np.tile(np.array([-1, 1], dtype=np.float32) / np.float32(bits**0.5), (bits, 1)), 8)
    centred = faiss.CenteringTransform(d)
    faiss.copy_array_to_vector(threshold_d, centred.mean)
    centred.is_trained = True
    return _after([*chain_of(index), centred], d, inner)


@cache
def levels(bits: int) -> tuple[float, ...]:
    """Return the 2^bits levels of least squared error for a standard normal distribution (Max 1960), rising.

    FAISS has them as TurboQuant's, for vectors of d dimensions divided by sqrt(d).
    """
    index = faiss.index_factory(1, f"SQtqmse{bits}")
    index.train(np.zeros((1, 1), dtype=np.float32))
    return tuple(faiss.vector_to_array(index.sq.trained)[: 2**bits].tolist())


def _with_levels_of_each(index: Any, unit_Nd: NDArray[np.float32]) -> Any:
    """Give each dimension levels by its own mean and spread, where TurboQuant has the same for all.

    FAISS's scalar codes of 2 and 3 bits have no room for that; a product code has, of 4 dimensions a byte or of one.
    """
    levels_L = np.array(levels(index.sq.bits))
    spread_d, mean_d = unit_Nd.std(axis=0, dtype=np.float64), unit_Nd.mean(axis=0, dtype=np.float64)
    level_dL = (mean_d[:, None] + spread_d[:, None] * levels_L).astype(np.float32)
    together = 4 if len(levels_L) == 4 else 1
    level_dL = np.pad(level_dL, ((0, -len(level_dL) % together), (0, 0)))
    return _after([], index.d, _product_of_levels(level_dL, together))


def _product_of_levels(level_dL: NDArray[np.float32], together: int) -> Any:
    """Make a product code whose centroids are all combinations of the levels of so many dimensions, the first one highest."""
    d, count = level_dL.shape
    digit_KT = np.stack(np.unravel_index(np.arange(count**together), (count,) * together), axis=1)
    centroid_MKT = level_dL.reshape(-1, together, count)[:, np.arange(together), digit_KT]
    inner = faiss.IndexPQ(d, d // together, together * (count.bit_length() - 1), faiss.METRIC_L2)
    faiss.copy_array_to_vector(centroid_MKT.ravel(), inner.pq.centroids)
    inner.is_trained = True
    return inner


def _after(maps: list[Any], d: int, inner: Any) -> Any:
    """Put maps to d dimensions before a code; where it has more, zeros fill them up."""
    maps = [*maps, *([faiss.RemapDimensionsTransform(d, inner.d, False)] if inner.d > d else [])]
    if not maps:
        return inner
    held = faiss.IndexPreTransform(inner)
    for transform in reversed(maps):
        held.prepend_transform(transform)
    return copied(held)


def copied(index: Any) -> Any:
    """Copy an index with all that it points to; `faiss.clone_index` knows no ITQ."""
    return faiss.deserialize_index(faiss.serialize_index(index))
