"""WordNet 3.0 through NLTK, from NLTK's data folders or from Debian's package."""

# mypy: disable-error-code="misc"
# NLTK tells no types.

from __future__ import annotations

import hashlib
import io
import warnings
from pathlib import Path
from typing import Any

from distilbench.errors import InputError

INSTALL = "python -m nltk.downloader wordnet"
"""What synonyms need: WordNet (30 MB)."""

DEBIAN_WORDNET = Path("/usr/share/wordnet")
EXPECTED = f"expected `{INSTALL}`; on Debian `apt-get install wordnet-base` can take the place of the download"
FILES = tuple(
    [f"{kind}.{pos}" for kind in ("data", "index") for pos in ("noun", "verb", "adj", "adv")]
    + [f"{pos}.exc" for pos in ("noun", "verb", "adj", "adv")]
)
"""Synsets, words and irregular forms: what synonyms are read from."""
_LEXNAMES = 45  # lexicographer files of WordNet 3.0


def find_wordnet() -> Any:
    """The folder of WordNet's files: NLTK's pointer, into a zip file too, or the Debian package's path."""
    import nltk

    for place in ("corpora/wordnet", "corpora/wordnet.zip/wordnet/"):
        try:
            return nltk.data.find(place)
        except LookupError:
            continue
    if not (DEBIAN_WORDNET / "data.noun").exists():
        raise InputError(
            f"augmentation synonym: WordNet is neither in NLTK's data folders nor in {DEBIAN_WORDNET}; {EXPECTED}"
        )
    return DEBIAN_WORDNET


def wordnet_checksums() -> dict[str, str]:
    """SHA-256 of each of `FILES`. 0.1 s."""
    folder = find_wordnet()
    checksums = {}
    for name in FILES:
        with (folder / name).open("rb") if isinstance(folder, Path) else folder.join(name).open() as file:
            checksums[name] = hashlib.sha256(file.read()).hexdigest()
    return checksums


def read_wordnet() -> Any:
    """NLTK's reader of WordNet. 1.4 s."""
    if find_wordnet() != DEBIAN_WORDNET:
        from nltk.corpus import wordnet

        wordnet.ensure_loaded()
        return wordnet

    import nltk
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    class DebianReader(WordNetCorpusReader):
        def open(self, file: str) -> io.TextIOBase:
            if file == "lexnames":  # not in the package, and its names are not asked for here
                return io.StringIO("".join(f"{i} {i} 0\n" for i in range(_LEXNAMES)))
            return (DEBIAN_WORDNET / file).open(encoding="utf-8")

        def map_wn(self, version: str = "") -> None:
            """No map to another WordNet: it serves other languages, and its file `index.sense` is another package."""

    if str(DEBIAN_WORDNET) not in nltk.data.path:
        nltk.data.path.append(str(DEBIAN_WORDNET))  # NLTK reads nowhere else, nor through links
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # English alone
        return DebianReader(str(DEBIAN_WORDNET), None)
