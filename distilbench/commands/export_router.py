"""A student that embeds queries and its teacher that embeds documents, as one folder: sentence-transformers' `Router`.

`SentenceTransformer(folder)` reads a query by the student (`encode_query`) and a document by the teacher (`encode_document`).
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from distilbench.encoders.encoder import TABLE, EncoderSpec, readable, transformer_folder
from distilbench.encoders.prompts import Prompts
from distilbench.encoders.shared_space import DOCUMENTS, SharedSpace
from distilbench.methods.parts.heads import linear_head

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def write_router(student: Path, space: SharedSpace, teacher: EncoderSpec, width: int, folder: Path) -> None:
    """Write the query route (the student's modules, and what follows them in the space) and the document route (the
    teacher's).

    The vectors are the first `width` numbers of the space's. What follows the teacher's vectors is kept in `documents/` too,
    for vectors that it has made already. Where these are all there is of the teacher, the folder is the query encoder alone.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    queries = EncoderSpec(str(student)).load()
    query_modules, place = [*queries, *space.after_student], ""
    before = queries.prompts.get("query") or ""
    modules, prompts, default = query_modules, {"query": before, "document": before}, "query"
    if teacher.vectors is None:
        documents = teacher.load()
        document_modules = [*documents, *_cut(documents), *space.after_teacher]
        modules = [Router.for_query_document(query_modules, document_modules)]
        prompts["document"], default = Prompts.of(teacher).document, "document"
        place = query_folder(queries[0])
    model = SentenceTransformer(
        modules=modules,
        prompts=prompts,
        default_prompt_name=default if prompts[default] else None,  # of `encode`, which takes the route of this name
        truncate_dim=width if width < space.width else None,
        device="cpu",
    )
    model.save(str(folder), create_model_card=False)
    if isinstance(queries[0], StaticEmbedding):  # a table in int8 was loaded as float32
        with readable(student) as source:
            shutil.copyfile(transformer_folder(source) / TABLE, folder / place / TABLE)
    replace(space, after_student=()).save(folder / DOCUMENTS)


def query_folder(first: nn.Module) -> str:
    """Where sentence-transformers saves the first module of the query route."""
    return f"query_0_{type(first).__name__}"


def _cut(model: SentenceTransformer) -> list[nn.Module]:
    """What gives the first numbers of a model's vectors, where its configuration says so: a route has none of its own."""
    width = model.truncate_dim
    if width is None:
        return []
    with model.truncate_embeddings(None):
        whole = int(model.get_embedding_dimension() or 0)
    return [linear_head(np.eye(whole, width, dtype=np.float32), np.zeros(width, np.float32)).dense()]
