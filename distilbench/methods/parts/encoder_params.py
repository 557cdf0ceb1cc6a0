"""Hyper-parameters of every method that trains an encoder."""

from __future__ import annotations

from distilbench.training.params import CodedParams, sweep_field


class EncoderParams(CodedParams):
    """How the student's encoder is trained, whatever its loss."""

    dropout: bool = True
    """Whether the encoder's dropout acts in training."""
    freeze_embeddings: bool = False
    """Whether the word and position embeddings stay as they are: most of a small encoder's parameters."""


class DistilledParams(EncoderParams):
    """The same for a student whose targets are the teacher's vectors: there dropout costs quality (measured at 90 steps:
    0.5 points), and training the embeddings a third of the speed for nothing."""

    dropout: bool = sweep_field(True, sweep=False)
    freeze_embeddings: bool = sweep_field(False, sweep=True)
