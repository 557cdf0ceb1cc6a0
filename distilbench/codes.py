"""What vectors are stored as: the names of the codes, and a student's own by its hyper-parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from distilbench.errors import InputError

Bits = Literal[32, 8, 4, 3, 2, 1]
CODE_OF_BITS = {32: "float32", 8: "int8", 4: "int4", 3: "int3", 2: "int2", 1: "binary"}
"""The name of the code of so many bits a dimension."""


class Family(NamedTuple):
    """Codes of any number of bytes, which with its bytes is the name of a code, such as opq16."""

    text: str
    factory: Callable[[int, int], str]
    """FAISS's description, for `faiss.index_factory`, of the code of so many bytes of vectors of so many dimensions. np:
    without polysemous training, which takes 20 times as long as all the rest."""


def _opq(size: int, width: int) -> str:
    reduced = size * max((part for part in (8, 4, 2, 1) if part * size <= width), default=1)
    return f"OPQ{size}_{reduced},PQ{size}np"


def _rq(size: int, width: int) -> str:
    return f"PCA{min(8 * size, width)},RQ{size}x8"


def _bits(maps: str, bits: int, quantiser: str, factors: int = 0) -> Callable[[int, int], str]:
    """After the linear `maps`, so many bits of each dimension, and `factors` bytes of each vector."""
    return lambda size, _: f"{maps}{8 * (size - factors) // bits},{quantiser}"


def _rabitq(bits: int) -> Callable[[int, int], str]:
    factors = 8 if bits == 1 else 20
    return lambda size, _: f"PCAR{8 * ((size - factors) // bits)},L2norm,RaBitQ{bits}"


SMALLEST = 16
"""The least width that halving gives."""
FIXED = {"int8": "SQ8", "int4": "SQ4", "int3": "SQtqmse3", "int2": "SQtqmse2", "binary": "LSHt"}
"""Codes of so many bits a dimension, and FAISS's description."""
FAMILIES = {
    **{
        f"tq{bits}-": Family(
            f"{bits}-bit levels of TurboQuant after PCA (Zandieh et al. 2025)", _bits("PCA", bits, f"SQtqmse{bits}")
        )
        for bits in (1, 2, 3, 4)
    },
    **{
        f"rabitq{bits}-": Family(
            f"RaBitQ of {bits} bits a dimension and two to five factors, after PCA and a random rotation (Gao & Long 2024)",
            _rabitq(bits),
        )
        for bits in (1, 2, 4)
    },
    **{
        f"eden{bits}-": Family(
            f"EDEN of {bits} bits a dimension and two factors, after PCA and a random rotation (Vargaftik et al. 2022)",
            _bits("PCAR", bits, f"L2norm,EDEN{bits}", 8),
        )
        for bits in (1, 2, 4)
    },
    "pcar": Family("4 bits a dimension after PCA and a random rotation", _bits("PCAR", 4, "SQ4")),
    "lsh": Family("signs after a random rotation, each with its own threshold", _bits("RR", 1, "LSHt")),
    "itq": Family("signs after PCA and a learned rotation (Gong & Lazebnik 2011)", _bits("ITQ", 1, "LSHt")),
    "pq": Family("product code: a byte for each part of the vector (Jégou et al. 2011)", lambda size, _: f"PQ{size}np"),
    "opq": Family("product code after a learned rotation to at most 8 dimensions a byte (Ge et al. 2013)", _opq),
    "rq": Family("residual code: each byte is a centroid of what the bytes before it leave (Chen et al. 2010)", _rq),
}
"""By the letters before the bytes; those that take longest to fit come last."""
USUAL_FAMILIES = ("tq2-", "tq1-", "itq", "opq")
"""What a sweep makes its students' peers: scalar levels of two bits and of one, signs, and codebooks."""
CODE_PATTERN = rf"({'|'.join(FIXED)}|({'|'.join(FAMILIES)})[1-9]\d{{0,3}})(\+(float32|int8)x[1-9]\d?)?"
"""The names of all codes. With +int8x4 what a search of the code finds is ranked again by vectors on disk, here int8, four
candidates for each of ten results."""
CODES_TOLD = (
    f"{', '.join(FIXED)}, or one of FAISS's with its bytes, such as {', '.join(f'{f}64' for f in FAMILIES)}, "
    "or one of these with +int8x4 or the like"
)
FAISS_PEER = "faiss"
"""The method of the teacher's vectors in FAISS's own codes: what a team has without any training of a student."""
_OF_FAISS = re.compile(rf"({'|'.join(FAMILIES)})([1-9]\d{{0,3}})")


def family_of(kind: str) -> tuple[str, int] | None:
    """The family and the bytes of a code of FAISS; None where `kind` names none."""
    named = _OF_FAISS.fullmatch(kind)
    return (named[1], int(named[2])) if named else None


def in_memory(kind: str) -> str:
    """The code that is searched: of tq1-32+int8x4 it is tq1-32, of any other code itself."""
    return kind.partition("+")[0]


def factory_of(kind: str, width: int) -> str:
    """FAISS's description of the code of vectors of `width` dimensions, without that of vectors on disk."""
    named = family_of(in_memory(kind))
    if not re.fullmatch(CODE_PATTERN, kind):
        raise InputError(f"code {kind!r}: expected {CODES_TOLD}")
    return FAMILIES[named[0]].factory(named[1], width) if named else FIXED[in_memory(kind)]


def code_of(params: Mapping[str, Any]) -> str:
    """The name of the code that a student with these hyper-parameters is trained for; "float32" where it is for none."""
    if codebooks := params.get("codebooks"):
        return f"opq{codebooks}"
    return CODE_OF_BITS[params.get("bits") or 32]


def stored_bytes(params: Mapping[str, Any], width: int | None = None) -> int | None:
    """Bytes of a stored vector of `width` dimensions (None: output_dim); None where the parameters name no code."""
    if codebooks := params.get("codebooks"):
        return int(codebooks)
    bits = params.get("bits")
    return None if bits is None else -(-(width or int(params["output_dim"])) * int(bits) // 8)


def vector_bytes(params: Mapping[str, Any], width: int) -> int:
    """Bytes of a stored vector of `width` dimensions: in the code that the parameters name, else float32."""
    size = stored_bytes(params, width)
    return 4 * width if size is None else size


class CompetitionKey(NamedTuple):
    """What students compete within: where they start ("" unless a search varies it), and the bytes of a stored vector.

    Keys sort by student, then by rising bytes.
    """

    student: str
    bytes: int

    def __str__(self) -> str:
        return f"{self.student}, {self.bytes}" if self.student else str(self.bytes)


def nested_widths(params: Mapping[str, Any]) -> tuple[int, ...]:
    """The widths at which a training with `params` is judged, largest first: output_dim alone unless it is nested."""
    d = int(params["output_dim"])
    if not params.get("nested"):
        return (d,)
    if widths := params.get("widths"):
        return tuple(sorted({d, *map(int, widths)}, reverse=True))
    halves = [d]
    while halves[-1] // 2 >= SMALLEST:
        halves.append(halves[-1] // 2)
    return tuple(halves)


def competition_key(params: Mapping[str, Any], width: int | None = None) -> CompetitionKey:
    """Return what a student with these hyper-parameters competes within, at `width` dimensions (None: output_dim)."""
    return CompetitionKey(str(params.get("student") or ""), vector_bytes(params, width or int(params["output_dim"])))
