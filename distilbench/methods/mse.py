"""MSE: the student's own embedding drawn to the teacher's, without compressing either (a baseline of the IBKD paper).

Axes: B batch, D student width, Dt teacher width.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from distilbench.data.corpus import Corpus
from distilbench.data.needs import Needs
from distilbench.methods.method import Phase, Possible
from distilbench.methods.parts.encoder_method import EncoderMethod
from distilbench.methods.parts.length import Examples, PhaseSteps
from distilbench.methods.parts.losses import squared_distance
from distilbench.methods.parts.unlabelled import (
    UnlabelledParams,
    check_unlabelled,
    unlabelled_needs,
    unlabelled_planned,
    unlabelled_rows,
    unlabelled_steps,
)
from distilbench.prepare.prepared import Prepared


class Params(UnlabelledParams):
    """Hyper-parameters of distillation from unlabelled sentences."""


class Trainable(EncoderMethod):
    """Student encoder and mean pooling. Where the widths differ, a linear map to the teacher's is learned and left out."""

    params_type = Params
    title: ClassVar[str] = "MSE"
    params: Params

    def __init__(self, params: Params, prepared: Prepared, device: str) -> None:
        super().__init__(params, prepared, device)
        self.rows = unlabelled_rows(params, prepared)
        teacher = prepared.vectors.width
        self.map = nn.Identity() if teacher == self.width else nn.Linear(self.width, teacher, bias=False)
        self.to(device)

    @classmethod
    def needs(cls, possible: Possible) -> Needs:
        """Augmented sentences."""
        return unlabelled_needs(possible)

    @classmethod
    def check_corpus(cls, possible: Possible, corpus: Corpus, native: int) -> None:
        """Only the student's own width; enough sentences for one batch."""
        cls.check_native(possible, native)
        check_unlabelled(possible, corpus)

    def phases(self) -> list[Phase]:
        """One, over the training sentences."""
        p, steps = self.params, unlabelled_steps(self.params, self.rows)
        return [Phase("distil", len(self.rows), steps, p.batch_size, p.lr, self.loss)]

    @classmethod
    def planned(cls, params: dict[str, Any], examples: Examples) -> list[PhaseSteps]:
        """As `phases`."""
        return [unlabelled_planned(params, examples)]

    def loss(self, index_B: NDArray[np.int64]) -> Tensor:
        """Mean over the batch of ||map(s) - t||^2."""
        rows = self.rows[index_B]
        t_BT = torch.from_numpy(self.prepared.vectors.take(rows)).to(self.device)
        return squared_distance(self.map(self.outputs(rows)).float(), t_BT)
