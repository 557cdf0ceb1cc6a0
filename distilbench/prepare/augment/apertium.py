"""English - Spanish - English by Apertium's rules, Debian's package apertium-eng-spa. Fast, and often ungrammatical."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from distilbench.errors import InputError
from distilbench.prepare.augment.translation_engine import ROLE, RoundTrip, TranslationEngine
from distilbench.storage.files import file_sha256

THERE, BACK = "eng-spa", "spa-eng"
DATA = Path(os.environ.get("APERTIUM_DATADIR", "/usr/share/apertium"))


@dataclass(frozen=True)
class Apertium(TranslationEngine):
    """One run of the program for each direction and each list of sentences; a run starts in 0.2 s.

    Apertium's tagger carries ambiguities that it was not trained on from one sentence to the next: 7 of 1,500 sentences
    are translated differently in another order. So the copies are the same for the same lists of sentences.
    """

    name: ClassVar[str] = "apertium"
    install: ClassVar[str] = "apt-get install apertium-eng-spa"

    def identity(self) -> dict[str, Any]:
        """The program's version, and checksums of the two directions' data."""
        self.check()
        printed = subprocess.run(["apertium", "-V"], capture_output=True, text=True, check=False)
        files = [DATA / "modes" / f"{direction}.mode" for direction in (THERE, BACK)]
        files += sorted(path for path in (DATA / "apertium-eng-spa").iterdir() if path.is_file())
        version = (printed.stdout or printed.stderr).strip()
        return {"version": version, "data": {str(path.relative_to(DATA)): file_sha256(path) for path in files}}

    def check(self) -> None:
        """The program and both directions are there."""
        modes = [DATA / "modes" / f"{direction}.mode" for direction in (THERE, BACK)]
        if shutil.which("apertium") is None or not all(mode.exists() for mode in modes):
            raise InputError(f"{ROLE}: Apertium's English-Spanish is not installed; expected `{self.install}`")

    def load(self) -> RoundTrip:
        """Nothing to load."""
        self.check()

        def round_trip(sentences: Sequence[str]) -> list[str]:
            return translated(translated(sentences, THERE), BACK)

        return round_trip


def translated(sentences: Sequence[str], direction: str) -> list[str]:
    """Each sentence in the other language; "" of an empty one, and of one that Apertium breaks in pieces.

    Where the number of paragraphs that come back is not the number sent, the list is halved until it is.

    Raises:
        RuntimeError: the program failed.
    """
    rows = [row for row, sentence in enumerate(sentences) if sentence]
    if not rows:
        return [""] * len(sentences)
    paragraphs = _run([sentences[row] for row in rows], direction)
    if len(paragraphs) != len(rows):
        if len(sentences) == 1:
            return [""]
        middle = len(sentences) // 2
        return translated(sentences[:middle], direction) + translated(sentences[middle:], direction)
    translations = [""] * len(sentences)
    for row, paragraph in zip(rows, paragraphs, strict=True):
        translations[row] = " ".join(paragraph.split())
    return translations


def _run(sentences: Sequence[str], direction: str) -> list[str]:
    """The paragraphs that come back. `-u` leaves out the marks of words that Apertium cannot translate (*, @ and #)."""
    text = "\n\n".join(_one_line(sentence) for sentence in sentences)
    done = subprocess.run(
        ["apertium", "-u", direction],
        input=text,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"apertium {direction}: {done.stderr.strip():.500}")
    return done.stdout.strip("\n").split("\n\n")


def _one_line(sentence: str) -> str:
    """Without what is no character of a line: a NUL, for example, ends Apertium's stream."""
    return " ".join("".join(c if c.isprintable() else " " for c in sentence).split())
