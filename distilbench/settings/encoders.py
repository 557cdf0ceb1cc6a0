"""The teacher, and where students start."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from distilbench.choices import Backend, Pooling, Stored
from distilbench.settings.option import Settings, option

if TYPE_CHECKING:
    from distilbench.encoders.encoder import EncoderSpec

PANEL = "Teacher and student"
DEFAULT_TEACHER, DEFAULT_STUDENT = "all-MiniLM-L6-v2", "auto"


class ReadingSettings(Settings):
    """How encoders read sentences."""

    revision: str | None = option("The encoder's revision on the hub.", None, panel=PANEL)
    prompt: str = option("Text that the encoder wants before every sentence.", "", panel=PANEL)
    max_tokens: int | None = option("Cut sentences here; default: the encoder's own limit.", None, panel=PANEL, ge=3)
    backend: Backend = option(
        "What runs the encoder: torch, or onnx (ONNX Runtime, faster on CPUs).", "torch", panel=PANEL
    )

    def encoder(self, name: str) -> EncoderSpec:
        """An encoder of that name, read so."""
        from distilbench.encoders.encoder import EncoderSpec

        return EncoderSpec(name, self.revision, self.prompt, self.max_tokens)


class EncoderSettings(ReadingSettings):
    """The teacher and the student of a training."""

    teacher: str = option("The teacher: an encoder's folder, hub id, or packaged name.", DEFAULT_TEACHER)
    student: str = option(
        "Where an encoder student starts: auto:N (the best N of the teacher's layers, ranked; auto: half of them), half, "
        "layers:0,2,4, a folder or hub id; auto:N@FOLDER and the like: layers of another encoder.",
        DEFAULT_STUDENT,
    )
    pooling: Pooling | None = option(
        "How an encoder student pools; default: as the encoder that it is made of.",
        None,
        panel=PANEL,
    )
    cross_encoder: str | None = option(
        "For dse: a fine-tuned cross-encoder's folder; default: the teacher is fine-tuned on the task.",
        None,
        panel=PANEL,
    )
    cross_encoder_lr: float = option("Learning rate of that fine-tuning.", 2e-5, panel=PANEL, ge=1e-8, le=1)
    cross_encoder_epochs: float = option("Epochs of that fine-tuning.", 3.0, panel=PANEL, ge=0.01)
    float32: bool = option("Store teacher embeddings in float32, not float16.", False, panel=PANEL)

    @cached_property
    def teacher_encoder(self) -> EncoderSpec:
        """The teacher and how it reads."""
        return self.encoder(self.teacher)

    @property
    def vectors(self) -> Stored:
        """The precision in which the teacher's embeddings are stored."""
        return "float32" if self.float32 else "float16"
