"""What codes are made of is checked first: finite vectors of one width, codes of the right shape."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from distilbench.evaluation.retrieval import unit


def unit_rows(vectors_Nd: NDArray[Any], width: int | None = None) -> NDArray[np.float32]:
    """Checked rows of norm 1 (zero rows stay zero).

    Raises:
        ValueError: not a matrix of finite floats, or not of this width.
    """
    shape, dtype = np.shape(vectors_Nd), np.asarray(vectors_Nd).dtype
    if len(shape) != 2 or not np.issubdtype(dtype, np.floating):
        raise ValueError(f"vectors of shape {shape} and type {dtype}, expected floats in rows and columns")
    if shape[1] != width and width is not None:
        raise ValueError(f"vectors of {shape[1]} dimensions, expected {width}, as in calibration")
    float_Nd = np.asarray(vectors_Nd, dtype=np.float32)
    bad = np.argwhere(~np.isfinite(float_Nd))
    if len(bad):
        i, j = bad[0]
        raise ValueError(f"vector {i}, dimension {j} is {vectors_Nd[i][j]}, expected a finite float32")
    return unit(float_Nd)


def calibration_rows(vectors_Nd: NDArray[Any], least: int = 2) -> NDArray[np.float32]:
    """Checked unit rows to calibrate on.

    Raises:
        ValueError: not a matrix of finite floats with at least `least` rows.
    """
    unit_Nd = unit_rows(vectors_Nd)
    if len(unit_Nd) < least or not unit_Nd.shape[1]:
        raise ValueError(f"calibration vectors of shape {unit_Nd.shape}, expected at least {least} rows and 1 column")
    return unit_Nd


def check_codes(codes: NDArray[Any], dtype: DTypeLike, columns: int) -> None:
    """Check the shape and the type of codes.

    Raises:
        ValueError: they are others.
    """
    if codes.dtype != dtype or codes.ndim != 2 or codes.shape[1] != columns:
        found = f"codes of shape {codes.shape} and type {codes.dtype}"
        raise ValueError(f"{found}, expected {columns} columns of {np.dtype(dtype)}")


def check_tensors(tensors: dict[str, NDArray[np.float32]]) -> None:
    """Check that each tensor has a finite number for each dimension.

    Raises:
        ValueError: one has not.
    """
    first = next(iter(tensors.values()))
    for name, values_d in tensors.items():
        if values_d.dtype != np.float32 or values_d.ndim != 1 or values_d.shape != first.shape or not len(values_d):
            found = f"{name} has shape {values_d.shape} and type {values_d.dtype}"
            raise ValueError(f"{found}, expected float32 and a number for each dimension")
        bad = np.flatnonzero(~np.isfinite(values_d))
        if len(bad):
            raise ValueError(f"dimension {bad[0]}: {name} is {values_d[bad[0]]}, expected a finite number")
