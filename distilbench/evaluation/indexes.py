"""Indexes that grow block by block: FAISS's own kinds, and codes of a calibrated quantiser with rescoring.

All take unit vectors and search by inner product, but for scalar codes, whose decoded vectors are not quite of norm 1:
"sq8" searches by squared distance, codes by the decoded vectors' cosine (`codes.code.search_decoded`).

Axes in names: N rows of a block or sample, D dimensions, Q queries, R ranks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import faiss
import numpy as np
from numpy.typing import NDArray

from distilbench.choices import FAISS_KINDS, FaissKind
from distilbench.errors import InputError
from distilbench.evaluation.quantisation import RESCORE, Binary, Quantiser
from distilbench.evaluation.retrieval import POINTS_PER_LIST, ivf_setting
from distilbench.records import IndexKind

GPU_KINDS = ("flat", "ivf", "ivf-pq")
"""What FAISS has on GPUs; it has scalar quantisers there only below inverted lists, and graphs only as cuVS's own."""
SQ_POINTS = 16_384
"""Training vectors for the ranges of "sq8"."""
DIMENSIONS_PER_CODE = 8
"""At most. With 90,000 MiniLM vectors, 4 found 74 % of the exact first 10, 8 found 67 % in 0.62 times the bytes, and lists
without codes 80 %."""
BITS = 8


@dataclass(frozen=True)
class IndexSpec:
    """An index of FAISS and its settings; None means the default for the corpus.

    `lists` is (nlist, nprobe) of "ivf" and "ivf-pq", by default `ivf_setting`; HPD's is (1024, 5). `codes` of `bits` bits
    each make a vector of "ivf-pq": by default 8 bits for the most dimensions up to 8 that divide the width, and fewer bits
    where the corpus has under 39 vectors for each of the 256 centroids. `links` (32), `ef_construction` (80) and
    `ef_search` (128, since FAISS never searches with fewer than the 100 results wanted) are HNSW's.
    """

    kind: FaissKind
    lists: tuple[int, int] | None = None
    codes: int | None = None
    bits: int | None = None
    links: int | None = None
    ef_construction: int | None = None
    ef_search: int | None = None

    def resolved(self, documents: int, width: int) -> IndexSpec:
        """With the defaults for that many documents of `width` dimensions filled in.

        Raises:
            ValueError: an unknown kind, a setting of another kind, or one that this corpus does not allow.
        """
        if self.kind not in FAISS_KINDS:
            raise ValueError(f"index kind {self.kind!r}, expected one of {', '.join(FAISS_KINDS)}")
        defaults = _defaults(self.kind, documents, width)
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)[1:]}
        foreign = [name for name, value in given.items() if value is not None and name not in defaults]
        if foreign:
            raise ValueError(f"{self.kind}: {foreign[0]} is no setting of it, expected {', '.join(defaults) or 'none'}")
        chosen = {name: default if given[name] is None else given[name] for name, default in defaults.items()}
        _check(self.kind, chosen, documents, width)
        return IndexSpec(self.kind, **chosen)

    def training_rows(self, documents: int) -> int:
        """How many vectors the resolved index is trained on: 0 when it needs none, at most `documents`.

        39 for each centroid, FAISS's least, since the sample is held in memory: 64 found 1.3 points more of the exact first
        10 among 90,000 MiniLM vectors, and all (88) about as many as 64.
        """
        wanted = 0
        if self.lists is not None:
            wanted = POINTS_PER_LIST * max(self.lists[0], 2 ** (self.bits or 0))
        elif self.kind == "sq8":
            wanted = SQ_POINTS
        return min(documents, wanted)


def parse_index(text: str, option: str = "--indexes") -> IndexSpec:
    """An index as an option writes it: its kind, or ivf or ivf-pq with nlist and nprobe, such as ivf:1024:5.

    Raises:
        InputError: it is written otherwise.
    """
    kind, *numbers = text.split(":")
    if kind not in FAISS_KINDS:
        raise InputError(f"{option} {kind}: expected one of {', '.join(FAISS_KINDS)}")
    if not numbers:
        return IndexSpec(kind)
    if len(numbers) != 2 or kind not in ("ivf", "ivf-pq") or not all(n.isdecimal() and int(n) for n in numbers):
        raise InputError(f"{option} {text}: expected {kind} alone, or ivf or ivf-pq with nlist and nprobe: ivf:1024:5")
    return IndexSpec(kind, lists=(int(numbers[0]), int(numbers[1])))


def _defaults(kind: FaissKind, documents: int, width: int) -> dict[str, Any]:
    if kind == "hnsw":
        return {"links": 32, "ef_construction": 80, "ef_search": 128}
    if kind not in ("ivf", "ivf-pq"):
        return {}
    chosen: dict[str, Any] = {"lists": ivf_setting(documents)}
    if kind == "ivf-pq":
        per_code = next(d for d in range(DIMENSIONS_PER_CODE, 0, -1) if width % d == 0)
        affordable = int(np.log2(max(2, documents // POINTS_PER_LIST)))
        chosen |= {"codes": width // per_code, "bits": min(BITS, affordable)}
    return chosen


def _check(kind: FaissKind, chosen: dict[str, Any], documents: int, width: int) -> None:
    if "lists" in chosen:
        nlist, nprobe = chosen["lists"]
        if not 1 <= nprobe <= nlist <= documents:
            raise ValueError(
                f"{kind}: nlist {nlist} and nprobe {nprobe} for {documents} documents, expected 1 <= nprobe <= nlist <= "
                "documents"
            )
    if "codes" in chosen:
        codes, bits = chosen["codes"], chosen["bits"]
        if codes < 1 or width % codes:
            raise ValueError(f"{kind}: {codes} codes for {width} dimensions, expected a divisor of the dimensions")
        if not 1 <= bits <= 16 or 2**bits > documents:
            raise ValueError(f"{kind}: codes of {bits} bits for {documents} documents, expected 2^bits at most as many")
    low = [name for name in ("links", "ef_construction", "ef_search") if name in chosen and chosen[name] < 2]
    if low:
        raise ValueError(f"{kind}: {low[0]} is {chosen[low[0]]}, expected at least 2")


@dataclass(frozen=True, eq=False)
class GrowingIndex:
    """An index that takes blocks of unit vectors and is searched for positions.

    `add(vectors_ND)` appends; `search(queries_QD, depth)` gives Q x depth positions, best first, -1 where there are no
    more; `held` is the FAISS index.
    """

    kind: IndexKind
    held: Any
    add: Callable[[NDArray[np.float32]], None]
    search: Callable[[NDArray[np.float32], int], NDArray[np.int64]]
    lists: tuple[int, int] | None = None
    setting: str = ""
    device: Literal["cpu", "cuda"] = "cpu"


def faiss_index(spec: IndexSpec, sample_ND: NDArray[np.float32], documents: int) -> GrowingIndex:
    """An empty index as the resolved `spec` has it, trained on `sample_ND`, `spec.training_rows(documents)` unit rows.

    It lives on the GPUs where FAISS sees any and has the kind there.
    """
    index = _trained(spec, sample_ND)
    index, device = on_gpus(spec, index)
    return GrowingIndex(
        spec.kind, index, index.add, partial(_positions, index), spec.lists, _setting(spec, documents), device
    )


def quantised_index(quantiser: Quantiser) -> GrowingIndex:
    """An empty index of the quantiser's codes; binary ones are searched for twice the depth and rescored."""
    index: Any = quantiser.index(np.empty((0, quantiser.width), dtype=np.float32))

    setting = f"rescore={RESCORE}" if isinstance(quantiser, Binary) else ""
    return GrowingIndex(
        quantiser.kind, index, partial(quantiser.add, index), partial(quantiser.search, index), setting=setting
    )


def serialised_bytes(index: GrowingIndex) -> int:
    """Bytes that FAISS writes for the index: counted while it writes, a megabyte at a time, and not kept."""
    count = 0

    def written(part: bytes) -> None:
        nonlocal count
        count += len(part)

    held = faiss.index_gpu_to_cpu(index.held) if index.device == "cuda" else index.held
    write: Any = faiss.write_index_binary if isinstance(held, faiss.IndexBinary) else faiss.write_index
    writer: Any = getattr(faiss, "PyCallbackIOWriter")  # noqa: B009 - the stubs lack it
    write(held, writer(written))
    return count


def on_gpus(spec: IndexSpec, index: Any) -> tuple[Any, Literal["cpu", "cuda"]]:
    """A copy of the index on each GPU, which share the queries; the index itself where FAISS has no GPU or no such index.

    Copies and not shards: a sharded flat index takes its vectors in one piece only. Product codes of a length that the GPU
    does not offer stay on the CPU.
    """
    if spec.kind not in GPU_KINDS or not getattr(faiss, "get_num_gpus", lambda: 0)():
        return index, "cpu"
    options = faiss.GpuMultipleClonerOptions()
    options.useFloat16 = spec.kind == "ivf-pq"  # its look-up tables; in float32 over 48 codes exceed the shared memory
    try:
        return faiss.index_cpu_to_all_gpus(index, co=options), "cuda"
    except RuntimeError:
        if spec.kind != "ivf-pq":
            raise
        return index, "cpu"


def _positions(index: Any, queries_QD: NDArray[np.float32], depth: int) -> NDArray[np.int64]:
    return index.search(queries_QD, depth)[1]


def _trained(spec: IndexSpec, sample_ND: NDArray[np.float32]) -> Any:
    width, metric = sample_ND.shape[1], faiss.METRIC_INNER_PRODUCT
    chosen: Any = spec  # a resolved one: what its kind needs is not None
    index: Any  # the stubs lack some attributes
    if spec.kind == "flat":
        return faiss.IndexFlatIP(width)
    if spec.kind == "hnsw":
        index = faiss.IndexHNSWFlat(width, chosen.links, metric)
        index.hnsw.efConstruction, index.hnsw.efSearch = chosen.ef_construction, chosen.ef_search
        return index
    if spec.kind == "sq8":
        index = faiss.IndexScalarQuantizer(width, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_L2)
    else:
        nlist, nprobe = chosen.lists
        coarse = faiss.IndexFlatIP(width)
        if spec.kind == "ivf":
            index = faiss.IndexIVFFlat(coarse, width, nlist, metric)
        else:
            index = faiss.IndexIVFPQ(coarse, width, nlist, chosen.codes, chosen.bits, metric)
            # FAISS would copy up to 256 a centroid for this, 65,536 vectors: more than the lists may need in all.
            index.pq.cp.max_points_per_centroid = POINTS_PER_LIST
            index.pq.cp.min_points_per_centroid = 1
        index.nprobe = nprobe
        index.cp.min_points_per_centroid = 1  # FAISS warns below 39, which only settings that were asked for are
    index.train(sample_ND)
    return index


def _setting(spec: IndexSpec, documents: int) -> str:
    """What the index depends on beside nlist and nprobe."""
    names = {
        "codes": "m",
        "bits": "bits",
        "links": "M",
        "ef_construction": "efConstruction",
        "ef_search": "efSearch",
    }
    parts = [f"{short}={getattr(spec, name)}" for name, short in names.items() if getattr(spec, name) is not None]
    if 0 < (trained := spec.training_rows(documents)) < documents:
        parts.append(f"trained on {trained}")
    return ", ".join(parts)
