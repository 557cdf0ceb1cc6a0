"""CRD: contrastive representation distillation (Tian et al. 2020), a baseline of the IBKD paper.

A critic tells the teacher's embedding of the same sentence from those of other sentences. The teacher's embeddings of the
whole training set are at hand, so negatives are drawn from them directly instead of from a memory of past batches. In the
other direction, from the teacher's embedding to the student's, the negatives are the students of the batch: they are as new
as the student is, and unlike those of the released code's memory they pass gradients on.

Axes: B batch, N negatives, C the critic's width, D student width.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from distilbench.encoders.shared_space import SharedSpace
from distilbench.errors import InputError
from distilbench.methods.method import Possible
from distilbench.methods.parts.heads import as_dense
from distilbench.methods.parts.losses import full_precision
from distilbench.methods.parts.starts import Linear, regression, spread
from distilbench.methods.parts.unlabelled import Unlabelled, UnlabelledParams
from distilbench.prepare.prepared import Prepared
from distilbench.training.phases import Phase

START_SENTENCES = 2000
"""Training sentences that the maps' start and the normaliser are taken from."""


class CRDParams(UnlabelledParams):
    """Hyper-parameters; the defaults are those of CRD's released code, but for the negatives (there 16,384)."""

    tau: float = Field(default=0.07, gt=0)
    """Temperature of the critic."""
    negatives: int = Field(default=1024, ge=1)
    """Teacher embeddings of other sentences, drawn for each batch."""
    critic_dim: int = Field(default=128, ge=1)
    """Width of the space in which the critic compares."""
    normaliser: bool = True
    """Whether e^g is divided by Z = M * (its mean over pairs of different sentences before training), as in the released
    code. Without it, every pair is judged to be of one sentence at the start, and the negatives' gradient drowns the rest."""
    directions: Literal["teacher", "both"] = "both"
    """Whether students are told from the teacher's negatives only, or the teacher's embeddings also from other students."""
    map_start: Literal["random", "pca"] = "pca"
    """The critic's maps at random (the released code); or the teacher's PCA, and the regression of the student's states to
    it."""


def crd_loss(  # noqa: PLR0913 - the symbols of its equation
    anchor_BC: Tensor,
    positive_BC: Tensor,
    negative_NC: Tensor,
    same_BN: Tensor,
    tau: float,
    m: int,
    log_z: float | Tensor = 0.0,
) -> Tensor:
    """Binary noise-contrastive loss of the critic h = e^g / Z / (e^g / Z + N/M), g = a.p / tau (CRD, equations 18 and 19).

    All rows of unit norm; `m` is the number of sentences that negatives are drawn from. `same_BN` marks the negatives that
    are the sentence itself: they do not count. The paper has no Z (1); its released code has.
    """
    prior = np.log(len(negative_NC) / m) + log_z
    positive_B = (anchor_BC * positive_BC).sum(dim=-1) / tau - prior
    with full_precision(anchor_BC):
        negative_BN = anchor_BC @ negative_NC.T / tau - prior
    # log h = logsigmoid(g - log(Z N/M)), log(1 - h) = logsigmoid(-(g - log(Z N/M)))
    pushed_B = functional.logsigmoid(-negative_BN).masked_fill(same_BN, 0.0).sum(dim=-1)
    return -(functional.logsigmoid(positive_B) + pushed_B).mean()


class CRD(Unlabelled):
    """Student encoder and mean pooling; the critic's two linear maps are learned and left out.

    Trains a student encoder. Reads unlabelled sentences. Source: Tian et al., ICLR 2020; a baseline of IBKD.
    """

    params_type = CRDParams
    title: ClassVar[str] = "CRD"
    params: CRDParams

    def __init__(self, params: CRDParams, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        teacher = prepared.vectors.width
        if params.map_start == "pca" and params.critic_dim > teacher:
            raise InputError(
                f"critic_dim is {params.critic_dim}; with map_start pca expected at most the teacher's {teacher}"
            )
        self.student_map = nn.Linear(self.width, params.critic_dim)
        self.teacher_map = nn.Linear(teacher, params.critic_dim)
        if params.normaliser:
            # A parameter that no gradient reaches: it is set once, and a checkpoint keeps it.
            self.log_z = nn.Parameter(torch.zeros(()))
        self.to(device)

    @classmethod
    def check_student(cls, possible: Possible, student: str, native: int) -> None:
        cls.check_native(possible, native)

    @classmethod
    def space_of(cls, params: dict[str, Any], teacher_width: int) -> tuple[int, str]:
        return int(params["critic_dim"]), "the critic's map"

    def shared_space(self) -> SharedSpace:
        """The critic's, of which both maps are at hand."""
        student, teacher = as_dense(self.student_map), as_dense(self.teacher_map)
        return SharedSpace(*self.space(), (student,), (teacher,))

    def phases(self) -> list[Phase]:
        return [self.distil(self._start)]

    def _start(self) -> None:
        """Set the maps and the normaliser from the student as it is before training."""
        p, pca = self.params, self.prepared.pca
        if p.map_start == "random" and not p.normaliser:
            return
        rows = self.rows[spread(len(self.rows), START_SENTENCES)]
        states_SD = self.start_states(rows)
        if p.map_start == "pca":
            axes_DC = pca.axes_DD[:, : p.critic_dim].astype(np.float64)
            Linear(axes_DC, -pca.mean_D @ axes_DC).copy_to(self.teacher_map)
            targets_SC = pca.project(self.prepared.vectors.take(rows), p.critic_dim)
            regression(states_SD, targets_SC).copy_to(self.student_map)
        if p.normaliser:
            with torch.no_grad():
                student_SC = self._student(torch.from_numpy(states_SD).to(self.device))
                self.log_z.copy_(self._normaliser(student_SC, self._teacher(rows)))

    def _normaliser(self, student_SC: Tensor, teacher_SC: Tensor) -> Tensor:
        """log Z, Z = M times the mean of e^g over the pairs of a student and the teacher's embedding of another sentence."""
        g_SS = (student_SC.double() @ teacher_SC.double().T / self.params.tau).fill_diagonal_(-torch.inf)
        pairs = len(g_SS) * (len(g_SS) - 1)
        return torch.logsumexp(g_SS.flatten(), dim=0) - np.log(pairs) + np.log(len(self.rows))

    def _student(self, states_BD: Tensor) -> Tensor:
        return functional.normalize(self.student_map(states_BD), dim=-1).float()

    def _teacher(self, rows: NDArray[np.int64] | Tensor) -> Tensor:
        return functional.normalize(self.teacher_map(self.teacher_vectors(rows)), dim=-1).float()

    @staticmethod
    def _drawn(index_B: NDArray[np.int64] | Tensor, limit: int, count: int) -> Any:
        """Random numbers below `limit`, where those of the batch are: in memory, or on the device."""
        if isinstance(index_B, Tensor):
            return torch.randint(limit, (count,), device=index_B.device)
        return torch.randint(limit, (count,)).numpy()

    def loss(self, index_B: NDArray[np.int64] | Tensor) -> Tensor:
        """The critic's loss with negatives drawn from all training sentences; in the other direction, from the batch."""
        train = self.rows
        drawn = self._drawn(index_B, len(train), self.params.negatives)
        rows, others = self.at(train, index_B), self.at(train, drawn)
        student, teacher = self._student(self.outputs(rows)), self._teacher(rows)
        same = torch.as_tensor(rows[:, None] == others[None, :], device=self.device)
        log_z = self.log_z.detach() if self.params.normaliser else 0.0
        value = crd_loss(student, teacher, self._teacher(others), same, self.params.tau, len(train), log_z)
        if self.params.directions == "teacher":
            return value
        itself = torch.eye(len(rows), dtype=torch.bool, device=student.device)
        return value + crd_loss(teacher, student, student, itself, self.params.tau, len(train), log_z)
