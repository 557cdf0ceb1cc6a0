"""What a database needs for the vectors of a row: settings as text, after the vendors' documentation.

It was read for Qdrant 1.18, Milvus 2.6.8, Elasticsearch 9.1, OpenSearch 3 and pgvector 0.8. Only FAISS reads the file of a
code. The others store the bytes of signs, or are given the vectors and make a code of as many bits themselves.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

CODES, VECTORS = "codes", "vectors"
NOTHING = "nothing"
_INDEXED = {"vector": 2_000, "halfvec": 4_000, "bit": 64_000}
"""Dimensions of pgvector's graph at most."""


class Setting(NamedTuple):
    """One database's settings for a row: `sent` are `vectors` or `codes`, documents and queries alike."""

    database: str
    sent: str
    text: str
    """JSON, SQL, Python or the name of a file, on one line."""
    fits: str
    """What the server fits to what it is given."""


def database_settings(code: str, width: int, size: int) -> list[Setting]:
    """List the databases that store vectors of `width` dimensions in this code, of `size` bytes, or in their own like it."""
    signs = 8 * size if code == "binary" else 0
    found = [_faiss(code, width), _qdrant(code, width), _milvus(code, width, signs)]
    found += [_elasticsearch(code, width, signs), _opensearch(code, width, signs), _pgvector(code, width, signs)]
    return [setting for setting in found if setting]


def _faiss(code: str, width: int) -> Setting:
    text = f"faiss.IndexFlatIP({width})" if code == "float32" else f"quantisation-{code}.faiss"
    return Setting("FAISS", VECTORS, text, NOTHING)


def _qdrant(code: str, width: int) -> Setting | None:
    quantisation: dict[str, tuple[dict[str, Any], str]] = {
        "float32": ({}, NOTHING),
        "int8": ({"scalar": {"type": "int8"}}, "bounds"),
        "int4": ({"turbo": {"bits": "bits4"}}, "a rotation"),
        "int2": ({"turbo": {"bits": "bits2"}}, "a rotation"),
        "binary": ({"binary": {}}, "its own signs, about 0 instead of the mean"),
    }
    if code not in quantisation:
        return None
    config, fits = quantisation[code]
    vectors = {"vectors": {"size": width, "distance": "Cosine"}}
    return Setting(
        "Qdrant", VECTORS, json.dumps({**vectors, **({"quantization_config": config} if config else {})}), fits
    )


def _milvus(code: str, width: int, signs: int) -> Setting | None:
    if signs:
        index: dict[str, Any] = {"index_type": "BIN_FLAT", "metric_type": "HAMMING"}
        return Setting("Milvus", CODES, json.dumps({"data_type": "BINARY_VECTOR", "dim": signs, **index}), NOTHING)
    scalar = {"int8": "SQ8", "int4": "SQ4U"}.get(code)
    if scalar is None and code != "float32":
        return None
    index = {"index_type": "HNSW_SQ" if scalar else "HNSW", "metric_type": "COSINE"}
    index |= {"params": {"sq_type": scalar}} if scalar else {}
    text = json.dumps({"data_type": "FLOAT_VECTOR", "dim": width, **index})
    return Setting("Milvus", VECTORS, text, "ranges" if scalar else NOTHING)


def _elasticsearch(code: str, width: int, signs: int) -> Setting | None:
    field: dict[str, Any] = {"type": "dense_vector", "dims": signs or width}
    if signs:
        return Setting("Elasticsearch", CODES, json.dumps({**field, "element_type": "bit"}), NOTHING)
    graph = {"float32": "hnsw", "int8": "int8_hnsw", "int4": "int4_hnsw"}.get(code)
    if graph is None or (code == "int4" and width % 2):
        return None
    field |= {"similarity": "cosine", "index_options": {"type": graph}}
    return Setting("Elasticsearch", VECTORS, json.dumps(field), NOTHING if code == "float32" else "quantiles")


def _opensearch(code: str, width: int, signs: int) -> Setting | None:
    field: dict[str, Any] = {"type": "knn_vector", "dimension": signs or width}
    method: dict[str, Any] = {"name": "hnsw", "engine": "faiss"}
    if signs:
        field |= {"data_type": "binary", "space_type": "hamming", "method": method}
        return Setting("OpenSearch", CODES, json.dumps(field), NOTHING)
    fits = NOTHING
    if code == "int8":
        method, fits = (
            {"name": "hnsw", "engine": "lucene", "parameters": {"encoder": {"name": "sq"}}},
            "quantiles; 7 bits",
        )
    elif code in ("int4", "int2"):
        encoder = {"name": "binary", "parameters": {"bits": int(code[3:])}}
        method, fits = {**method, "parameters": {"encoder": encoder}}, "thresholds"
    elif code != "float32":
        return None
    return Setting("OpenSearch", VECTORS, json.dumps({**field, "space_type": "cosinesimil", "method": method}), fits)


def _pgvector(code: str, width: int, signs: int) -> Setting | None:
    kind = "bit" if signs else "vector" if code == "float32" and width <= _INDEXED["vector"] else "halfvec"
    if code not in ("float32", "binary") or (signs or width) > _INDEXED[kind]:
        return None
    operators = f"{kind}_{'hamming' if signs else 'cosine'}_ops"
    table = f"CREATE TABLE items (id bigserial PRIMARY KEY, embedding {kind}({signs or width}));"
    index = f"CREATE INDEX ON items USING hnsw (embedding {operators});"
    return Setting("pgvector", CODES if signs else VECTORS, f"{table} {index}", NOTHING)
