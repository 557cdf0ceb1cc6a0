"""The records of one or more runs, as one list."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from distilbench.errors import InputError
from distilbench.records import ScoreRecord, TrialRecord, read_records


def read_runs(folders: Sequence[Path]) -> list[ScoreRecord | TrialRecord]:
    """Scores and trials of `folders`; a teacher or baseline that several runs scored on the same corpus is the first's.

    Raises:
        InputError: a folder without scores, or a malformed record.
    """
    records: list[ScoreRecord | TrialRecord] = []
    owners: dict[tuple[str, ...], Path] = {}
    for folder in folders:
        scores = latest_scores(folder)
        if not scores:
            raise InputError(f"{folder}: no scores.jsonl with records in it; expected the folder of a finished run")
        for record in scores:
            name = record.configuration or record.label
            key = (name, record.quantisation, record.teacher, record.corpus_fingerprint)
            if record.role == "student" or owners.setdefault(key, folder) == folder:
                records.append(record)
        records += [r for r in read_records(folder / "trials.jsonl") if isinstance(r, TrialRecord)]
    return records


def latest_scores(folder: Path) -> list[ScoreRecord]:
    """One record per encoder and seed of a run: of a student chosen anew after more trials, the newest choice."""
    latest: dict[tuple[object, ...], ScoreRecord] = {}
    for r in read_records(folder / "scores.jsonl"):
        if isinstance(r, ScoreRecord):
            latest[r.configuration, r.role, r.method, r.dim, r.quantisation, r.teacher, r.start, r.seed] = r
    return list(latest.values())
