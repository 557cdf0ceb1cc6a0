"""Hyper-parameters of every method that trains an encoder."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from distilbench.training.params import CodedParams, ParamsPart


class StaticParams(ParamsPart):
    """What only a static student has (`--student static`)."""

    sif: float = Field(default=0.001, ge=0)
    """The weight that a token starts with is sif / (sif + its share of all tokens of the training sentences), as in smooth
    inverse frequency (Arora et al. 2017); 0: every weight starts at 1."""
    table: Literal["float32", "int8"] = "float32"
    """What the table of the exported student is stored as; int8 has a scale for each token."""


class EncoderParams(CodedParams, StaticParams):
    """How the student's encoder is trained, whatever its loss."""

    student: str | None = None
    """Where the student starts, as `--student` has it, which it takes the place of; students with this parameter compete
    with those of the same start."""

    dropout: bool = True
    """Whether the encoder's dropout acts in training."""
    freeze_embeddings: bool = False
    """Whether the word and position embeddings stay as they are: most of a small encoder's parameters. A static student has
    nothing else, and is trained all the same."""


class DistilledParams(EncoderParams):
    """The same for a student whose targets are the teacher's vectors: there dropout costs quality (measured at 90 steps:
    0.5 points), and training the embeddings a third of the speed for nothing."""

    dropout: bool = False
    freeze_embeddings: bool = True
