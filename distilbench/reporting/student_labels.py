"""What students were made from, in a word or two: "2 layers", "static". A label says the method and the dimension alone.

Sweeps of one method with other layers have the same labels: where two such rows share a page, every student's start is told.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from distilbench.records import AS_IT_CAME, FROZEN, ON_VECTORS, ScoreRecord

NOT_TOLD = frozenset({FROZEN, ON_VECTORS, AS_IT_CAME, ""})
"""Starts of rows that no encoder was trained for: their methods say it."""
_LAYERS = re.compile(r"(?P<encoder>.+) layers:(?P<numbers>\d+(?:,\d+)*)")
_TOKENS = re.compile(r"(?P<encoder>.+) tokens \((?P<kind>[^()]+)\)")
_ALL = re.compile(r"(?P<encoder>.+) \(all layers\)")


class _Start(NamedTuple):
    encoder: str
    short: str
    exact: str


def start_labels(records: Sequence[ScoreRecord]) -> dict[str, str]:
    """The words for each start of the trained students; {} where no two rows of one name have different ones.

    Two starts of as many layers are told by the layers' numbers, those of several encoders with the encoder.
    """
    starts_of: dict[tuple[str, str], set[str]] = {}
    for record in records:
        if start := start_label(record):
            starts_of.setdefault((record.teacher, record.name), set()).add(start)
    if all(len(of_name) == 1 for of_name in starts_of.values()):
        return {}
    starts = {start: _read(start) for start in sorted(set().union(*starts_of.values()))}
    several = len({start.encoder for start in starts.values()}) > 1
    places = Counter((start.encoder, start.short) for start in starts.values())
    return {
        name: (start.short if places[start.encoder, start.short] == 1 else start.exact)
        + (f" of {start.encoder}" if several and start.encoder else "")
        for name, start in starts.items()
    }


def start_label(record: ScoreRecord) -> str:
    """The start that a page may have to tell; "" of a row whose name says it, or that has none."""
    named = record.configuration or record.hyperparameters.get("student")
    return "" if record.role != "student" or named or record.start in NOT_TOLD else record.start


def _read(start: str) -> _Start:
    if found := _LAYERS.fullmatch(start):
        numbers = found["numbers"]
        count = numbers.count(",") + 1
        many = "layer" if count == 1 else "layers"
        return _Start(found["encoder"], f"{count} {many}", f"{many} {numbers}")
    if found := _TOKENS.fullmatch(start):
        return _Start(found["encoder"], found["kind"], found["kind"])
    if found := _ALL.fullmatch(start):
        return _Start(found["encoder"], "all layers", "all layers")
    return _Start("", start, start)
