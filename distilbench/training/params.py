"""Hyper-parameters that every method has, and those of every method that is trained."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from distilbench.codes import Bits
from distilbench.errors import InputError


class ParamsPart(BaseModel):
    """Hyper-parameters that several methods share; the text below a field is its description."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Params(ParamsPart):
    """Hyper-parameters that every method has. Search spaces are checked against these types and ranges."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    output_dim: int = Field(ge=1)


class TrainedParams(Params):
    """Hyper-parameters of every method that is trained."""

    lr: float = Field(gt=0, le=1)
    batch_size: int = Field(ge=2)
    weight_decay: float = Field(default=0.01, ge=0)
    decay_all: bool = False
    """Whether weight decay also acts on biases and on the scales of LayerNorm, not only on matrices."""
    warmup: float = Field(default=0.0, ge=0, lt=1)
    """Share of a phase's steps in which the learning rate rises linearly from 0."""
    decay: bool = True
    """Whether it falls linearly to 0 afterwards."""
    betas: tuple[float, float] = (0.9, 0.999)
    clip: float = Field(default=1.0, ge=0)
    """Largest norm of the gradient; 0 is no limit."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """The precision of the forward pass, in training and of an encoder that is scored: auto is bf16 on a GPU, fp32 on a
    CPU."""


def check_enough(parameter: str, value: int, available: int, what: str) -> None:
    """Raise InputError when `value` of a parameter needs more than is `available`."""
    if value > available:
        raise InputError(
            f"{parameter} is {value}, but the corpus has only {available} {what}; expected at least as many"
        )


class CodedParams(ParamsPart):
    """What a vector is stored as. The training sees it, so that the stored vectors keep what the loss asks for."""

    bits: Bits | None = None
    """Bits of a stored dimension: 32 (float32), 8, 4, 3 and 2 (int8 to int2) or 1 (binary). Students with this parameter
    compete within the same bytes of a vector; without it, within the same output dimension."""
