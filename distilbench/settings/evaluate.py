"""Settings of an evaluation, as the command line gives them."""

from __future__ import annotations

from pydantic import Field

from distilbench.encoders.encoder import EncoderSpec
from distilbench.evaluation.indexes import IndexSpec
from distilbench.records import Quantisation
from distilbench.settings.settings import PlaceSettings


class EvaluateSettings(PlaceSettings):
    """What an evaluation of encoders decides."""

    models: tuple[EncoderSpec, ...]
    teacher: EncoderSpec | None = None
    """A row of its own, which retention and paired differences are relative to."""
    documents: EncoderSpec | None = None
    """Whose vectors the documents are, where the models embed the queries alone (asymmetric retrieval)."""
    kinds: tuple[str, ...]
    """Of sets: "sts", "classification", "retrieval", "pairs"."""
    dims: tuple[int, ...] = ()
    """Widths to truncate to, beside each model's own."""
    quantisations: tuple[Quantisation, ...] = ()
    indexes: tuple[IndexSpec, ...]
    threads: int = Field(default=1, ge=1)
    """Of searches and of the timing of models."""
    batch: int | None = Field(default=None, ge=1)
    """Queries that are searched at a time; None is all."""
    clusters: int | None = Field(default=None, ge=1)
    """Of cluster retrieval; None is as many as a student's own cluster head has, and none of other encoders."""
    cost: bool = True
    """Whether parameters, size, throughput and latency of the models are measured."""
