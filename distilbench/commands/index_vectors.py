"""What `distilbench index` does with vectors of documents, or with an index of them, that exist already.

A team keeps them, and changes the encoder of its queries. A sample of the documents says whether both belong together.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss as typed_faiss
import numpy as np
from numpy.typing import NDArray

from distilbench.data.documents import DocumentFiles, columns_of_documents, read_documents
from distilbench.data.sentences import in_batches
from distilbench.data.vector_file import given_vectors
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.shared_space import DOCUMENTS, SharedSpace
from distilbench.errors import InputError
from distilbench.evaluation.faiss_codes import unit
from distilbench.prepare.document_codes import GivenDocuments
from distilbench.settings.commands import IndexSettings

faiss: Any = typed_faiss  # its type stubs have not all of it
SAMPLE = 16
"""Documents that are looked at."""
LEAST_COSINE = 0.9
"""The median over the sample of the cosine of a vector that exists and the document route's. 32 bits kept in 16 lose 1e-6, a
longer limit of tokens some hundredths; another encoder's is near 0."""
DEPTH = 10


@dataclass(frozen=True)
class Sides:
    """A student's query side, which is always there, and what there is of the document side."""

    settings: IndexSettings
    student: EncoderSpec
    routes: bool
    """Whether it embeds documents by a route of their own."""
    space: SharedSpace | None
    """What follows the teacher's vectors of documents; None where the student embeds its own documents."""

    @staticmethod
    def of(settings: IndexSettings, student: EncoderSpec) -> Sides:
        """Those of a student, checked with the vectors that are given before any document is read."""
        if settings.spec is None and not Path(settings.index).is_file():
            raise InputError(
                f"--index {settings.index}: no such file; expected flat, ivf, hnsw, or the file of a FAISS index"
            )
        routes, folder = student.check_roles("--student"), student.folder()
        space = SharedSpace.load(folder / DOCUMENTS) if folder else None
        named, file = f"--student {settings.student}", settings.vector_file
        if file is None:
            if space is not None and not routes:
                raise InputError(
                    f"{named}: documents without a teacher: they are given vectors, and it embeds queries alone; expected "
                    "--teacher-vectors with those of --documents"
                )
        elif space is None:
            raise InputError(
                f"--teacher-vectors {file.path}: {named} searches documents that it embeds itself; expected the folder that "
                "`export` writes of a row with its teacher's documents"
            )
        elif (width := file.shape()[1]) != space.teacher_width:
            raise InputError(
                f"--teacher-vectors {file.path}: vectors of {width} dimensions; expected {space.teacher_width}, those of the "
                f"teacher of {named}"
            )
        return Sides(settings, student, routes, space)

    def given(self, documents: DocumentFiles) -> GivenDocuments | None:
        """The vectors of the documents in `--teacher-vectors`; None without these."""
        file, settings = self.settings.vector_file, self.settings
        if file is None or self.space is None:
            return None
        given = given_vectors(file, settings.artifacts)
        places_N = np.concatenate([given.places(batch) for batch in in_batches(documents.texts)])
        missing = np.flatnonzero(places_N < 0)
        if len(missing):
            columns = columns_of_documents(settings.documents, settings.id_column, settings.text_column)
            found = (document for document in read_documents(settings.documents, columns) if document[2])
            row, name, text = next(itertools.islice(found, int(missing[0]), None))
            raise InputError(
                f"{settings.documents}, row {row}: no vector of document {name!r} ({text!r:.80}) in --teacher-vectors "
                f"{file.path} ({len(missing):,} of {len(places_N):,} documents have none); expected one of each"
            )
        return GivenDocuments(file, given, places_N, self.space, self.student.width())

    def sample(
        self, documents: DocumentFiles, given: GivenDocuments | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Some documents and their unit vectors: the given ones, which are as the document route's where there is one."""
        rows = np.random.default_rng(0).choice(len(documents.texts), min(SAMPLE, len(documents.texts)), replace=False)
        taken_ND = None if given is None else unit(given.take(rows))
        if taken_ND is not None and not self.routes:
            return rows, taken_ND
        texts = [documents.texts[int(row)] for row in rows]
        made_ND = unit(np.asarray(self.student.load().encode_document(texts, show_progress_bar=False), np.float32))
        if given is None or taken_ND is None:
            return rows, made_ND
        cosine = float(np.median((made_ND * taken_ND).sum(axis=1)))
        if not cosine >= LEAST_COSINE:
            raise InputError(
                f"--teacher-vectors {given.file.path}: not by the teacher of --student {self.settings.student}: to what its "
                f"document route makes of {len(rows)} documents their vectors have a cosine of {cosine:.2f} (median); "
                f"expected {LEAST_COSINE} or more"
            )
        return rows, taken_ND

    def kept(self, documents: DocumentFiles, given: GivenDocuments | None) -> Any:
        """The FAISS index that `--index` names, if the queries can search it and its rows are the documents."""
        option, width = f"--index {self.settings.index}", self.student.width()
        try:
            held = faiss.read_index(self.settings.index)
        except RuntimeError as error:
            raise InputError(f"{option}: FAISS cannot read it: {str(error).rpartition(': ')[2]:.200}") from None
        why = ""
        if held.d != width:
            why = f"{held.d} dimensions; expected {width}, those of the queries of --student {self.settings.student}"
        elif held.metric_type not in (faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2):
            why = f"FAISS's metric {held.metric_type}; expected inner product, or L2 of vectors of norm 1"
        elif isinstance(held, (faiss.IndexIDMap, faiss.IndexIDMap2)):
            why = "it has ids of its own (IndexIDMap); expected an index whose rows are the documents, in their order"
        elif held.ntotal != len(documents.texts):
            why = f"{held.ntotal:,} vectors; expected {len(documents.texts):,}, as many as --documents with a text"
        if why:
            raise InputError(f"{option}: {why}")
        rows, vectors_ND = self.sample(documents, given)
        found_NR = held.search(vectors_ND, min(DEPTH, held.ntotal))[1]
        own = int((found_NR == rows[:, None]).any(axis=1).sum())
        if 2 * own < len(rows):
            raise InputError(
                f"{option}: it finds {own} of {len(rows)} documents by their own vectors; expected an index of --documents, "
                f"in their order, whose vectors are in the space of --student {self.settings.student}"
            )
        return held
