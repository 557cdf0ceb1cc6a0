"""Settings of `evaluate`."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from distilbench.choices import EVERY_TASK, FAISS_KINDS
from distilbench.settings.data import EvaluationDataSettings, Tasks, tasks_option
from distilbench.settings.encoders import ReadingSettings
from distilbench.settings.option import ARGUMENT, COMMAS, Names, option
from distilbench.settings.place import ClusterSettings, RunPlaceSettings
from distilbench.settings.run import RESULTS, Codes, CodeSettings

if TYPE_CHECKING:
    from distilbench.encoders.encoder import EncoderSpec
    from distilbench.evaluation.indexes import IndexSpec


class EvaluateSettings(EvaluationDataSettings, ReadingSettings, ClusterSettings, RunPlaceSettings, CodeSettings):
    """Settings of `evaluate`."""

    model: tuple[str, ...] = option(
        "Encoders: sentence-transformers or Hugging Face folders, hub ids, packaged names.", panel=ARGUMENT
    )
    teacher: str | None = option(
        "A model that is scored too, and that retention and differences are relative to.", None
    )
    tasks: Tasks = tasks_option(EVERY_TASK)
    dims: Annotated[tuple[Annotated[int, Field(ge=1)], ...], COMMAS] = option(
        "Score also the first so many dimensions, with commas between: 256,128,64.",
        (),
        expected="numbers of dimensions, such as 256,128,64",
    )
    quantise: Codes = option(
        "Score also in these codes: int8, int4, binary, or one of FAISS's with its bytes (opq16, pq16, itq16, lsh16, "
        "pcar16).",
        (),
    )
    indexes: Names = option(
        f"FAISS indexes to measure: {', '.join(FAISS_KINDS)}, with commas between; ivf:1024:5 is nlist and nprobe.",
        FAISS_KINDS,
        panel=RESULTS,
    )
    threads: int = option("Of searches.", 1, panel=RESULTS, ge=1)
    batch: int | None = option("Queries searched at a time; default: all at once.", None, panel=RESULTS, ge=1)
    cost: bool = option("Measure each model's size and its latency on one thread of the CPU.", True, panel=RESULTS)

    def model_post_init(self, context: Any, /) -> None:
        """Check how indexes are written, before anything runs."""
        _ = self.index_specs

    @cached_property
    def index_specs(self) -> tuple[IndexSpec, ...]:
        """The indexes and their settings."""
        from distilbench.evaluation.indexes import parse_index

        return tuple(parse_index(part) for part in self.indexes)

    @cached_property
    def models(self) -> tuple[EncoderSpec, ...]:
        """The encoders, each once."""
        return tuple(dict.fromkeys(self.encoder(name) for name in self.model))

    @cached_property
    def teacher_encoder(self) -> EncoderSpec | None:
        """The encoder that the others are compared with."""
        return self.encoder(self.teacher) if self.teacher else None
