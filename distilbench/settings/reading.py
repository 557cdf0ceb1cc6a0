"""What is read: the data folder and how much of it, what is scored, and how encoders read."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from distilbench.choices import EVERY_TASK, Backend, TaskKind
from distilbench.errors import InputError
from distilbench.settings.option import COMMAS, Settings, option

if TYPE_CHECKING:
    from distilbench.data.folder import Limits
    from distilbench.encoders.encoder import EncoderSpec

DATA, ENCODERS = "Data", "Teacher and student"
DEFAULT_TEACHER, DEFAULT_STUDENT = "all-MiniLM-L6-v2", "auto"
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
        "Documents of a retrieval set at most; those that answer a query are always among them. 0: all.",
        MOST,
        panel=DATA,
        ge=0,
    )
    max_pairs: int = option(
        "Similar pairs, labelled pairs and triplets to train on, of each so many at most; 0: all.",
        MOST,
        panel=DATA,
        ge=0,
    )

    @cached_property
    def data_folder(self) -> Path:
        """The data folder here, fetched where it is a URI; the demonstration's where none is given."""
        from distilbench.data.about import DEMONSTRATION
        from distilbench.storage.folder_copy import local_folder

        return local_folder(self.data, "--data") if self.data else DEMONSTRATION

    @property
    def limits(self) -> Limits:
        """How much is read."""
        from distilbench.data.folder import Limits

        return Limits(pairs=self.max_pairs or None, documents=self.max_documents or None)


class ReadingSettings(Settings):
    """How encoders read sentences."""

    prompt: tuple[str, ...] = option(
        "Text that the encoder wants before every sentence; or query=... and document=..., what it wants before these: the "
        "name of a prompt that it has, or text; repeatable. Default: the encoder's own prompts of these.",
        (),
        panel=ENCODERS,
    )
    max_tokens: int | None = option("Cut sentences here; default: the encoder's own limit.", None, panel=ENCODERS, ge=3)
    backend: Backend = option(
        "What runs the encoder: torch, or bf16 (torch in bfloat16, on CPUs that have it).",
        "torch",
        panel=ENCODERS,
    )

    @property
    def prompts(self) -> dict[str, str]:
        """The prompts by what they are put before: "query", "document", and "" for every other sentence."""
        by_role = (text.partition("=") for text in self.prompt if text.startswith(("query=", "document=")))
        plain = [text for text in self.prompt if not text.startswith(("query=", "document="))]
        return {**{role: text for role, _, text in by_role}, **({"": plain[-1]} if plain else {})}

    def encoder(self, name: str) -> EncoderSpec:
        """An encoder of that name, read so; queries and documents without a `--prompt` as its own files say."""
        from distilbench.encoders.encoder import EncoderSpec
        from distilbench.encoders.prompts import literal_prompt, role_prompts

        spec = EncoderSpec(name, prompt=self.prompts.get("", ""), max_tokens=self.max_tokens)
        before = {role: literal_prompt(spec, text, f"--prompt {role}=") for role, text in self.prompts.items() if role}
        if "" not in self.prompts:
            with suppress(InputError):  # of an encoder that cannot be loaded: `check` says why
                before = {**role_prompts(spec), **before}
        return replace(spec, query_prompt=before.get("query"), document_prompt=before.get("document"))
