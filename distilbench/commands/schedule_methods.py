"""The methods of a sweep, each with a run of its own: whose turn it is, for how long, and what those before it have found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distilbench.data.corpus import Corpus
from distilbench.methods import get_method
from distilbench.methods.method import Method
from distilbench.progress.clock import Clock
from distilbench.records import ScoreRecord, TrialRecord, read_records
from distilbench.search.front_patience import Point, points_of_records
from distilbench.search.space import SearchSpace


@dataclass
class MethodRun:
    """One method's run in a sweep."""

    space: SearchSpace
    corpus: Corpus
    run: Path
    name: str
    enqueued: list[dict[str, Any]] = field(default_factory=list)
    """The user's settings that are tried first."""
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Results that the run lacks, and why: said at the end, and on the page."""
    scores: list[ScoreRecord] = field(default_factory=list)
    cut_off: bool = False
    """Whether time was over before its search was."""
    unconfirmed: bool = False
    """Whether time was over before the last of its confirmations."""


def schedule_methods(members: Sequence[MethodRun], clock: Clock) -> Iterator[tuple[MethodRun, Clock, str]]:
    """Each method with its share of the time that is left, then those again that time cut off, while much of it is left:
    first those that only confirmations are missing of, which leave the others what they do not need.

    With each a word on its turn, "" where there is one method.
    """
    for number, member in enumerate(members):
        turn = f"{number + 1} of {len(members)}" if len(members) > 1 else ""
        share = clock.part(len(members) - number)
        yield member, share, turn
        clock.row_s = max(clock.row_s, share.row_s)
    again = [member for member in members if member.cut_off or member.unconfirmed] if len(members) > 1 else []
    for number, member in enumerate(sorted(again, key=lambda member: member.cut_off)):
        if clock.much_left:
            yield member, clock.part(len(again) - number), "goes on"


def points_found_before(member: MethodRun, members: Sequence[MethodRun], objectives: Sequence[str]) -> list[Point]:
    """The points of the trials of the methods before one; [] for a method that is judged by a task of its own."""
    alike = [m for m in members if get_method(m.space.method).task_scores is Method.task_scores]
    before = alike[: alike.index(member)] if member in alike else []
    trials = (record for m in before for record in read_records(m.run / "trials.jsonl"))
    return points_of_records((record for record in trials if isinstance(record, TrialRecord)), objectives)
