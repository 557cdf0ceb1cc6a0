"""The records of one or more runs, as one list."""

from __future__ import annotations

import json
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
    """One record per encoder and seed of a run; of a sweep's students those of the trials that are chosen now.

    More trials may have changed the choice: `confirmed.json` has the present one.
    """
    latest: dict[tuple[object, ...], ScoreRecord] = {}
    chosen = _chosen(folder)
    for r in read_records(folder / "scores.jsonl"):
        if isinstance(r, ScoreRecord) and (chosen is None or r.role != "student" or r.trial in chosen):
            key = (r.configuration, r.role, r.method, r.dim, r.quantisation, r.teacher, r.start, r.seed, r.trial)
            latest[key] = r
    return list(latest.values())


def _chosen(folder: Path) -> set[int] | None:
    """Numbers of the chosen trials; None where the run has none, as a comparison."""
    file = folder / "confirmed.json"
    if not file.exists():
        return None
    return {item["trial"] for own in json.loads(file.read_text()).values() for item in own}
