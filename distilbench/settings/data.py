"""The data folder, how much of it is read, and what is scored."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from distilbench.choices import EVERY_TASK, TaskKind
from distilbench.settings.option import COMMAS, Settings, option

if TYPE_CHECKING:
    from distilbench.data.folder import Limits

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
        from distilbench.storage.uris import local_folder

        return local_folder(self.data, "--data") if self.data else DEMONSTRATION

    @property
    def limits(self) -> Limits:
        """How much is read."""
        from distilbench.data.folder import Limits

        return Limits(pairs=self.max_pairs or None, documents=self.max_documents or None)
