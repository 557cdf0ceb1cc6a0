"""Indexes of documents: of float32 vectors or of a code, flat, in lists (IVF) or as a graph (HNSW), searched by FAISS alone;
but exactly by torch on a GPU that FAISS does not see.

Whatever a code needs is inside the index: linear maps, ranges, codebooks. It takes vectors block by block, or their stored
bytes, and a float query is compared with decoded vectors. Where these have different norms, candidates are ranked again by
cosine.

Axes in names: N rows of a block or sample, D dimensions, B bytes of a code, Q queries, R ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import faiss as typed_faiss
import numpy as np
import torch
from numpy.typing import NDArray

from distilbench.choices import FAISS_KINDS, FaissKind
from distilbench.errors import InputError
from distilbench.evaluation.faiss_codes import Code, chain_of, copied, in_memory_of, inner_of, unit
from distilbench.records import IndexKind

faiss: Any = typed_faiss  # its type stubs lack, or have otherwise, much of what is used here
POINTS_PER_LIST = 39
"""FAISS's own lower limit for training a list's centroid."""
ITERATIONS = 10
"""Of k-means for the lists: FAISS's own number in `IndexIVF`."""
MORE = 4
"""Candidates for each result wanted, where decoded vectors have different norms. With 16,865 MiniLM vectors of STS sentences
and PCAR32's 4 bits, 1 found 53.6 % of the exact first 10, 2 58.7, 4 59.7, and the cosine with every decoded vector 60.0."""
SCORES = 2**28
"""Inner products that torch holds at once, in float32."""
QUERIES = 64
"""Queries whose candidates are ranked again at a time."""
LINKS, EF_CONSTRUCTION, EF_SEARCH = 32, 80, 128
"""HNSW's; FAISS never searches with fewer than the 100 results wanted."""
FIRST = 10
"""Results that `overlap` compares."""
MOST = 20
"""Times an index's own setting that `widen` tries at most: a graph may never find some documents."""
FINDS = " finds what "
"""In the setting of an index that was widened, between its own width and the one that it is compared with."""


@dataclass(frozen=True)
class IndexSpec:
    """An index of FAISS. `lists` is (nlist, nprobe) of "ivf", None: `ivf_setting`; HPD's is (1024, 5)."""

    kind: FaissKind
    lists: tuple[int, int] | None = None

    def resolved(self, documents: int) -> IndexSpec:
        """With the lists for that many documents filled in; lists that are more than these are bad input."""
        if self.kind != "ivf":
            return IndexSpec(self.kind)
        nlist, nprobe = self.lists or ivf_setting(documents)
        if nlist > documents:
            raise InputError(f"ivf:{nlist}:{nprobe}: {documents} documents; expected at least as many as lists")
        return IndexSpec(self.kind, (nlist, nprobe))

    def training_rows(self, documents: int) -> int:
        """How many vectors the resolved index is trained on: 0 when it needs none, at most `documents`.

        39 for each list, FAISS's least, since the sample is held in memory: 64 found 1.3 points more of the exact first 10
        among 90,000 MiniLM vectors, and all (88) about as many as 64.
        """
        return min(documents, POINTS_PER_LIST * self.lists[0]) if self.lists else 0


def ivf_setting(documents: int) -> tuple[int, int]:
    """(nlist, nprobe): the power of two nearest 4 sqrt(documents), at least 39 documents a list; HPD's 5 probes per 1,024
    lists, never under 5."""
    nlist = 2 ** max(0, round(np.log2(4 * documents**0.5)))
    while nlist > 1 and documents < nlist * POINTS_PER_LIST:
        nlist //= 2
    return nlist, min(nlist, max(5, round(5 * nlist / 1024)))


def parse_index(text: str, option: str = "--indexes") -> IndexSpec:
    """An index as an option writes it: its kind, or ivf with nlist and nprobe, such as ivf:1024:5."""
    kind, *numbers = text.split(":")
    if kind not in FAISS_KINDS:
        raise InputError(f"{option} {kind}: expected one of {', '.join(FAISS_KINDS)}")
    if not numbers:
        return IndexSpec(kind)
    if len(numbers) != 2 or kind != "ivf" or not all(n.isdecimal() and int(n) for n in numbers):
        raise InputError(f"{option} {text}: expected {kind} alone, or ivf with nlist and nprobe: ivf:1024:5")
    if int(numbers[1]) > int(numbers[0]):
        raise InputError(f"{option} {text}: nprobe is above nlist; expected at most as many, such as ivf:1024:5")
    return IndexSpec(kind, lists=(int(numbers[0]), int(numbers[1])))


@dataclass(eq=False)
class DocumentIndex:
    """An index that grows block by block. `held` is FAISS's own, whole and ready to be written, or `TorchFlat`."""

    spec: IndexSpec
    code: Code | None
    """What is stored; None is float32."""
    held: Any
    flat: Any
    """An index without documents, which decodes stored bytes."""
    setting: str
    device: Literal["cpu", "cuda"] = "cpu"

    @property
    def kind(self) -> IndexKind:
        """What records call it: the code, or of float32 vectors the kind of index."""
        return self.code.kind if self.code else self.spec.kind

    @property
    def rescored(self) -> bool:
        """Whether decoded vectors have different norms: then what FAISS finds is ranked again by cosine."""
        return norms_differ(self.code)

    def add(self, vectors_ND: NDArray[np.float32]) -> None:
        """Append documents by their unit vectors."""
        if self.code is None:
            self.held.add(vectors_ND)
        else:
            self.add_codes(stored_codes(self.code, vectors_ND))

    def add_codes(self, codes_NB: NDArray[np.uint8]) -> None:
        """Append documents by their stored bytes."""
        if isinstance(self.held, faiss.IndexRefine):
            found, stored = in_memory_of(self.held), faiss.downcast_index(self.held.refine_index)
            _add(found, codes_NB[:, : int(found.sa_code_size())])
            _add(stored, codes_NB[:, int(found.sa_code_size()) :])
            self.held.ntotal = self.held.base_index.ntotal
        elif self.spec.kind == "flat":
            _add(self.held, codes_NB)
        else:  # coded again there: as the same bytes, or as another of two equal centroids
            inner = inner_of(self.held)
            inner.add(self.flat.sa_decode(np.ascontiguousarray(codes_NB)))
            self.held.ntotal = inner.ntotal

    def search(self, queries_QD: NDArray[np.float32], depth: int) -> NDArray[np.int64]:
        """Find the positions of the `depth` best documents of each unit query, best first; -1 where there are no more."""
        on_disk = isinstance(self.held, faiss.IndexRefine)
        if not (self.rescored or on_disk):
            positions_QR: NDArray[np.int64] = self.held.search(queries_QD, depth)[1]
            return positions_QR
        best_QR = np.full((len(queries_QD), depth), -1, dtype=np.int64)
        candidates = min(MORE * depth, self.held.ntotal)
        if self.spec.kind == "flat" and candidates == self.held.ntotal and not on_disk:  # all: decoded once
            stored_ND = self.held.reconstruct_n(0, candidates).astype(np.float64)
            stored_ND /= np.linalg.norm(stored_ND, axis=1, keepdims=True).clip(1e-12)
            found_QR = np.argsort(-(queries_QD @ stored_ND.T), axis=1, kind="stable")[:, :depth]
            best_QR[:, : found_QR.shape[1]] = found_QR
            return best_QR
        for start in range(0, len(queries_QD), QUERIES):
            block_QD = queries_QD[start : start + QUERIES]
            if on_disk:
                position_QC, vector_QCD = _found_on_disk(self.held, block_QD, depth)
            else:
                _, position_QC, vector_QCD = self.held.search_and_reconstruct(block_QD, candidates)
            found_QR = _by_cosine(position_QC, vector_QCD.astype(np.float64), block_QD)[:, :depth]
            best_QR[start : start + QUERIES, : found_QR.shape[1]] = found_QR
        return best_QR


def _add(index: Any, codes_NB: NDArray[np.uint8]) -> None:
    """Append stored bytes to a flat index."""
    inner = inner_of(index)
    inner.add_sa_codes(np.ascontiguousarray(codes_NB))
    index.ntotal = inner.ntotal


def _found_on_disk(
    held: Any, queries_QD: NDArray[np.float32], depth: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """What the code in memory finds, Q x C, and of the first `k_factor` times ten the vectors that are on disk."""
    first = min(round(held.k_factor) * FIRST, held.ntotal)
    position_QC = held.base_index.search(queries_QD, min(max(depth, first), held.ntotal))[1]
    vectors_ND = held.refine_index.reconstruct_batch(position_QC[:, :first].ravel())
    return position_QC, vectors_ND.reshape(len(queries_QD), first, -1)


def _by_cosine(
    position_QC: NDArray[np.int64], vector_QFD: NDArray[np.float64], queries_QD: NDArray[np.float32]
) -> NDArray[np.int64]:
    """Rank the first F positions again by the cosine of their vectors with the query; the others stay."""
    first = vector_QFD.shape[1]
    cosine_QF = np.einsum("qcd,qd->qc", vector_QFD, queries_QD)
    cosine_QF /= np.linalg.norm(vector_QFD, axis=2).clip(1e-12)
    cosine_QF[position_QC[:, :first] < 0] = -np.inf
    order_QF = np.argsort(-cosine_QF, axis=1, kind="stable")
    return np.hstack([np.take_along_axis(position_QC[:, :first], order_QF, axis=1), position_QC[:, first:]])


def stored_codes(code: Code | None, vectors_ND: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Code vectors as an index holds them, N x B; None is float32, of unit vectors."""
    if code is None:
        return np.ascontiguousarray(unit(vectors_ND), dtype=np.float32).view(np.uint8)
    return code.encode(vectors_ND)


def check_code(spec: IndexSpec, code: Code | None) -> None:
    """Check that there are lists, or graphs, of what the code stores: InputError where there is a flat index alone."""
    kinds = (faiss.IndexPQ, faiss.IndexScalarQuantizer)
    if code is not None and spec.kind != "flat" and not isinstance(inner_of(code.trained), kinds):
        raise InputError(f"{spec.kind}: {code.kind} is searched code by code; expected flat, or another code")


def norms_differ(code: Code | None) -> bool:
    """Say whether FAISS's distance to a code depends on the norm of the decoded vector, which the cosine does not: not to
    float32's, which have norm 1, nor to signs, nor where the code has a factor for that (RaBitQ, EDEN)."""
    if code is None:
        return False
    inner = inner_of(code.trained)
    if isinstance(inner, (faiss.IndexRaBitQ, faiss.IndexEDEN, faiss.IndexRefine)):
        return False
    if not isinstance(inner, faiss.IndexPQ):
        return True
    norms = np.square(faiss.vector_to_array(inner.pq.centroids).reshape(inner.pq.M, inner.pq.ksub, -1)).sum(axis=2)
    return bool((np.ptp(norms, axis=1) > 1e-6 * norms.max(axis=1)).any())


def document_index(
    spec: IndexSpec,
    width: int,
    documents: int,
    sample_ND: NDArray[Any],
    code: Code | None = None,
    *,
    on_gpu: bool = False,
) -> DocumentIndex:
    """Make the empty index that the resolved `spec` describes, of float32 vectors (`code` None) or of a code.

    `sample_ND` are `spec.training_rows(documents)` unit vectors, or stored bytes where there is a code. With `on_gpu`, where
    it is to be searched and not written, that of float32 vectors lives on the GPUs where FAISS sees any and has the kind
    there; a flat one on torch's GPU where FAISS sees none.
    """
    check_code(spec, code)
    flat = faiss.IndexFlatIP(width) if code is None else copied(inner_of(code.trained))
    settings = []
    if spec.lists is not None:
        sample_ND = sample_ND if code is None else flat.sa_decode(np.ascontiguousarray(sample_ND))
        inner = _lists(flat, spec.lists, sample_ND)
        settings = [f"trained on {len(sample_ND)}"] if len(sample_ND) < documents else []
    elif spec.kind == "hnsw":
        inner = _graph(flat)
        settings = [f"M={LINKS}, efConstruction={EF_CONSTRUCTION}, efSearch={EF_SEARCH}"]
    else:
        inner = copied(flat)
    if code is None:
        held, device = on_gpus(spec, inner, documents) if on_gpu else (inner, "cpu")
        return DocumentIndex(spec, code, held, flat, ", ".join(settings), device)
    held = inner
    if chain := chain_of(code.trained):
        held = faiss.IndexPreTransform(inner)
        for transform in reversed(chain):
            held.prepend_transform(transform)
        held.is_trained = True
        held.referenced_objects.append(code)  # whose maps it points to
    settings += [f"rescore={MORE}"] if norms_differ(code) else []
    return DocumentIndex(spec, code, held, flat, ", ".join(settings))


def _lists(flat: Any, lists: tuple[int, int], sample_Nd: NDArray[np.float32]) -> Any:
    """Lists of what `flat` stores; a query is compared with those of the `lists[1]` nearest centroids."""
    nlist, nprobe = lists
    d, metric = flat.d, flat.metric_type
    # Spherical: a query of norm 1 goes to the lists of the largest cosine, whatever the norms of decoded vectors are.
    clusters = faiss.Kmeans(d, nlist, niter=ITERATIONS, spherical=True, min_points_per_centroid=1, seed=1234)
    clusters.train(sample_Nd)
    coarse = faiss.IndexFlat(d, metric)
    coarse.add(clusters.centroids)
    if isinstance(flat, faiss.IndexPQ):
        index = faiss.IndexIVFPQ(coarse, d, nlist, flat.pq.M, flat.pq.nbits, metric)
        index.by_residual = False
    elif isinstance(flat, faiss.IndexScalarQuantizer):
        index = faiss.IndexIVFScalarQuantizer(coarse, d, nlist, flat.sq.qtype, metric, False)
    else:
        index = faiss.IndexIVFFlat(coarse, d, nlist, metric)
    _copy_training(flat, index)
    index.nprobe, index.is_trained = nprobe, True
    return index


def _graph(flat: Any) -> Any:
    """A graph of what `flat` stores."""
    if isinstance(flat, faiss.IndexPQ):
        index = faiss.IndexHNSWPQ(flat.d, flat.pq.M, LINKS, flat.pq.nbits, flat.metric_type)
    elif isinstance(flat, faiss.IndexScalarQuantizer):
        index = faiss.IndexHNSWSQ(flat.d, flat.sq.qtype, LINKS, flat.metric_type)
    else:
        index = faiss.IndexHNSWFlat(flat.d, LINKS, flat.metric_type)
    storage = faiss.downcast_index(index.storage)
    _copy_training(flat, storage)
    if isinstance(flat, faiss.IndexPQ):
        storage.pq.compute_sdc_table()  # distances between centroids: the graph is built by them
    storage.is_trained = index.is_trained = True
    index.hnsw.efConstruction, index.hnsw.efSearch = EF_CONSTRUCTION, EF_SEARCH
    return index


def _copy_training(flat: Any, index: Any) -> None:
    """Give an index of the same code the centroids or ranges of `flat`; float32 has none."""
    if isinstance(flat, faiss.IndexPQ):
        faiss.copy_array_to_vector(faiss.vector_to_array(flat.pq.centroids), index.pq.centroids)
    elif isinstance(flat, faiss.IndexScalarQuantizer):
        faiss.copy_array_to_vector(faiss.vector_to_array(flat.sq.trained), index.sq.trained)


def overlap(found_QR: NDArray[np.int64], exact_QR: NDArray[np.int64]) -> float:
    """The share (x 100) of the first ten of an exact search that are among the first ten that were found."""
    first_QR = exact_QR[:, :FIRST]
    kept_QR = (first_QR[:, :, None] == found_QR[:, None, :FIRST]).any(axis=2) & (first_QR >= 0)
    return 100 * float(kept_QR.sum()) / int((first_QR >= 0).sum())


def widen(
    index: DocumentIndex, exact: DocumentIndex, queries_QD: NDArray[np.float32], own_QD: NDArray[np.float32]
) -> bool:
    """Widen the search of `index` until `queries_QD` find as much of their exact first ten as `own_QD`, those of the
    documents' own encoder, find at its setting; False where `MOST` times that is not enough, and where it is none of lists or
    a graph of float32 vectors on the CPU.

    Another encoder's queries lie a little off the documents, so at one setting they find less. `exact` is a flat index of the
    same documents. The index says its new setting and the aim.
    """
    kind, inner = index.spec.kind, inner_of(index.held)
    if kind == "flat" or index.code is not None or index.device != "cpu":
        return False
    name, holder, whole = ("nprobe", inner, inner.nlist) if kind == "ivf" else ("efSearch", inner.hnsw, inner.ntotal)
    first = width = int(getattr(holder, name))
    aim = overlap(index.search(own_QD, FIRST), exact.search(own_QD, FIRST))
    exact_QR, most = exact.search(queries_QD, FIRST), min(int(whole), MOST * first)
    while overlap(index.search(queries_QD, FIRST), exact_QR) < aim:
        if width >= most:
            return False
        width = min(most, max(width + 1, round(1.1 * width)))
        setattr(holder, name, width)
    index.setting = f"{name}={width}{FINDS}{first} finds of the teacher's queries ({aim:.1f} %)"
    if index.spec.lists:
        index.spec = IndexSpec(kind, (index.spec.lists[0], width))
    return True


def serialised_bytes(index: DocumentIndex) -> int:
    """Count the bytes that FAISS writes for the index without vectors on disk, while it writes; they are not kept."""
    count = 0

    def written(part: bytes) -> None:
        nonlocal count
        count += len(part)

    held = in_memory_of(index.held)
    if isinstance(held, TorchFlat):
        held = held.empty
        held.add(index.held.vectors_ND.cpu().numpy())
    elif index.device == "cuda":
        held = faiss.index_gpu_to_cpu(held)
    faiss.write_index(held, faiss.PyCallbackIOWriter(written))
    return count


class TorchFlat:
    """Exact search by inner product, as by FAISS's flat index, in float32 on a device of torch; takes up to `documents`."""

    def __init__(self, empty: Any, documents: int, device: str = "cuda") -> None:
        self.empty, self.ntotal = empty, 0
        """FAISS's own index, without vectors."""
        self.vectors_ND = torch.empty((documents, empty.d), device=device)

    def add(self, vectors_ND: NDArray[np.float32]) -> None:
        """Append vectors."""
        stop = self.ntotal + len(vectors_ND)
        self.vectors_ND[self.ntotal : stop] = torch.from_numpy(np.ascontiguousarray(vectors_ND))
        self.ntotal = stop

    def search(self, queries_QD: NDArray[np.float32], depth: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Inner products and positions of the `depth` best of each query, best first; -1 where there are no more."""
        device, count = self.vectors_ND.device, len(queries_QD)
        queries = torch.from_numpy(np.ascontiguousarray(queries_QD)).to(device)
        best_QR = torch.full((count, depth), -torch.inf, device=device)
        place_QR = torch.full((count, depth), -1, dtype=torch.int64, device=device)
        rows = max(1, SCORES // max(1, count))
        for start in range(0, self.ntotal, rows):
            score_QN = queries @ self.vectors_ND[start : min(start + rows, self.ntotal)].T
            best_QB, place_QB = score_QN.topk(min(depth, score_QN.shape[1]), dim=1)
            best_QR, order_QR = torch.cat([best_QR, best_QB], dim=1).topk(depth, dim=1)
            place_QR = torch.cat([place_QR, place_QB + start], dim=1).gather(1, order_QR)
        return best_QR.cpu().numpy(), place_QR.cpu().numpy()


def on_gpus(spec: IndexSpec, index: Any, documents: int) -> tuple[Any, Literal["cpu", "cuda"]]:
    """A copy of the index on each GPU, which share the queries; the index itself where FAISS has no such index on GPUs.

    Copies and not shards: a sharded flat index takes its vectors in one piece only. Graphs are there as cuVS's own alone.
    Where FAISS sees no GPU but torch does, a flat index is torch's, if it fits there.
    """
    if spec.kind == "hnsw":
        return index, "cpu"
    if getattr(faiss, "get_num_gpus", lambda: 0)():
        return faiss.index_cpu_to_all_gpus(index), "cuda"
    if spec.kind == "flat" and torch.cuda.is_available():
        if 4 * index.d * documents + 8 * SCORES < torch.cuda.mem_get_info()[0]:
            return TorchFlat(index, documents), "cuda"
    return index, "cpu"
