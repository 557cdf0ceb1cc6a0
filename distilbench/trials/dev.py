"""Dev reports: the objective that selects a student, and the dev metrics beside it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from distilbench.codes import CODE_OF_BITS, code_of, family_of, nested_widths, stored_bytes
from distilbench.data.sampling import calibration_rows
from distilbench.evaluation.encoders import stored_vectors
from distilbench.evaluation.faiss_codes import Code
from distilbench.evaluation.geometry import geometry
from distilbench.evaluation.selection import total
from distilbench.evaluation.sts import Embed, from_rows
from distilbench.methods.method import Method
from distilbench.prepare.prepared import Prepared, load_prepared


@functools.lru_cache(maxsize=256)
def dev_pca_score(prepared_folder: Path, dim: int) -> float:
    """The dev score of the teacher's PCA at `dim`: what a compressed embedding has to beat."""
    prepared = load_prepared(prepared_folder)
    return prepared.selection.score(lambda rows: prepared.pca.project(prepared.vectors.take(rows), dim))


@functools.lru_cache(maxsize=16)
def dev_teacher_variance(prepared_folder: Path) -> float:
    """The variance of the teacher's own unit vectors of the dev sentences."""
    prepared = load_prepared(prepared_folder)
    return geometry(prepared.vectors.take(prepared.selection.rows)).variance


CODED_ON = 2_000
"""Training sentences that a code is calibrated on at a rung."""
CODEBOOKS_ON = 8_000
"""The same of a product code: 31 for each of its 256 centroids."""


@functools.lru_cache(maxsize=64)
def dev_pca_score_in(prepared_folder: Path, size: int) -> float:
    """The dev score of the teacher's PCA in `size` bytes a vector: of float32 and the codes of `bits` the best.

    Each has as many dimensions as fit, at most the teacher's.
    """
    prepared = load_prepared(prepared_folder)
    rows, sample = prepared.selection.rows, calibration_rows(prepared.train, CODED_ON)
    scores = []
    for bits, kind in CODE_OF_BITS.items():
        if d := min(8 * size // bits, prepared.vectors.width):
            stored_Nd = asked_Nd = prepared.pca.project(prepared.vectors.take(rows), d)
            if kind != "float32":
                code = Code.calibrate(kind, prepared.pca.project(prepared.vectors.take(sample), d))
                stored_Nd, asked_Nd = code.compared(asked_Nd)
            scores.append(prepared.selection.score(from_rows(rows, stored_Nd), from_rows(rows, asked_Nd)))
    return max(scores)


def stored_parts(
    parts: list[NDArray[np.float32]], stored: Embed, kind: str, sample: Callable[[int], NDArray[np.float32]]
) -> list[tuple[Embed, NDArray[np.float32]]]:
    """What is stored at the width of each of `parts`, and these as queries that are compared with that.

    `stored` gives the whole vectors of documents. A code of that `kind` is calibrated now, on the vectors of as many training
    sentences as `sample` is asked for, which are embedded once for all widths.
    """
    sample_Nd = None if kind == "float32" else sample(CODEBOOKS_ON if family_of(kind) else CODED_ON)
    codes = [None if sample_Nd is None else Code.calibrate(kind, sample_Nd[:, : part.shape[1]]) for part in parts]
    return [
        (stored_vectors(stored, part.shape[1], code), part if code is None else code.compared(part)[1])
        for code, part in zip(codes, parts, strict=True)
    ]


def dev_report(method: Method, prepared_folder: Path, prepared: Prepared) -> tuple[float, dict[str, float], str]:
    """Objective, dev metrics and why the embeddings are collapsed ("" when they are not), of the method as it is now.

    The objective is the first score on the method's own task, where it has one and no other measure was asked for;
    else the selection score minus that of PCA at the same d: trials of one dimension are compared by it. The two are
    called `dev_score` and `dev_pca_score`; the parts of a mix stand beside them. Of nested widths both are means over
    the widths, beside which `dev_score_W` and `dev_pca_score_W` are those of width W. `dev_quality` is without that
    subtraction, to compare across dimensions. Where the parameters name a code, the vectors are those that are
    stored, and PCA has the same bytes. Where documents are the teacher's, the vectors are those of queries.
    """
    selection, params = prepared.selection, method.params.model_dump()
    widths, across = nested_widths(params), selection.selection.by_teacher
    rows = selection.asked_rows if across else selection.rows
    vectors = method.embed(rows)
    embed: Embed = method.embed
    if across:
        space = method.shared_space()
        vectors, embed = space.queries(vectors), lambda rows: space.documents(prepared.vectors.take(rows))
    if not np.isfinite(vectors).all():
        return float("nan"), {}, "an embedding is not finite"
    shape = geometry(vectors)
    # One width is taken whole: before its projection is there (IBKD's first stage), a student may be wider, and the space
    # that it shares with its teacher has a width of its own. PCA is that of output_dim, by which trials compete.
    parts = [vectors] if len(widths) == 1 else [np.ascontiguousarray(vectors[:, :w]) for w in widths]
    documents = embed if across else from_rows(rows, vectors)
    compared_W = stored_parts(
        parts, documents, code_of(params), lambda count: embed(calibration_rows(prepared.train, count))
    )
    asked_W = [(stored, from_rows(rows, asked_Nd)) for stored, asked_Nd in compared_W]
    measured_W = [selection.measure(stored, asked, across=across) for stored, asked in asked_W]
    dev_W = [total(measured) for measured in measured_W]
    sizes = [stored_bytes(params, w) for w in widths]
    pca_W = [
        dev_pca_score(prepared_folder, w) if size is None else dev_pca_score_in(prepared_folder, size)
        for w, size in zip(widths, sizes, strict=True)
    ]
    dev, pca = float(np.mean(dev_W)), float(np.mean(pca_W))
    metrics = {"dev_score": dev, "dev_pca_score": pca, **shape._asdict()}
    by_part = [selection.by_part(measured) for measured in measured_W]
    if len(by_part[0]) > 1:
        metrics |= {f"dev_{part}": float(np.mean([values[part] for values in by_part])) for part in by_part[0]}
    if len(widths) > 1:
        for w, dev_w, pca_w in zip(widths, dev_W, pca_W, strict=True):
            metrics |= {f"dev_score_{w}": dev_w, f"dev_pca_score_{w}": pca_w}
    task = method.task_scores("dev")
    metrics |= {f"dev_{score.set}_{score.metric}": score.value for score in task}
    by_task = bool(task) and not selection.selection.asked
    metrics["dev_quality"] = task[0].value if by_task else dev
    teacher = dev_teacher_variance(prepared_folder)
    metrics["relative_variance"] = shape.variance / teacher if teacher > 0 else 1.0
    reason = shape.collapsed(vectors.shape[1], teacher)
    return task[0].value if by_task else dev - pca, metrics, reason
