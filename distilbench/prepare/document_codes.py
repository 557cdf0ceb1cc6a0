"""Code documents as an index holds them, into the artifact store: on Ray Data, or of vectors that exist already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from distilbench.cluster.nodes import working_device
from distilbench.data.documents import DocumentFiles
from distilbench.data.sentences import SentenceFile
from distilbench.data.vector_file import GivenVectors, VectorFile
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import encode_documents
from distilbench.encoders.shared_space import SharedSpace
from distilbench.errors import InputError
from distilbench.evaluation.encoders import LEAST_NORM
from distilbench.evaluation.faiss_codes import Code, card_path, read_card
from distilbench.evaluation.indexes import stored_codes
from distilbench.prepare.encode import SHARD_ROWS, check_device
from distilbench.prepare.pool import ShardTask, run_pool
from distilbench.settings.place import AS_FIT, PoolSize
from distilbench.storage.arrays import ShardedArray, save_array, shard_name, shard_ranges
from distilbench.storage.files import read_json_object
from distilbench.storage.store import ArtifactStore

BATCH = {"cpu": 32, "cuda": 256}
"""Documents of one forward pass. sentence-transformers sorts them by length within a shard."""
STEP_VERSION = 2


@dataclass(frozen=True)
class ChosenCode:
    """What documents are stored as: the name of a code and the folder that it is saved in; float32 has none."""

    kind: str
    folder: Path | None
    width: int

    def load(self) -> Code | None:
        """The code; None is float32."""
        return None if self.folder is None else Code.load(self.kind, self.folder, self.width)

    def identity(self) -> dict[str, Any]:
        """What the stored bytes depend on beside the vectors."""
        sha256 = None if self.folder is None else read_card(card_path(self.folder, self.kind)).get("sha256")
        return {"code": self.kind, "width": self.width, "sha256": sha256}


@dataclass(frozen=True)
class DocumentCoding(ShardTask):
    """Turns rows of documents into shards of stored codes."""

    spec: EncoderSpec
    texts: SentenceFile
    folder: Path
    device: str
    code: ChosenCode
    unit: ClassVar[str] = "documents"

    def load(self) -> Callable[[int, int, int], None]:
        """The student onto its device, and the code."""
        import torch

        check_device(self.device)
        model, code = self.spec.load(self.device), self.code.load()

        def make(shard: int, start: int, stop: int) -> None:
            texts = self.texts[start:stop]
            with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.device == "cuda"):
                vectors_ND = encode_documents(model, texts, BATCH[self.device])
            _check(vectors_ND, texts, self.code, f"--student {self.spec.name}")
            save_array(self.folder / shard_name(shard), stored_codes(code, vectors_ND))

        return make


def _check(vectors_ND: NDArray[np.float32], texts: Sequence[str], code: ChosenCode, source: str) -> None:
    if vectors_ND.shape[1] != code.width:
        raise InputError(f"{source}: vectors of {vectors_ND.shape[1]} dimensions; expected {code.width}")
    norms = np.linalg.norm(vectors_ND, axis=1)
    if len(bad := np.flatnonzero(~((norms > LEAST_NORM) & (norms < np.inf)))):
        raise InputError(f"{source}: the vector of {texts[bad[0]]!r:.120} is zero or not finite; it has no cosine")


@dataclass(frozen=True)
class GivenDocuments:
    """Vectors of documents by the teacher of a pair that exist already: row `places_N[i]` of `given` is of document i."""

    file: VectorFile
    given: GivenVectors
    places_N: NDArray[np.int64]
    space: SharedSpace
    width: int
    """Numbers of the space's vectors that are kept, from the first on."""

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of documents where the queries are, N x d."""
        vectors_ND = self.space.documents(self.given.vectors.take(self.places_N[rows]))
        return np.ascontiguousarray(vectors_ND[:, : self.width])


def code_given(
    documents: DocumentFiles, vectors: GivenDocuments, spec: EncoderSpec, code: ChosenCode, store: ArtifactStore
) -> ShardedArray:
    """The stored bytes of documents whose vectors are given; no Ray is needed for that."""
    total, rows, loaded = len(documents.texts), SHARD_ROWS["cpu"], code.load()
    ranges = shard_ranges(total, rows)

    def make(folder: Path, missing: list[str]) -> None:
        for shard, (start, stop) in enumerate(ranges):
            if shard_name(shard) in missing:
                vectors_ND = vectors.take(np.arange(start, stop))
                _check(vectors_ND, documents.texts[start:stop], code, f"--teacher-vectors {vectors.file.path}")
                save_array(folder / shard_name(shard), stored_codes(loaded, vectors_ND))

    parts = {**_parts(documents, spec, code, "cpu"), "precision": "given", "vectors": vectors.file.identity()}
    path = store.build("document-codes", parts, [shard_name(i) for i, _ in enumerate(ranges)], make)
    return ShardedArray.open(path, total, rows)


def find_codes(
    documents: DocumentFiles, spec: EncoderSpec, code: ChosenCode, store: ArtifactStore
) -> ShardedArray | None:
    """The stored bytes of documents if they are made already, on either device; no Ray is needed for that."""
    for device, rows in SHARD_ROWS.items():
        if path := store.find("document-codes", _parts(documents, spec, code, device)):
            return ShardedArray.open(path, len(documents.texts), rows)
    return None


def code_documents(
    documents: DocumentFiles, spec: EncoderSpec, code: ChosenCode, store: ArtifactStore, *, size: PoolSize = AS_FIT
) -> ShardedArray:
    """The stored bytes of documents; of an interrupted coding only the missing shards are made. Needs `ray.init`."""
    device, total = working_device(size.grow_to), len(documents.texts)

    def make(folder: Path, missing: list[str]) -> None:
        task = DocumentCoding(spec.absolute(), documents.texts, folder, device, code)
        shards = task.missing(total, SHARD_ROWS[device])
        run_pool(task, shards, "Documents", size=size, gpu=device == "cuda", store=store)

    names = [shard_name(i) for i, _ in enumerate(shard_ranges(total, SHARD_ROWS[device]))]
    path = store.build("document-codes", _parts(documents, spec, code, device), names, make)
    return ShardedArray.open(path, total, SHARD_ROWS[device])


def _document_side(spec: EncoderSpec) -> dict[str, Any]:
    """What vectors of documents depend on: of a pair of encoders not the query side, which may be another one tomorrow.

    What follows the Router, or is in both routes, is the documents' too.
    """
    identity, folder = spec.identity(), spec.folder()
    if folder is None or not (folder / "router_config.json").is_file():
        return identity
    routes = read_json_object(folder / "router_config.json", "expected what a Router saves")["structure"]
    if set(routes) != {"query", "document"}:
        return identity
    queries = set(routes["query"]) - set(routes["document"])
    config = read_json_object(folder / "config_sentence_transformers.json", "expected a model's configuration")
    modules = {name: name.partition("/")[0] for name in identity["source"] if "/" in name}
    return {
        "source": {name: identity["source"][name] for name, module in modules.items() if module not in queries},
        "prompt": config["prompts"].get("document"),
        "truncate_dim": config.get("truncate_dim"),
    }


def _parts(documents: DocumentFiles, spec: EncoderSpec, code: ChosenCode, device: str) -> dict[str, Any]:
    return {
        "encoder": _document_side(spec),
        "documents": documents.fingerprint,
        **code.identity(),
        "precision": "bfloat16 forward" if device == "cuda" else "float32 forward",
        "shard_rows": SHARD_ROWS[device],
        "step_version": STEP_VERSION,
    }
