"""Text that nobody vouches for, in Markdown: it is shown as it is, and is never structure, HTML or a link."""

from __future__ import annotations

import functools
import re
import unicodedata
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"
_ACTIVE = re.compile(r"([\\`*_\[\]|~#$])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_MENTION = re.compile(r"(?<!\w)@")
_UNSEEN = ("Cc", "Cs", "Zl", "Zp")
_TURNING = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the direction of what follows."""


def one_line(text: str) -> str:
    """The text on one line, without control characters."""
    characters = (
        " " if c.isspace() else "\ufffd" if unicodedata.category(c) in _UNSEEN or c in _TURNING else c for c in text
    )
    return " ".join("".join(characters).split())


def escaped(value: object) -> Markup:
    """Inline text, also for a table's cell, a heading or a list item. `Markup` is taken as it is.

    A bare address and a user's name are text too: GitHub's Markdown would make links of them.
    """
    if isinstance(value, Markup):
        return value
    text = _ACTIVE.sub(r"\\\1", one_line(str(value)))
    text = "".join(_ENTITIES.get(c, c) for c in text)
    return Markup(_MENTION.sub("&#64;", text).replace("://", r"\://").replace("www.", r"www\."))


def fenced(code: str, language: str) -> Markup:
    """A block of code, its fence longer than any in it."""
    longest = max((len(run) for run in re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return Markup(f"{fence}{language}\n{code}\n{fence}")


def render_markdown(template: str, **values: object) -> str:
    """A Markdown template of ours; every value in it goes through `escaped`."""
    return _environment().get_template(template).render(values)


@functools.cache
def _environment() -> jinja2.Environment:
    # Autoescape leaves Markup alone, which is what `finalize` gives.
    environment = template_environment(finalize=escaped, keep_trailing_newline=True)
    environment.filters["fenced"] = fenced
    return environment


def template_environment(*, autoescape: bool = True, **options: Any) -> jinja2.Environment:
    """Our templates; nothing that is not Markup gets into them as it is, and no name may be unknown."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=autoescape,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **options,
    )
