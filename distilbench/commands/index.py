"""`distilbench index`: documents coded by a student, as a FAISS index that faiss and sentence-transformers alone search.

    distilbench index --student best --documents corpus.jsonl.gz --out index

The codes are made on Ray Data into the store: an interrupted command goes on at the missing ones, and another `--index` of
the same documents encodes nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np
from rich.console import Console

from distilbench.cluster.provenance import commit, provenance
from distilbench.codes import factory_of
from distilbench.commands.index_vectors import Sides
from distilbench.commands.output_folder import OutputFolder
from distilbench.commands.run_folder import on_cluster
from distilbench.data.documents import IDS, DocumentFiles, documents_artifact
from distilbench.encoders.encoder import EncoderSpec, is_packed
from distilbench.errors import InputError, naming
from distilbench.evaluation.faiss_codes import saved_code, saved_kinds
from distilbench.evaluation.indexes import LINKS, MORE, DocumentIndex, check_code, document_index
from distilbench.prepare.document_codes import ChosenCode, GivenDocuments, code_documents, code_given, find_codes
from distilbench.reporting.loading import literal, unpack_code
from distilbench.settings.commands import IndexSettings
from distilbench.storage.files import file_sha256

MANIFEST = "distilbench-index.json"
"""The file that makes a folder an index of ours: what it is made of, and the SHA-256 of every other file."""
INDEX = "index.faiss"
README = "README.md"


def index(settings: IndexSettings, console: Console) -> dict[str, Any]:
    """Code the documents, and write their index with its ids, manifest and README; the manifest.

    An index that exists is left where it is: what is written then says how the student's queries search it.
    """
    student = EncoderSpec(settings.student).absolute()
    output = OutputFolder("--out", settings.out, "index", MANIFEST, student.folder())
    output.check()
    settings.check_folders()
    sides = Sides.of(settings, student)
    code = None if settings.spec is None else chosen_code(student, settings.student, settings.code)
    if settings.remote:
        settings.remote.check()
    documents = documents_artifact(settings.documents, settings.id_column, settings.text_column, settings.artifacts)
    given, source = sides.given(documents), str(student.folder() or student.name)
    facts: dict[str, Any] = {
        "student": {"name": source, "source": student.identity()["source"]},
        "dimensions": student.width(),
        "documents": {
            "file": settings.documents.name,
            "sha256": file_sha256(settings.documents),
            "count": len(documents.texts),
            "without_text": documents.empty,
            "ids_bytes": documents.ids.stat().st_size,
            **({"vectors": given.file.identity()} if given else {}),
        },
        "commit": commit(),
        "versions": provenance().versions,
    }
    if code is None:
        held, path, again = sides.kept(documents, given), Path(settings.index).absolute(), False
        facts["index"] = {"kind": type(held).__name__, "file": str(path), "sha256": file_sha256(path)}
        facts["index"] |= _size(path.stat().st_size, held.ntotal)
    else:
        built = _built(settings, sides, code, documents, given, console)
        held, path, again = built.held, None, built.rescored
        facts |= {"code": code.kind, "code_bytes": built.code.bytes_per_vector if built.code else 4 * code.width}
        facts["index"] = {
            "kind": built.spec.kind,
            "nlist": built.spec.lists[0] if built.spec.lists else None,
            "nprobe": built.spec.lists[1] if built.spec.lists else None,
            "links": LINKS if built.spec.kind == "hnsw" else None,
        }
    packed = (saved := student.folder()) is not None and is_packed(saved)
    search = search_code(source, str(path or INDEX), again=again, packed=packed)
    try:
        with output.written() as folder:
            (folder / IDS).write_bytes(documents.ids.read_bytes())
            if path is None:
                faiss.write_index(held, str(folder / INDEX))
                facts["index"] |= _size((folder / INDEX).stat().st_size, held.ntotal)
            (folder / README).write_text(_readme(facts, search), encoding="utf-8")
            manifest = output.write_manifest(folder, **facts)
    except RuntimeError as error:  # FAISS's own, which says what it could not write
        raise InputError(f"--out {settings.out}: FAISS could not write the index: {error!s:.300}") from None
    made, place = manifest["index"], f" of {path}" if path else ""
    of_code = f", of which {manifest['code_bytes']:,} are its code" if code else ""
    lines = [
        f"{held.ntotal:,} documents, {f'{code.kind}, ' if code else ''}{made['kind']}{place}: {settings.out}",
        f"{made['bytes']:,} bytes, {made['bytes_per_vector']:,} per vector{of_code}",
        "\nTo search it, in that folder:\n",
        *(f"    {line}".rstrip() for line in search.splitlines()),
    ]
    console.print("\n".join(lines), markup=False, highlight=False)
    return manifest


def _built(
    settings: IndexSettings,
    sides: Sides,
    code: ChosenCode,
    documents: DocumentFiles,
    given: GivenDocuments | None,
    console: Console,
) -> DocumentIndex:
    """The index of the documents, which are encoded where they are not yet, and whose vectors are not given."""
    student, store, faiss_code = sides.student, settings.artifacts, code.load()
    assert settings.spec is not None
    with naming("--index"):
        spec = settings.spec.resolved(len(documents.texts))
        check_code(spec, faiss_code)
    if given is not None:
        sides.sample(documents, given)
        stored = code_given(documents, given, student, code, store)
    elif (found := find_codes(documents, student, code, store)) is not None:
        stored = found
    else:
        with on_cluster(settings, console):
            stored = code_documents(documents, student, code, store, size=settings.pool)
    left_out = f"; {documents.empty:,} without a text are left out" if documents.empty else ""
    console.print(
        f"Index: {settings.index} of {len(documents.texts):,} documents in {code.kind}{left_out}", markup=False
    )
    chosen = np.random.default_rng(0).choice(stored.rows, spec.training_rows(stored.rows), replace=False)
    sample_NB = stored.take(np.sort(chosen)).astype(np.uint8)
    built = document_index(spec, code.width, stored.rows, sample_NB, faiss_code)
    for block_NB in stored.shards():
        built.add_codes(np.asarray(block_NB, dtype=np.uint8))
    return built


def _size(size: int, vectors: int) -> dict[str, Any]:
    return {"bytes": size, "bytes_per_vector": round(size / vectors, 2)}


def chosen_code(student: EncoderSpec, named: str, kind: str | None) -> ChosenCode:
    """The code that is saved with the student: the one called `kind`, else its only one, else float32."""
    folder, width = student.folder(), student.width()
    saved = saved_kinds(folder, width)
    told = f"it has {', '.join(saved) or 'none'} of {width} dimensions, and float32"
    if kind is None and len(saved) > 1:
        raise InputError(f"--student {named}: {len(saved)} codes are saved with it; expected --code with one: {told}")
    kind = kind or (saved[0] if saved else "float32")
    if kind == "float32":
        return ChosenCode(kind, None, width)
    factory_of(kind, width)  # refuses a name that no code has
    place = saved_code(folder, kind, width)
    if place is None:
        raise InputError(f"--code {kind}: not saved with --student {named}; {told}")
    return ChosenCode(kind, place.absolute(), width)


def search_code(student: str, index: str, *, again: bool, packed: bool) -> str:
    """Python that loads and searches an index in its folder.

    `again`: what FAISS finds is ranked again by cosine. `packed`: the student's table has 4 bits.
    """
    lines = [
        *(unpack_code(student).splitlines() if packed else []),
        "import faiss",
        *(["import numpy as np"] if again else []),
        "from sentence_transformers import SentenceTransformer",
        "",
        f"model = SentenceTransformer({literal(student)})",
        f"index = faiss.read_index({literal(index)})",
        f'ids = open("{IDS}", encoding="utf-8", newline="\\n").read().split("\\n")',
        'query = model.encode_query(["How do I reset my password?"], normalize_embeddings=True)',
    ]
    if again:
        lines += [
            f"_, found, vectors = index.search_and_reconstruct(query, {10 * MORE})",
            "cosine = vectors[0] @ query[0] / np.linalg.norm(vectors[0], axis=1).clip(1e-12)",
            "best = [found[0][i] for i in np.argsort(-cosine, kind='stable') if found[0][i] >= 0]",
        ]
    else:
        lines += ["_, found = index.search(query, 10)", "best = [i for i in found[0] if i >= 0]"]
    return "\n".join([*lines, "print([ids[i] for i in best[:10]])"])


def _readme(facts: dict[str, Any], search: str) -> str:
    index, documents, vectors = facts["index"], facts["documents"], ""
    code = f"{facts['code']}, {facts['code_bytes']:,} bytes" if "code" in facts else "that of the index"
    where = f"; it is kept where it was, as `{index['file']}`" if "file" in index else ""
    if "vectors" in documents:
        vectors = f"\n* Vectors: those of `{next(iter(documents['vectors']))}`, in the space of the queries."
    return f"""# {documents["count"]:,} documents in a FAISS index

* Code: {code} for {facts["dimensions"]} dimensions.
* Index: {index["kind"]}, {index["bytes"]:,} bytes, {index["bytes_per_vector"]:,} per vector{where}.{vectors}
* Ids: `{IDS}` has a line for each document, in the order of the index.
* `{MANIFEST}` says what it was made from.

To search it, in this folder, with faiss and sentence-transformers:

```python
{search}
```
"""
