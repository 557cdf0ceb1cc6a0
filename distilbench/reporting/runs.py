"""The records of one or more runs, as one list."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from distilbench.errors import InputError
from distilbench.records import ScoreRecord, TrialRecord, read_records


def read_runs(folders: Sequence[Path]) -> list[ScoreRecord | TrialRecord]:
    """Scores and trials of `folders`; a teacher or baseline that several runs scored on the same corpus appears once.

    Raises:
        InputError: a folder without scores, or a malformed record.
    """
    records: list[ScoreRecord | TrialRecord] = []
    seen: set[tuple[str, ...]] = set()
    for folder in folders:
        scores = latest_scores(folder)
        if not scores:
            raise InputError(f"{folder}: no scores.jsonl with records in it; expected the folder of a finished run")
        for record in scores:
            key = (record.label, record.teacher, record.corpus_fingerprint)
            if record.role == "student" or key not in seen:
                records.append(record)
            seen.add(key)
        records += [r for r in read_records(folder / "trials.jsonl") if isinstance(r, TrialRecord)]
    return records


def latest_scores(folder: Path) -> list[ScoreRecord]:
    """One row per method and dimension of a run: of a student that was chosen anew after more trials, the newest choice."""
    latest: dict[tuple[str, str, int], ScoreRecord] = {}
    for record in read_records(folder / "scores.jsonl"):
        if isinstance(record, ScoreRecord):
            latest[record.role, record.method, record.dim] = record
    return list(latest.values())
