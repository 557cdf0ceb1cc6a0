"""The records of one or more runs, as one list."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from distilbench.errors import InputError
from distilbench.records import ScoreRecord, TrialRecord, read_records, read_trials
from distilbench.storage.files import fingerprint, read_json_object

SCORES = "scores.jsonl"
TRIAL_FILES = ("trials.jsonl", "confirmations.jsonl")
Record = ScoreRecord | TrialRecord


def run_folders(folders: Sequence[Path]) -> list[Path]:
    """`folders`, and instead of one that holds the runs of several methods (RUN/mcr2, RUN/hpd) those runs."""
    runs: list[Path] = []
    for folder in folders:
        inside = [] if is_run(folder) else sorted(path.parent for path in folder.glob(f"*/{SCORES}"))
        runs += inside or [folder]
    return list(dict.fromkeys(runs))


def is_run(folder: Path) -> bool:
    """Whether the folder is that of one run, begun or finished."""
    return any((folder / name).exists() for name in (SCORES, "config.json"))


def read_runs(folders: Sequence[Path], *, unfinished: bool = False) -> list[Record]:
    """Scores, trials and confirmations of `folders`, of which one may hold the runs of several methods.

    A teacher or baseline that several runs scored on the same corpus is the first's. With `unfinished` a run may have no
    scores yet.
    """
    each = folders if unfinished else run_folders(folders)
    return list(merged((folder, run_records(folder, unfinished=unfinished)) for folder in each))


def run_records(folder: Path, *, unfinished: bool = False) -> list[Record]:
    """Scores, trials and confirmations of one run."""
    scores = latest_scores(folder)
    if not scores and not unfinished:
        raise InputError(f"{folder}: no scores.jsonl with records in it; expected the folder of a finished run")
    return [*scores, *read_trials(*(folder / file for file in TRIAL_FILES))]


def merged(parts: Iterable[tuple[Path, Iterable[Record]]]) -> Iterator[Record]:
    """The records of each source, in order; a teacher or baseline that several scored on the same sets is the first's."""
    owners: dict[tuple[str, ...], Path] = {}
    for source, records in parts:
        for record in records:
            if isinstance(record, ScoreRecord) and record.role != "student":
                scored_on = fingerprint(record.sets) if record.sets else record.corpus_fingerprint
                key = record.name, record.quantisation, record.teacher, record.origin, record.weights, scored_on
                if owners.setdefault(key, source) != source:
                    continue
            yield record


def latest_scores(folder: Path) -> list[ScoreRecord]:
    """One record per encoder and seed of a run; of a sweep's students those of the trials that are chosen now.

    More trials, or an interrupted one that was finished, may have changed the choice: `confirmed.json` has the present one.
    """
    latest: dict[tuple[object, ...], ScoreRecord] = {}
    chosen = _chosen(folder)
    for r in read_records(folder / SCORES):
        if not isinstance(r, ScoreRecord):
            continue
        if chosen is None or r.role != "student" or (r.trial, r.configuration) in chosen:
            key = (r.configuration, r.role, r.method, r.dim, r.quantisation, r.teacher, r.start, r.seed, r.trial)
            latest[*key, r.documents, r.label if r.role == "encoder" else "", r.weights] = r
    return list(latest.values())


def _chosen(folder: Path) -> set[tuple[int | None, str]] | None:
    """Number and name of the chosen trials; None where the run has none, as a comparison."""
    file = folder / "confirmed.json"
    if not file.exists():
        return None
    told = "so which trials are chosen is not known; the run's command, repeated, writes it again"
    entries = itertools.chain(*read_json_object(file, told).values())
    return {(entry["trial"], entry.get("configuration", "")) for entry in entries}
