"""MSE: the student's own embedding drawn to the teacher's, without compressing either (a baseline of the IBKD paper).

Axes: B batch, D student width, Dt teacher width.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from distilbench.encoders.shared_space import SharedSpace
from distilbench.encoders.student import is_static
from distilbench.errors import InputError
from distilbench.methods.method import Possible
from distilbench.methods.parts.heads import as_dense
from distilbench.methods.parts.losses import SimilarityTermParams, target_loss
from distilbench.methods.parts.starts import regression, spread
from distilbench.methods.parts.unlabelled import Unlabelled, UnlabelledParams
from distilbench.prepare.prepared import Prepared

START_SENTENCES = 4000
"""Training sentences that a map or a scale is fitted on at most."""


class MSEParams(UnlabelledParams, SimilarityTermParams):
    """Hyper-parameters of distillation from unlabelled sentences."""

    norm: Literal["raw", "unit", "scale"] = "unit"
    """The student's vector as it is; both vectors brought to unit norm; or the student's times the one number that brings
    it nearest to the teacher's before training. A raw student's norm is 4 to 6.5 where most teachers' is 1."""
    map_start: Literal["random", "regression"] = "regression"
    """What the map to the teacher's width starts from, where the widths differ."""


class MSE(Unlabelled):
    """Student encoder and mean pooling. Where the widths differ, a linear map to the teacher's is learned and left out.

    Trains a student encoder, to the teacher's own vectors. Reads unlabelled sentences. Source: a baseline of IBKD.
    """

    params_type = MSEParams
    title: ClassVar[str] = "MSE"
    takes_static: ClassVar[bool] = True
    centred: ClassVar[bool] = False
    params: MSEParams

    def __init__(self, params: MSEParams, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        teacher = prepared.vectors.width
        self.map = nn.Identity() if teacher == self.width else nn.Linear(self.width, teacher, bias=False)
        sample = self.rows[spread(len(self.rows), START_SENTENCES)]
        if isinstance(self.map, nn.Linear) and params.map_start == "regression":
            regression(self.start_states(sample), prepared.vectors.take(sample), bias=False).copy_to(self.map)
        self.to(device)
        self.scale = 1.0
        if params.norm == "scale":
            s_BT, t_BT = self.map(torch.from_numpy(self.start_states(sample)).to(device)), self.teacher_vectors(sample)
            self.scale = float((s_BT * t_BT).sum() / s_BT.square().sum())

    def shared_space(self) -> SharedSpace:
        """The teacher's own vectors; where the student is narrower its queries go through the map to them."""
        layers = () if isinstance(self.map, nn.Identity) else (as_dense(self.map),)
        return SharedSpace(*self.space(), after_student=layers)

    @classmethod
    def check_student(cls, possible: Possible, student: str, native: int) -> None:
        """Only the student's own width; a static student is as wide as it is asked for."""
        if not is_static(student):
            cls.check_native(possible, native)
        elif max(possible("output_dim")) > native:
            raise InputError(
                f"output_dim: {max(possible('output_dim'))} is above the {native} dimensions of the teacher"
            )

    def loss(self, index_B: NDArray[np.int64] | Tensor) -> Tensor:
        """Mean over the batch of ||map(s) - t||^2, both brought to unit norm, or s scaled, where `norm` says so."""
        rows = self.at(self.rows, index_B)
        s_BT, t_BT = self.map(self.outputs(rows)).float(), self.teacher_vectors(rows)
        if self.params.norm == "unit":
            s_BT, t_BT = functional.normalize(s_BT, dim=-1), functional.normalize(t_BT, dim=-1)
        elif self.params.norm == "scale":
            s_BT = s_BT * self.scale
        return target_loss(self.params, "squared", s_BT, t_BT, [t_BT.shape[1]])
