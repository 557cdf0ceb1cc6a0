"""Distillation from unlabelled sentences: which rows a method learns from, and for how long."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from distilbench.data.corpus import Corpus
from distilbench.data.requirements import Requirements
from distilbench.methods.method import Possible
from distilbench.methods.parts.encoder_params import DistilledParams
from distilbench.prepare.prepared import Prepared
from distilbench.training.length import Examples, PhaseSteps, epoch_steps
from distilbench.training.params import TrainedParams, check_enough


class UnlabelledParams(TrainedParams, DistilledParams):
    """Hyper-parameters of distillation from unlabelled sentences."""

    epochs: float = Field(default=3, gt=0)
    """Passes over the training sentences; a fraction trains on part of them."""
    augmentation: bool = False
    """Whether the augmented sentences (`--augment`) are trained on too."""


def unlabelled_rows(params: UnlabelledParams, prepared: Prepared) -> NDArray[np.int64]:
    """Corpus rows of the sentences to train on."""
    return np.concatenate([prepared.train, prepared.augmented]) if params.augmentation else prepared.train


def unlabelled_steps(params: UnlabelledParams, rows: NDArray[np.int64]) -> int:
    """Optimiser steps of all epochs."""
    return epoch_steps(params.epochs, len(rows), params.batch_size)


def unlabelled_planned(params: dict[str, Any], examples: Examples) -> PhaseSteps:
    """Those steps, before there are rows."""
    return PhaseSteps.over("distil", params["epochs"], examples.unlabelled(params), int(params["batch_size"]))


def unlabelled_needs(possible: Possible) -> Requirements:
    """Augmented sentences, where they may be asked for."""
    return Requirements(augmentation=True in possible("augmentation"))


def check_unlabelled(possible: Possible, corpus: Corpus) -> None:
    """Enough training sentences for one batch.

    Raises:
        InputError: there are not.
    """
    check_enough("batch_size", max(possible("batch_size")), len(corpus.train), "training sentences")
