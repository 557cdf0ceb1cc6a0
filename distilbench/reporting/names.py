"""What rows are called: by their label alone, or where several on a page share it, by what tells them apart.

That is the end of an encoder's path, the start of a student in a word or two ("2 layers", "static"), its width, the trial,
the weights.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from distilbench.records import AS_IT_CAME, FROZEN, ON_VECTORS, ScoreRecord

PAIR = "teacher's documents"


def row_names(records: Sequence[ScoreRecord]) -> list[str]:
    """What each record's row is called. Last comes that its queries search the teacher's documents."""
    starts, ends = _start_labels(records), source_ends(r.source for r in records)
    names = [(name_by_source(r, ends).replace(f", {PAIR}", ""), starts.get(_start_of(r), "")) for r in records]
    places = [
        (r.run, name, r.quantisation, r.teacher, r.corpus_fingerprint, r.documents)
        for r, name in zip(records, names, strict=True)
    ]
    shared: dict[tuple[object, ...], list[ScoreRecord]] = {}
    for record, place in zip(records, places, strict=True):
        shared.setdefault(place, []).append(record)
    told = []
    for r, name, place in zip(records, names, places, strict=True):
        alike = shared[place]
        dim = f"d={r.dim}" if len({other.dim for other in alike}) > 1 else ""
        trial = f"trial {r.trial}" if r.trial is not None and len(alike) > 1 else ""
        weights = f"weights {r.weights[:8]}" if len({other.weights for other in alike}) > 1 else ""
        told.append(", ".join(filter(None, (*name, dim, trial, weights, PAIR if r.documents else ""))))
    return told


def source_ends(sources: Iterable[str]) -> dict[str, str]:
    """Of each folder or hub id the shortest end that no other one has; one that is the end of another may be the same."""
    parts = {source: Path(source).parts for source in sorted(set(sources))}
    ends = {}
    for source, own in parts.items():
        others = [other for other in parts.values() if not _is_end(own, other) and not _is_end(other, own)]
        lengths = (n for n in range(1, len(own)) if not any(_is_end(own[-n:], other) for other in others))
        if own:
            ends[source] = str(Path(*own[-next(lengths, len(own)) :]))
    return ends


def name_by_source(record: ScoreRecord, ends: Mapping[str, str]) -> str:
    """The record's name; with as much of its source as `source_ends` has found to be needed."""
    end = ends.get(record.source, "")
    if "/" not in end:
        return record.name
    return f"{Path(end).parent}/{record.name}" if record.role in ("teacher", "encoder") else f"{record.name} of {end}"


def _is_end(end: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    return parts[len(parts) - len(end) :] == end


def _start_labels(records: Iterable[ScoreRecord]) -> dict[str, str]:
    """A word or two for each start of the trained students, the whole start where two say the same.

    {} where no two rows of one name differ in it: a label says the method and the dimension alone.
    """
    named = {(r.teacher, r.name, start) for r in records if (start := _start_of(r))}
    if len(named) == len({(teacher, name) for teacher, name, _ in named}):
        return {}
    short = {start: _short_start(start) for _, _, start in named}
    counts = Counter(short.values())
    return {start: text if counts[text] == 1 else start for start, text in short.items()}


def _start_of(record: ScoreRecord) -> str:
    """The start that a page may have to tell; "" of a row whose name says it, or whose encoder was not trained."""
    named = record.configuration or record.hyperparameters.get("student")
    trained = record.role == "student" and record.start not in (FROZEN, ON_VECTORS, AS_IT_CAME)
    return record.start if trained and not named else ""


def _short_start(start: str) -> str:
    if layers := re.fullmatch(r".+ layers:(\d+(?:,\d+)*)", start):
        count = layers[1].count(",") + 1
        return f"{count} {'layer' if count == 1 else 'layers'}"
    kind = re.fullmatch(r".+ (?:tokens )?\(([^()]+)\)", start)
    return kind[1] if kind else start
