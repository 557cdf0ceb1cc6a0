"""How the rows of a leaderboard compare, by one paired bootstrap of the predictions that their runs keep.

Two questions have their answers here: which rows' test scores cannot be told apart (ties), and which rows' dev scores differ,
by which students are chosen. No test item has a part in the second. The answers are a few numbers a row, so a report's file
of records keeps them; rows are named by their anchors.
"""

from __future__ import annotations

import contextlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Literal
from zlib import crc32

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from distilbench.errors import InputError
from distilbench.evaluation import bootstrap
from distilbench.evaluation.bootstrap import RESAMPLES, TAILS, Difference, Items, paired_bootstrap
from distilbench.evaluation.examples import Examples
from distilbench.evaluation.predictions import Predictions, predictions_path
from distilbench.evaluation.sts import spearman
from distilbench.records import selection_groups
from distilbench.reporting.board import Leaderboard, Row, SeedScores, beside, competes, told
from distilbench.reporting.columns import DEV, TEST
from distilbench.selection import Selection

TOLERANCE = 1e-3
"""How far (x 100) what kept predictions give may be from the record: values are kept in float32, with seven digits."""
DRAWS = 64
"""Resamples of each test set that a page carries: the interval of a difference has its width to a tenth, in 171 letters."""
NAMED = 3
"""Rows named in a notice; the others are counted."""
Split = Literal["dev", "test"]
SeedItems = Sequence[Mapping[str, Items]]
"""For each seed of a row what it said of the items of every set."""


class ReportPart(BaseModel):
    """A part of what a report's file of records says beside records (`reporting.study_file`)."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Tie(ReportPart):
    """A row's place among those of as many bytes: its group, and its difference to the group's first row, the `leader`.

    `leader_name` is what that row is called; `others` counts the group's other rows.
    """

    group: str = Field(pattern="^[a-z]+$")
    leader: str
    leader_name: str
    others: int
    difference: Difference


class DevGroup(ReportPart):
    """Rows with the same dev items, and the pairs of them (positions in `rows`) that their dev scores do not tell apart."""

    rows: list[str]
    alike: list[tuple[int, int]]

    @model_validator(mode="after")
    def _inside(self) -> DevGroup:
        if any(not 0 <= place < len(self.rows) for pair in self.alike for place in pair):
            raise ValueError(f"expected positions of {len(self.rows)} rows, from 0")
        return self


class Comparison(ReportPart):
    """How rows compare. `seeds` has the anchors of all seeds of all rows: it says nothing of any other leaderboard.

    `without` names the rows that have no tie group: a seed's predictions are not kept, or their test items are not those of
    the other rows on their corpus. Committed files of earlier versions say more.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    seeds: list[str] = []
    resamples: int = RESAMPLES
    ties: dict[str, Tie] = {}
    without: list[str] = []
    dev: list[DevGroup] = []
    draws: dict[str, dict[str, str]] = {}
    """By row and test set (a key of the leaderboard's columns) how far its score moves with each of `DRAWS` resamples."""
    examples: dict[str, Examples] = {}
    """By row what its first seed loses."""

    @model_validator(mode="after")
    def _known(self) -> Comparison:
        named = [*self.ties, *(tie.leader for tie in self.ties.values()), *(row for g in self.dev for row in g.rows)]
        if unknown := set(named) - set(self.seeds):
            raise ValueError(f"{min(unknown)!r} is no row of this leaderboard")
        return self

    @cached_property
    def alike(self) -> frozenset[frozenset[str]]:
        """The pairs of rows that their dev scores do not tell apart."""
        return frozenset(frozenset((g.rows[i], g.rows[j])) for g in self.dev for i, j in g.alike)

    def differ(self, one: Row, other: Row) -> bool:
        """Return whether the 95 % interval of the difference of two rows' dev scores (means over seeds) leaves 0 out.

        Of rows without kept dev predictions any two different scores differ.
        """
        return one.dev.value != other.dev.value and frozenset((one.anchor, other.anchor)) not in self.alike

    def is_of(self, board: Leaderboard) -> bool:
        """Return whether the comparison is of the rows and seeds of `board`."""
        return self.seeds == board.anchors


NOT_COMPARED = Comparison()


def compare_rows(board: Leaderboard, folders: Sequence[Path]) -> Comparison:
    """Compare the rows of `board` by the predictions that the runs in `folders` keep.

    Ties are groups of rows of as many bytes per vector on one corpus, whatever dimension and code; the teacher's float32 row
    and rows without a test score have none. A file that is missing, damaged or not what its record says costs its row the
    comparison, nothing else.
    """
    kept = _all_kept(board, folders)
    ties, without = _ties(board, kept)
    more = {"dev": list(_dev_groups(board, kept)), "draws": _draws(board, kept)}
    return Comparison(seeds=board.anchors, ties=ties, without=without, examples=_examples(board, folders), **more)


def dev_comparison(board: Leaderboard, folders: Sequence[Path]) -> Comparison:
    """Compare the rows' dev scores alone."""
    return Comparison(seeds=board.anchors, dev=list(_dev_groups(board, _all_kept(board, folders))))


def tie_notices(comparison: Comparison) -> tuple[str, ...]:
    """What a reader has to know of the tie groups; nothing where they were not looked for."""
    lines = []
    if comparison.ties:
        lines.append(
            "Tie groups: of the rows of as many bytes per vector, those with the same letter cannot be told from the group's "
            "first row: the 95 % interval of the difference in test score holds 0, by a paired bootstrap of "
            f"{comparison.resamples:,} resamples, which draw the items of each test set, the same for every row, and the "
            "seeds of each row, with replacement. A row of one seed keeps it, so what its training owes to chance is not in "
            "the interval; with two or three seeds, not all of it is. Two rows of a group that are not its first may differ."
        )
    if names := comparison.without:
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        rows = f"{len(names)} {'row' if len(names) == 1 else 'rows'} ({', '.join(names[:NAMED])}{more})"
        why = "a seed's predictions are not kept or not readable, or of other test items than the other rows'"
        lines.append(f"Without a tie group, since {why}: {rows}.")
    return tuple(lines)


Kept = Mapping[str, Sequence[Predictions]]
"""By a row's anchor the predictions of its seeds; without the rows of which a seed's are not there."""


def _all_kept(board: Leaderboard, folders: Sequence[Path]) -> Kept:
    seeds = {row.anchor: [_kept_of_seed(board, seed, folders) for seed in row.seeds] for row in board.rows}
    return {anchor: [p for p in found if p is not None] for anchor, found in seeds.items() if None not in found}


def _kept_of_seed(board: Leaderboard, seed: SeedScores, folders: Iterable[Path]) -> Predictions | None:
    """The first kept predictions that give the record's own dev and test scores."""
    scores: dict[Split, float | None] = {"test": seed.score(TEST), "dev": seed.score(DEV)}
    for folder in folders:
        with contextlib.suppress(InputError):
            predictions = Predictions.load(predictions_path(folder, seed.record.record_id))
            if all(_gives(items_of(predictions, board.selection, split), score) for split, score in scores.items()):
                return predictions
    return None


def _gives(items: Mapping[str, Items], score: float | None) -> bool:
    if score is None or not items:
        return True
    whole = 0.0
    for value_P, gold_P, weight in items.values():
        exact_P = np.asarray(value_P, dtype=np.float64)
        whole += weight * (100 * float(exact_P.mean()) if gold_P is None else spearman(exact_P, np.asarray(gold_P)))
    return abs(whole - score) < TOLERANCE


def items_of(predictions: Predictions, selection: Selection, split: Split) -> dict[str, Items]:
    """What is kept of every set of the selection, with its weight; {} where a part has nothing.

    Of STS on dev those that a mix has measured ("sts/SET"), else the groups that select.
    """
    kept: Mapping[str, Items] = getattr(predictions, split)
    found: dict[str, Items] = {}
    for part in selection.parts:
        names = [name for name in kept if name.startswith(f"{part.kind}/")]
        if part.kind == "retrieval":
            names = [name for name in names if name.endswith(f"/{part.metric}")]
        elif part.kind == "sts" and split == "dev":
            groups = selection_groups(name.split("/")[1] for name in names)
            names = [name for name in names if name.count("/") == 1] or [f"sts/{g}/spearman" for g in groups]
        if not names:
            return {}
        found |= {name: kept[name]._replace(weight=part.weight / len(names)) for name in names}
    return found


def _same_items(one: Mapping[str, Items], other: Mapping[str, Items]) -> bool:
    return one.keys() == other.keys() and all(
        len(a.value_P) == len(b.value_P)
        and (a.gold_P is None or (b.gold_P is not None and np.array_equal(a.gold_P, b.gold_P)))
        for a, b in ((items, other[name]) for name, items in one.items())
    )


def _by_items(
    rows: Iterable[Row], kept: Kept, read: Callable[[Predictions], Mapping[str, Items]]
) -> list[list[tuple[Row, SeedItems]]]:
    """The rows of which `read` finds something, those of the same items together."""
    groups: list[list[tuple[Row, SeedItems]]] = []
    for row in rows:
        seeds = [read(predictions) for predictions in kept.get(row.anchor, ())]
        if not seeds or not all(seeds) or not all(_same_items(seeds[0], items) for items in seeds):
            continue
        group = next((group for group in groups if _same_items(group[0][1][0], seeds[0])), None)
        if group is None:
            groups.append(group := [])
        group.append((row, seeds))
    return groups


def _ties(board: Leaderboard, kept: Kept) -> tuple[dict[str, Tie], list[str]]:
    """The ties, and the rows without one, within each corpus and number of bytes."""
    compared: dict[tuple[str, bool, int], list[Row]] = {}
    for row in board.rows:
        if competes(row.record) and row.test.value is not None:
            compared.setdefault((*beside(row), row.record.bytes_per_vector), []).append(row)
    ties: dict[str, Tie] = {}
    without = []
    for rows in compared.values():
        same, *_ = _by_items(rows, kept, lambda p: items_of(p, board.selection, "test")) or [[]]
        groups = bootstrap.grouped(paired_bootstrap([seeds for _, seeds in same])) if same else []
        leaders = [tie.leader for tie in groups]
        for (row, _), tie in zip(same, groups, strict=True):
            leader, others = same[tie.leader][0], leaders.count(tie.leader) - 1
            named = {"leader": leader.anchor, "leader_name": told(leader), "others": others}
            ties[row.anchor] = Tie(group=tie.group, difference=tie.difference, **named)
        without += [told(row) for row in rows if row.anchor not in ties]
    return ties, without


def _draws(board: Leaderboard, kept: Kept) -> dict[str, dict[str, str]]:
    """The paired bootstrap of each test set by itself: thousandths from the score, two bytes each, as base64.

    Rows are drawn alike where they have the same items. Each set has draws of its own, so those of a mean of sets add up.
    """
    found: dict[str, dict[str, str]] = {}
    for column in board.columns:
        if len(column.keys) != 1 or column.keys[0][2] != "test" or column.key == TEST:
            continue
        task, name, _, metric = column.keys[0]
        for group in _by_items(board.rows, kept, partial(_items_named, f"{task}/{name}/{metric}")):
            seed = crc32(column.key.encode())
            averages = paired_bootstrap([seeds for _, seeds in group], resamples=DRAWS, seed=seed)
            moved_BR = np.clip(1000 * (averages.resampled_BR - averages.observed_R), -32767, 32767).astype("<i2")
            for (row, _), moved_B in zip(group, moved_BR.T, strict=True):
                found.setdefault(row.anchor, {})[column.key] = b64encode(moved_B.tobytes()).decode()
    return found


def _examples(board: Leaderboard, folders: Sequence[Path]) -> dict[str, Examples]:
    found = {}
    for row in board.rows:
        loaded = (Examples.load(folder, row.record.record_id) for folder in folders)
        if examples := next(filter(None, loaded), None):
            found[row.anchor] = examples
    return found


def _items_named(name: str, predictions: Predictions) -> dict[str, Items]:
    """The items of one test set; {} where none are kept."""
    return {name: predictions.test[name]} if name in predictions.test else {}


def _dev_groups(board: Leaderboard, kept: Kept) -> Iterator[DevGroup]:
    """Two rows are alike if their difference has an interval that holds 0: 0.1 s for 100 rows, 2.6 s for 500."""
    for group in _by_items(board.rows, kept, lambda p: items_of(p, board.selection, "dev")):
        if len(group) > 1:
            dev_BR = paired_bootstrap([seeds for _, seeds in group]).resampled_BR
            alike: list[tuple[int, int]] = []
            for i in range(len(group) - 1):
                low_R, high_R = np.percentile(dev_BR[:, i + 1 :] - dev_BR[:, [i]], TAILS, axis=0)
                alike += [(i, i + 1 + int(j)) for j in np.flatnonzero((low_R <= 0) & (high_R >= 0))]
            yield DevGroup(rows=[row.anchor for row, _ in group], alike=alike)
