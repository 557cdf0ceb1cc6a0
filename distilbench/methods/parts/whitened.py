"""Whitening of a student's output as post-processing (HPD, appendix B; Su et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import nn

from distilbench.data.corpus import Corpus
from distilbench.errors import InputError
from distilbench.methods.method import Possible
from distilbench.methods.parts.encoder_method import EncoderMethod
from distilbench.methods.parts.heads import Layer, whitening_head
from distilbench.methods.parts.starts import spread
from distilbench.training.params import ParamsPart

SENTENCES = 8000
"""Training sentences that the whitening is fitted on."""


class WhitenedParams(ParamsPart):
    """The hyper-parameter of whitening."""

    whiten_from: int = Field(default=0, ge=0)
    """0: the student learns output_dim directions. Above 0: it learns this many, and its output is whitened to output_dim."""


class Whitened(EncoderMethod):
    """An encoder whose output may be whitened when its training is over."""

    @property
    def trained_dim(self) -> int:
        """The width that is learned."""
        return int(self.params.whiten_from or self.params.output_dim)

    @classmethod
    def check_corpus(cls, possible: Possible, corpus: Corpus, native: int) -> None:
        super().check_corpus(possible, corpus, native)
        widest = max(possible("output_dim"))
        for width in filter(None, possible("whiten_from")):
            if not widest <= width <= native:
                raise InputError(f"whiten_from: {width}: expected from output_dim ({widest}) to {native} (`native`)")

    @classmethod
    def variant(cls, params: dict[str, Any]) -> str:
        return "whitened" if params.get("whiten_from") else ""

    def _whitening(self) -> Layer:
        train = self.prepared.train
        return whitening_head(self.encode(train[spread(len(train), SENTENCES)]), self.params.output_dim)

    def embed(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Student vectors of corpus rows, whitened on a sample of the training sentences where that is asked for."""
        vectors = torch.from_numpy(self.encode(rows))
        if not self.params.whiten_from:
            return self.unit(vectors.numpy())
        with torch.inference_mode():
            return self.unit(self._whitening()(vectors).numpy())

    def layers_after_pooling(self) -> Sequence[nn.Module]:
        after = super().layers_after_pooling()
        return [*after, self._whitening().dense()] if self.params.whiten_from else after
