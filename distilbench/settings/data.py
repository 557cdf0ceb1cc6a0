"""What is read: the data folder, sources of text, and how much of each."""

from __future__ import annotations

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
    """The data folder of every command that reads one."""

    data: str | None = option("A data folder, or its URI; without it the built-in demonstration corpus.", None)

    @cached_property
    def data_folder(self) -> Path | None:
        """The data folder here, fetched where it is a URI; None is the built-in demonstration corpus."""
        from distilbench.storage.scratch import local_folder

        return local_folder(self.data, "--data") if self.data else None


class EvaluationDataSettings(DataSettings):
    """How much evaluation reads."""

    max_documents: int = option(
        "Documents of a retrieval set at most; those that are relevant to a query come on top. 0: all.",
        MOST,
        panel=PANEL,
        ge=0,
    )
    max_labelled: int = option("Labelled pairs of a task to train on at most; 0: all.", MOST, panel=PANEL, ge=0)

    @property
    def limits(self) -> Limits:
        """How much of a data folder is read."""
        from distilbench.data.folder import Limits

        return Limits(documents=self.max_documents or None, labelled=self.max_labelled or None)


class TrainingDataSettings(EvaluationDataSettings):
    """What students are trained on."""

    text: tuple[str, ...] = option(
        "Sentences to train on: a file, folder or glob (TSV, CSV, JSON lines, Parquet, text), also of a URI, or hf:NAME; "
        "repeatable.",
        (),
    )
    demonstration: bool = option(
        "Beside --text without --data, score on the sets of the demonstration corpus too.", False, panel=PANEL
    )
    text_column: str = option("The column of --text that holds the sentences.", "text", panel=PANEL)
    min_chars: int = option("Leave out unlabelled sentences of fewer characters.", 1, panel=PANEL, ge=0)
    max_chars: int | None = option("Leave out those of more characters; default: none.", None, panel=PANEL, ge=1)
    skip_bad_rows: bool = option(
        "Leave out and count bad rows of unlabelled text, instead of stopping.", False, panel=PANEL
    )
    max_sentences: int = option(
        "Unlabelled sentences of --data, and of --text, to train on at most; 0: all.", MOST, panel=PANEL, ge=0
    )
    even_sources: bool = option(
        "Draw the training sentences of --data evenly from their sources: files, or what a column `source` names.",
        True,
        panel=PANEL,
    )
    max_pairs: int = option("Similar pairs to train on at most; 0: all.", MOST, panel=PANEL, ge=0)
    max_triplets: int = option("Triplets to train on at most; 0: all.", MOST, panel=PANEL, ge=0)
    corpus_size: int = option("Training pairs of the built-in corpus.", 4000, panel=PANEL)

    @property
    def limits(self) -> Limits:
        """How much of a data folder, and of other text, is read."""
        from distilbench.data.folder import Limits

        named = (self.max_pairs, self.max_sentences, self.max_documents, self.max_triplets, self.max_labelled)
        pairs, sentences, documents, triplets, labelled = (most or None for most in named)
        return Limits(pairs, sentences, documents, triplets, labelled, self.even_sources)

    @cached_property
    def texts(self) -> Texts:
        """The sources of text, fetched where they are URIs, and how to read them.

        Raises:
            InputError: --max-chars is below --min-chars.
        """
        from distilbench.data.text import Texts, TextSettings
        from distilbench.storage.scratch import local_text

        bad = self.skip_bad_rows
        how = TextSettings(self.text_column, self.min_chars, self.max_chars, "skip" if bad else "stop")
        return Texts(tuple(local_text(source) for source in self.text), how)
