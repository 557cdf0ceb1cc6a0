"""What rows are called beside their label, where several on a page have the same.

Of students, what they were made from in a word or two: "2 layers", "static". Of encoders as they came, the end of their path.
Sweeps of one method with other layers have the same labels: where two such rows share a page, every student's start is told.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
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


def told_apart(sources: Iterable[str]) -> dict[str, str]:
    """Of each folder or hub id the shortest end that no other one has; one that is the end of another may be the same."""
    parts = {source: Path(source).parts for source in sorted(set(sources))}

    def end(own: tuple[str, ...]) -> str:
        others = [other for other in parts.values() if not is_end(own, other) and not is_end(other, own)]
        lengths = range(1, len(own) + 1)
        shortest = next((n for n in lengths if all(not is_end(own[-n:], other) for other in others)), len(own))
        return str(Path(*own[-shortest:]))

    return {source: end(own) for source, own in parts.items() if own}


def is_end(end: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    """Whether a path ends with these parts."""
    return parts[len(parts) - len(end) :] == end


def by_source(record: ScoreRecord, ends: Mapping[str, str]) -> str:
    """The record's name; with as much of its source as `told_apart` has found to be needed."""
    end = ends.get(record.source, "")
    if "/" not in end:
        return record.name
    return f"{Path(end).parent}/{record.name}" if record.role in ("teacher", "encoder") else f"{record.name} of {end}"


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
