"""What is read: the data folder, sources of text, and how much of each."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from distilbench.choices import EVERY_TASK, TaskKind
from distilbench.settings.option import COMMAS, Settings, option

if TYPE_CHECKING:
    from distilbench.data.folder import Limits
    from distilbench.data.text import Texts

PANEL = "Data"
MOST = 20_000
"""The most that a command reads of anything, where nothing else is said: it takes minutes on two cores."""

Tasks = Annotated[tuple[TaskKind, ...], COMMAS]


def tasks_option(default: tuple[TaskKind, ...], panel: str = "") -> Any:
    """The field `tasks`, of type `Tasks`: what is scored."""
    named = ", ".join(EVERY_TASK)
    return option(
        f"Kinds of sets to score: {named}, with commas between.",
        default,
        panel=panel,
        min_length=1,
        expected=f"some of {named}",
    )


class DataSettings(Settings):
    """The data folder, and how much of it is read."""

    data: str | None = option("A data folder, or its URI; without it the demonstration that comes along.", None)
    max_documents: int = option(
        "Documents of a retrieval set at most; those that are relevant to a query come on top. 0: all.",
        MOST,
        panel=PANEL,
        ge=0,
    )
    max_pairs: int = option(
        "Similar pairs, labelled pairs and triplets to train on, of each so many at most; 0: all.",
        MOST,
        panel=PANEL,
        ge=0,
    )

    @cached_property
    def data_folder(self) -> Path:
        """The data folder here, fetched where it is a URI; the demonstration's where none is given."""
        from distilbench.data.about import DEMONSTRATION
        from distilbench.storage.scratch import local_folder

        return local_folder(self.data, "--data") if self.data else DEMONSTRATION

    @property
    def limits(self) -> Limits:
        """How much is read."""
        from distilbench.data.folder import Limits

        return Limits(pairs=self.max_pairs or None, documents=self.max_documents or None)


class TrainingDataSettings(DataSettings):
    """What students are trained on."""

    text: tuple[str, ...] = option(
        "Sentences to train on: a file, folder or glob (TSV, CSV, JSON lines, Parquet, text), also of a URI, or hf:NAME; "
        "repeatable.",
        (),
    )
    text_column: str = option("The column of --text that holds the sentences.", "text", panel=PANEL)
    skip_bad_rows: bool = option(
        "Leave out and count bad rows of unlabelled text, instead of stopping.", False, panel=PANEL
    )
    max_sentences: int = option(
        "Unlabelled sentences of --data, and of --text, to train on at most; 0: all.", MOST, panel=PANEL, ge=0
    )

    @property
    def sets_folder(self) -> Path | None:
        """The data folder; None where text alone is given, which has no sets to score on."""
        return self.data_folder if self.data or not self.texts.sources else None

    @property
    def limits(self) -> Limits:
        """How much of a data folder, and of other text, is read."""
        return replace(super().limits, sentences=self.max_sentences or None)

    @cached_property
    def texts(self) -> Texts:
        """The sources of text, fetched where they are URIs, and how to read them."""
        from distilbench.data.text import Texts
        from distilbench.storage.scratch import local_text

        return Texts(tuple(local_text(source) for source in self.text), self.text_column, self.skip_bad_rows)
