"""Heads on a frozen teacher, as sentence-transformers modules, so that an export is the model itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.dense import Dense
from sentence_transformers.base.modules.normalize import Normalize
from torch import nn

from distilbench.encoder import EncoderSpec
from distilbench.prepare.pca import Pca


def linear_head(weight_Dd: NDArray[np.float32], bias_d: NDArray[np.float32]) -> Dense:
    """z = W^T x + b as a Dense module."""
    return Dense(
        *weight_Dd.shape,
        activation_function=nn.Identity(),
        init_weight=torch.from_numpy(np.ascontiguousarray(weight_Dd.T)),
        init_bias=torch.from_numpy(np.ascontiguousarray(bias_d)),
    )


def pca_head(pca: Pca, d: int) -> Dense:
    """W_t^T (x - mean) with the first d principal axes."""
    axes_Dd = pca.axes_DD[:, :d]
    return linear_head(axes_Dd, -(pca.mean_D @ axes_Dd))


def whitening_head(vectors_ND: NDArray[np.float32], d: int) -> Dense:
    """(x - mean) times the first d columns of U L^{-1/2}, from the covariance U L U^T of a sample (Su et al. 2021).

    Directions without variance are left at 0 instead of blown up.
    """
    sample = vectors_ND.astype(np.float64)
    mean = sample.mean(axis=0)
    values, vectors = np.linalg.eigh((sample - mean).T @ (sample - mean) / len(sample))
    values, vectors = values[::-1][:d], vectors[:, ::-1][:, :d]
    there = values > 1e-9 * values[0]
    kernel = vectors * np.where(there, 1 / np.sqrt(np.where(there, values, 1)), 0)
    return linear_head(kernel.astype(np.float32), (-mean @ kernel).astype(np.float32))


def elu_layer(width: int, residual: bool) -> Dense:
    """ELU(W x + b), D to D. With `residual` the input is added and W, b start at 0, so the layer starts as the identity."""
    layer = Dense(width, width, activation_function=nn.ELU(), use_residual=residual)
    if residual:
        nn.init.zeros_(layer.linear.weight)
        nn.init.zeros_(layer.linear.bias)
    return layer


def apply(layers: nn.Module, x_BD: torch.Tensor) -> torch.Tensor:
    """Run sentence-transformers modules on embeddings."""
    return layers({"sentence_embedding": x_BD})["sentence_embedding"]


def export_with_head(teacher: EncoderSpec, head: Sequence[nn.Module], folder: Path, *, unit_norm: bool) -> None:
    """Save teacher + head (+ unit norm) as one sentence-transformers folder."""
    model = teacher.load()
    modules = [*model, *(layer.cpu() for layer in head), *([Normalize()] if unit_norm else [])]
    student = SentenceTransformer(modules=modules, prompts=model.prompts, device="cpu")
    student.max_seq_length = model.max_seq_length
    if teacher.prompt:
        student.prompts = {**student.prompts, "document": teacher.prompt}
        student.default_prompt_name = "document"
    student.save(str(folder), create_model_card=False)
