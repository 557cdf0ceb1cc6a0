"""Settings of `index`."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distilbench.errors import InputError
from distilbench.settings.data import PANEL
from distilbench.settings.option import option
from distilbench.settings.place import GrowingClusterSettings

if TYPE_CHECKING:
    from distilbench.evaluation.indexes import IndexSpec

KINDS = ("flat", "ivf", "hnsw")


class IndexSettings(GrowingClusterSettings):
    """Settings of `index`: documents, student, code."""

    student: str = option("A student: the folder of an export, or any sentence-transformers folder.")
    documents: Path = option("Documents with ids: TSV, CSV, JSON lines or Parquet; or plain text, one a line.")
    out: Path = option("The new folder; an earlier index there is replaced.")
    index: str = option(
        "flat (every code is compared), ivf (lists; ivf:1024:5 is nlist and nprobe) or hnsw (a graph).",
        "flat",
        expected="flat, ivf, ivf:NLIST:NPROBE or hnsw",
    )
    code: str | None = option(
        "What vectors are stored as: float32, or a code that is saved with the student; default: its only one, else float32.",
        None,
    )
    id_column: str | None = option(
        "The column of the ids; default: the first of doc_id, _id and id.", None, panel=PANEL
    )
    text_column: str = option("The column of the texts.", "text", panel=PANEL)

    def model_post_init(self, context: Any, /) -> None:
        """Check how the index is written, before anything runs."""
        super().model_post_init(context)
        _ = self.spec

    @cached_property
    def spec(self) -> IndexSpec:
        """The index and its settings."""
        from distilbench.evaluation.indexes import parse_index

        if self.index.split(":")[0] not in KINDS:
            raise InputError(
                f"--index {self.index}: expected {', '.join(KINDS)} (or ivf:NLIST:NPROBE); what is stored is chosen by --code"
            )
        return parse_index(self.index, "--index")
