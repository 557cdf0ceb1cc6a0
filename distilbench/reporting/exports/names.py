"""File names that are derived from a text, never taken from it."""

from __future__ import annotations

import hashlib
import re


def slug(text: str, identity: str = "") -> str:
    """Up to 48 lower-case ascii letters and digits of `text`, with "-" between words, and 8 hex digits of a hash of both."""
    words = "-".join(re.findall(r"[a-z0-9]+", text.lower()))[:48].strip("-")
    digest = hashlib.sha256(f"{text}\0{identity}".encode("utf-8", "backslashreplace")).hexdigest()[:8]
    return f"{words}-{digest}" if words else digest
