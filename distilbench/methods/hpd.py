"""HPD: homomorphic projective distillation (ACL Findings 2022): a small encoder fine-tuned to the teacher's PCA.

Axes: B batch, D teacher width, d output dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.dense import Dense
from torch import Tensor, nn

from distilbench.encoder import TOKENS_PER_BATCH, padded, token_budget_batches
from distilbench.methods import method
from distilbench.prepare.prepared import Prepared
from distilbench.student import load_student

ACTIVATIONS: dict[str, type[nn.Module]] = {"identity": nn.Identity, "tanh": nn.Tanh}
REGRESSION_SENTENCES = 2000


class Params(method.Params):
    """Hyper-parameters; the defaults are the paper's."""

    epochs: float = Field(default=3, gt=0)
    """Passes over the training sentences; a fraction trains on part of them."""
    activation: Literal["identity", "tanh"] = "identity"
    """After the projection: none (the paper), or tanh (the released code)."""
    projection_start: Literal["random", "regression"] = "random"
    """W_s, b_s at random (the paper), or least squares from the untrained student to the targets on 2,000 sentences."""


class Trainable(method.Method):
    """Student encoder, mean pooling, linear layer to d; targets W_t^T (e_t - mean)."""

    params_type = Params
    title: ClassVar[str] = "HPD"
    trains_encoder: ClassVar[bool] = True
    params: Params

    def __init__(self, params: Params, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        if prepared.tokens is None:
            raise ValueError("HPD needs the student's token arrays in `prepared`")
        self.tokens = prepared.tokens
        self.student = load_student(prepared.student, prepared.teacher, device)
        self.pad = self.student.tokenizer.pad_token_id or 0
        width = self.student[0].get_embedding_dimension()
        self.targets_Nd = prepared.pca.project(prepared.vectors.take(prepared.train), params.output_dim)
        dense = Dense(width, params.output_dim, activation_function=ACTIVATIONS[params.activation]())
        if params.projection_start == "regression":
            self._regress(dense)
        self.student.append(dense)
        self.to(device)

    def _regress(self, dense: Dense) -> None:
        chosen = np.linspace(0, self.examples - 1, min(REGRESSION_SENTENCES, self.examples)).astype(np.int64)
        x_ND = self._encode(self.prepared.train[chosen])
        with_bias = np.hstack([x_ND, np.ones((len(x_ND), 1), dtype=np.float32)])
        # A little ridge, since the student's D features can be nearly dependent.
        normal = with_bias.T @ with_bias + 1e-3 * np.eye(with_bias.shape[1], dtype=np.float32)
        solution = np.linalg.solve(normal, with_bias.T @ self.targets_Nd[chosen])
        with torch.no_grad():
            dense.linear.weight.copy_(torch.from_numpy(np.ascontiguousarray(solution[:-1].T)))
            dense.linear.bias.copy_(torch.from_numpy(solution[-1]))

    @classmethod
    def check_corpus(cls, possible: Callable[[str], list[Any]], sentences: int, pairs: int) -> None:
        """Enough sentences for one batch."""
        method.check_enough("batch_size", max(possible("batch_size")), sentences, "training sentences")

    @property
    def examples(self) -> int:
        """Distinct training sentences."""
        return len(self.prepared.train)

    def steps(self, budget: int) -> int:
        """Whole batches in `epochs` passes, at most `budget`."""
        return min(budget, max(1, round(self.params.epochs * (self.examples // self.params.batch_size))))

    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each training sentence."""
        return self.tokens.lengths[self.prepared.train]

    def _forward(self, rows: NDArray[np.int64]) -> Tensor:
        ids = [self.tokens[int(row)] for row in rows]
        return self.student(padded(ids, self.pad, self.device))["sentence_embedding"]

    def loss(self, index_B: NDArray[np.int64]) -> Tensor:
        """Mean over the batch of ||h_s - h_t||^2 (HPD, equation 3)."""
        h_s = self._forward(self.prepared.train[index_B])
        h_t = torch.from_numpy(self.targets_Nd[index_B]).to(self.device)
        return (h_s.float() - h_t).square().sum(dim=-1).mean()

    def _encode(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        device = torch.device(self.device).type
        vectors: list[NDArray[np.float32]] = []
        batches = token_budget_batches(self.tokens.lengths[rows], TOKENS_PER_BATCH[device])
        with torch.inference_mode(), torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            vectors += [self._forward(rows[batch]).float().cpu().numpy() for batch in batches]
        out = np.empty((len(rows), vectors[0].shape[1]), dtype=np.float32)
        out[np.concatenate(batches)] = np.concatenate(vectors)
        return out

    def embed(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Student vectors of corpus rows, with dropout off."""
        training = self.training
        self.eval()
        try:
            return self._encode(rows)
        finally:
            self.train(training)

    def export(self, folder: Path) -> None:
        """Encoder, pooling, dense layer."""
        model: SentenceTransformer = self.student.cpu()
        model.save(str(folder), create_model_card=False)
