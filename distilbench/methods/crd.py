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

from distilbench.data.corpus import Corpus
from distilbench.data.requirements import Requirements
from distilbench.errors import InputError
from distilbench.methods.method import Possible
from distilbench.methods.parts.losses import full_precision
from distilbench.methods.parts.starts import Linear, regression, spread
from distilbench.methods.parts.supervised import HardNegativeParams, check_judged, judged_needs, judged_negatives
from distilbench.methods.parts.unlabelled import Unlabelled, UnlabelledParams
from distilbench.prepare.prepared import Prepared
from distilbench.training.params import check_enough
from distilbench.training.phases import Phase, epoch_steps

START_SENTENCES = 2000
"""Training sentences that the maps' start and the normaliser are taken from."""


class CRDParams(UnlabelledParams, HardNegativeParams):
    """Hyper-parameters; the defaults are those of CRD's released code, but for the negatives (there 16,384)."""

    judged: bool = False
    """Whether it trains on judged queries and their relevant passages, instead of on all training sentences. A query is then
    drawn to the teacher's embedding of its passage too, and its hard negatives are among the negatives of the batch."""
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
    map_start: Literal["random", "pca", "shared"] = "pca"
    """The critic's maps at random (the released code); the teacher's PCA, and the regression of the student's states to it;
    or that PCA for both, where student and teacher are of one width."""


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
    count = len(negative_NC)
    prior = np.log(count / m) + log_z
    positive_B = (anchor_BC * positive_BC).sum(dim=-1) / tau - prior
    with full_precision(anchor_BC):
        negative_BN = anchor_BC @ negative_NC.T / tau - prior
    # log h = logsigmoid(g - log(Z N/M)), log(1 - h) = logsigmoid(-(g - log(Z N/M)))
    pushed_B = functional.logsigmoid(-negative_BN).masked_fill(same_BN, 0.0).sum(dim=-1)
    return -(functional.logsigmoid(positive_B) + pushed_B).mean()


class CRD(Unlabelled):
    """Student encoder and mean pooling; the critic's two linear maps are learned and left out.

    Trains a student encoder. Reads unlabelled sentences; judged queries and passages. Source: Tian et al., ICLR 2020; a
    baseline of IBKD.
    """

    params_type = CRDParams
    title: ClassVar[str] = "CRD"
    replayable: ClassVar[bool] = True
    params: CRDParams

    def __init__(self, params: CRDParams, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        self.negative_TK = judged_negatives(params, prepared) if params.judged else None
        self.student_map = nn.Linear(self.width, params.critic_dim)
        self.teacher_map = nn.Linear(prepared.vectors.width, params.critic_dim)
        if params.normaliser:
            # A parameter that no gradient reaches: it is set once, and a checkpoint keeps it.
            self.log_z = nn.Parameter(torch.zeros(()))
        self._check_start()
        self.to(device)

    def _check_start(self) -> None:
        p, teacher = self.params, self.prepared.vectors.width
        if p.map_start != "random" and p.critic_dim > teacher:
            raise InputError(
                f"critic_dim is {p.critic_dim}; with map_start {p.map_start} expected at most the teacher's {teacher}"
            )
        if p.map_start == "shared" and self.width != teacher:
            raise InputError(
                f"map_start is shared, but the student is {self.width} wide and the teacher {teacher}; expected pca or random"
            )

    @classmethod
    def needs(cls, possible: Possible) -> Requirements:
        """Augmented sentences; passages to find hard negatives among."""
        return super().needs(possible) | (judged_needs(possible) if True in possible("judged") else Requirements())

    @classmethod
    def check_student(cls, possible: Possible, student: str, native: int) -> None:
        """Only the student's own width."""
        cls.check_native(possible, native)

    @classmethod
    def check_corpus(cls, possible: Possible, corpus: Corpus, native: int) -> None:
        """Only the student's own width; enough sentences for one batch."""
        super().check_corpus(possible, corpus, native)
        if True in possible("judged"):
            judged = len(corpus.judged_P2)
            check_enough("batch_size", max(possible("batch_size")), judged, "judged queries with a relevant passage")
            check_judged(max(possible("hard_negatives")), corpus)

    @classmethod
    def variant(cls, params: dict[str, Any]) -> str:
        """Trained on judged queries and passages."""
        return "retrieval" if params.get("judged") else ""

    def phases(self) -> list[Phase]:
        """One, over the training sentences, or over the judged pairs."""
        p, judged = self.params, len(self.prepared.judged_P2)
        if not p.judged:
            return [self.distil(self._start)]
        steps = epoch_steps(p.epochs, judged, p.batch_size)
        return [Phase("distil", judged, steps, p.batch_size, p.lr, self.judged_loss, start=self._start)]

    def _start(self) -> None:
        """Set the maps and the normaliser from the student as it is before training."""
        p, pca = self.params, self.prepared.pca
        if p.map_start == "random" and not p.normaliser:
            return
        rows = self.rows[spread(len(self.rows), START_SENTENCES)]
        states_SD = self.start_states(rows)
        if p.map_start != "random":
            axes_DC = pca.axes_DD[:, : p.critic_dim].astype(np.float64)
            projection = Linear(axes_DC, -pca.mean_D @ axes_DC)
            projection.copy_to(self.teacher_map)
            targets_SC = pca.project(self.prepared.vectors.take(rows), p.critic_dim)
            (projection if p.map_start == "shared" else regression(states_SD, targets_SC)).copy_to(self.student_map)
        if p.normaliser:
            with torch.no_grad():
                states = torch.from_numpy(states_SD).to(self.device)
                self.log_z.copy_(self._normaliser(self._student(states), self._teacher(rows)))

    def _normaliser(self, student_SC: Tensor, teacher_SC: Tensor) -> Tensor:
        """log Z, Z = M times the mean of e^g over the pairs of a student and the teacher's embedding of another sentence."""
        g_SS = (student_SC.double() @ teacher_SC.double().T / self.params.tau).fill_diagonal_(-torch.inf)
        pairs = len(g_SS) * (len(g_SS) - 1)
        return torch.logsumexp(g_SS.flatten(), dim=0) - np.log(pairs) + np.log(len(self.rows))

    def _student(self, states_BD: Tensor) -> Tensor:
        return functional.normalize(self.student_map(states_BD), dim=-1).float()

    def _teacher(self, rows: NDArray[np.int64] | Tensor) -> Tensor:
        vectors = self.teacher_vectors(rows)
        return functional.normalize(self.teacher_map(vectors), dim=-1).float()

    def judged_loss(self, index_B: NDArray[np.int64]) -> Tensor:
        """The critic's loss of B queries and their passages: each with its own embedding by the teacher, and each query with
        that of its passage.

        Negatives are drawn from all training sentences, and the batch's hard negatives are added to them; a query is not told
        from its own passage.
        """
        assert self.negative_TK is not None
        p, train, size = self.params, self.rows, len(index_B)
        log_z = self.log_z.detach() if p.normaliser else 0.0
        query_B, passage_B = self.prepared.judged_P2[index_B].T
        drawn = train[torch.randint(len(train), (p.negatives,)).numpy()]
        others = np.concatenate([drawn, self.negative_TK[index_B].ravel()])
        rows = np.concatenate([query_B, passage_B])
        student, teacher = self._student(self.outputs(rows)), self._teacher(rows)
        anchors, positives = torch.cat([student, student[:size]]), torch.cat([teacher, teacher[size:]])
        own, partner = np.concatenate([rows, query_B])[:, None], np.tile(passage_B, 3)[:, None]
        same = torch.from_numpy((own == others) | (partner == others)).to(self.device)
        value = crd_loss(anchors, positives, self._teacher(others), same, p.tau, len(train), log_z)
        if p.directions == "teacher":
            return value
        related = torch.eye(size, dtype=torch.bool, device=student.device).repeat(2, 2)
        return value + crd_loss(teacher, student, student, related, p.tau, len(train), log_z)

    @staticmethod
    def _drawn(index_B: NDArray[np.int64] | Tensor, limit: int, count: int) -> Any:
        """Random numbers below `limit`, where those of the batch are: in memory, or on the device."""
        if isinstance(index_B, Tensor):
            return torch.randint(limit, (count,), device=index_B.device)
        return torch.randint(limit, (count,)).numpy()

    def loss(self, index_B: NDArray[np.int64] | Tensor) -> Tensor:
        """The critic's loss with negatives drawn from all training sentences; in the other direction, from the batch."""
        p, train, count = self.params, self.rows, self.params.negatives
        log_z = self.log_z.detach() if p.normaliser else 0.0
        rows, others = self.at(train, index_B), self.at(train, self._drawn(index_B, len(train), count))
        student, teacher = self._student(self.outputs(rows)), self._teacher(rows)
        same = torch.as_tensor(rows[:, None] == others[None, :], device=self.device)
        value = crd_loss(student, teacher, self._teacher(others), same, p.tau, len(train), log_z)
        if p.directions == "teacher":
            return value
        itself = torch.eye(len(rows), dtype=torch.bool, device=student.device)
        return value + crd_loss(teacher, student, student, itself, p.tau, len(train), log_z)
