"""How encoders read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from distilbench.choices import Backend
from distilbench.settings.option import Settings, option

if TYPE_CHECKING:
    from distilbench.encoders.encoder import EncoderSpec

PANEL = "Teacher and student"
DEFAULT_TEACHER, DEFAULT_STUDENT = "all-MiniLM-L6-v2", "auto"


class ReadingSettings(Settings):
    """How encoders read sentences."""

    prompt: tuple[str, ...] = option(
        "Text that the encoder wants before every sentence; or query=... and document=..., what it wants before these: the "
        "name of a prompt that it has, or text; repeatable.",
        (),
        panel=PANEL,
    )
    max_tokens: int | None = option("Cut sentences here; default: the encoder's own limit.", None, panel=PANEL, ge=3)
    backend: Backend = option(
        "What runs the encoder: torch, or bf16 (torch in bfloat16, on CPUs that have it).",
        "torch",
        panel=PANEL,
    )

    @property
    def prompts(self) -> dict[str, str]:
        """The prompts by what they are put before: "query", "document", and "" for every other sentence."""
        by_role = (text.partition("=") for text in self.prompt if text.startswith(("query=", "document=")))
        plain = [text for text in self.prompt if not text.startswith(("query=", "document="))]
        return {**{role: text for role, _, text in by_role}, **({"": plain[-1]} if plain else {})}

    @property
    def by_role(self) -> bool:
        """Whether queries, documents and other text are told apart."""
        return bool(self.prompts.keys() - {""})

    def encoder(self, name: str) -> EncoderSpec:
        """An encoder of that name, read so."""
        from distilbench.encoders.encoder import EncoderSpec
        from distilbench.encoders.prompts import literal_prompt

        spec = EncoderSpec(name, prompt=self.prompts.get("", ""), max_tokens=self.max_tokens)
        query, document = (
            literal_prompt(spec, self.prompts[role], f"--prompt {role}=") if role in self.prompts else None
            for role in ("query", "document")
        )
        return replace(spec, query_prompt=query, document_prompt=document)
