"""Prompts by name, as an encoder's own sentence-transformers configuration has them, and the prompts of a saved student."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distilbench.data.roles import DOCUMENT, PLAIN, QUERY
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import prompt_of
from distilbench.errors import InputError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

TEXT = "text"
"""What the prompt of text that is neither query nor document is called in a saved student."""
_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class Prompts:
    """What an encoder has put before its texts, by their role; "" is nothing."""

    plain: str
    query: str
    document: str

    @staticmethod
    def of(spec: EncoderSpec) -> Prompts:
        """Those that the encoder reads with, its own default prompt among them where nothing else is said."""
        default = "" if spec.vectors else prompt_of(spec.skeleton(), None)
        before = [spec.prompt_before(role) for role in (PLAIN, QUERY, DOCUMENT)]
        return Prompts(*(default if text is None else text for text in before))

    def described(self) -> dict[str, str]:
        """By what a reader calls the texts; what other text has is left out where queries have the same."""
        return {
            "query": self.query,
            "document": self.document,
            **({TEXT: self.plain} if self.plain != self.query else {}),
        }

    def keep_in(self, model: SentenceTransformer) -> None:
        """Have sentence-transformers read so: `encode_query`, `encode_document`, and `encode` for other text."""
        named = {"document": self.document, "query": self.query}
        name = next((n for n, text in named.items() if text == self.plain), TEXT)
        model.prompts = {**model.prompts, **named, **({TEXT: self.plain} if name == TEXT else {})}
        model.default_prompt_name = name if self.plain else None


def own_prompts(spec: EncoderSpec) -> dict[str, str]:
    """The prompts that an encoder's files name; none where all of them are empty, as sentence-transformers writes them."""
    named: dict[str, str] = {} if spec.vectors else spec.skeleton().prompts
    return named if any(named.values()) else {}


def role_prompts(spec: EncoderSpec) -> dict[str, str]:
    """The prompts before queries and documents by the encoder's own files, by role; {} where these name none.

    A document has that of the first of sentence-transformers' names that is not empty: it loads a folder that names a passage
    alone with an empty one for documents.
    """
    own = own_prompts(spec)
    document = next((text for name in ("document", "passage", "corpus") if (text := own.get(name))), "")
    query = own.get("query", "")
    return {"query": query, "document": document} if query or document else {}


def reading_notes(spec: EncoderSpec, *, searches: bool) -> list[str]:
    """Say what the encoder's files ask for and does not happen, another similarity than cosine; and where there are
    `searches`, what is put before queries and documents."""
    if spec.vectors is not None:
        return []
    notes, similarity = list[str](), spec.skeleton().similarity_fn_name
    if similarity not in (None, "cosine"):
        notes.append(f"{spec.title}: the model asks for {similarity} similarity, and is scored by cosine")
    if searches and spec.by_role:
        told = (
            f"{'other text' if role == TEXT else f'a {role}'} {f'with {text!r}' if text else 'without a prompt'}"
            for role, text in Prompts.of(spec).described().items()
        )
        notes.append(f"{spec.title} reads {', '.join(told)}")
    return notes


def literal_prompt(spec: EncoderSpec, value: str, option: str) -> str:
    """The text of a prompt: that of the encoder's own prompt of this name, else `value` itself.

    A single word is a name; text that is meant literally has a blank or a colon at its end.
    """
    own = own_prompts(spec)
    if value in own:
        return own[value]
    if _NAME.fullmatch(value):
        has = f"it has {', '.join(own)}" if own else "it has no prompts"
        raise InputError(
            f"{option}{value}: encoder {spec.name!r} has no prompt of that name ({has}); expected one of these, or the text "
            f"itself with what stands between it and a sentence, such as '{value}: '"
        )
    return value
