"""What the four papers print, as rows that can stand beside measured ones: `search_spaces/papers/*.yaml` -> tuples.

In those files `rows` are what `distilbench compare` trains and `references` what nothing here trains (teachers,
cross-encoders, other people's baselines); both say in `published` what the paper prints, x 100 where it is a score. A row is
never a measured one: another teacher, other data, another machine.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from distilbench.errors import InputError
from distilbench.reporting.table import AVERAGE, SEVEN, Leaderboard, Variant

_PACKAGE = Path(__file__).resolve().parents[1]
SENTENCE_SETS = ("MR", "CR", "SUBJ", "MPQA", "SST2", "SST5", "TREC", "MRPC", "SICK-E")
WHOLE = "average"
"""The set of an average over the sets of a table."""


class ScoreKey(NamedTuple):
    """What a published number is of: task, set and metric as in `records.Score`, and the variant.

    An STS set has the variants "all" and "wmean", MNLI "matched" and "mismatched". Tasks that records do not score: "index",
    whose variant is the kind, "clusters", likewise, "efficiency" and "encoder", whose set is "".
    """

    task: str
    set: str
    metric: str
    variant: str = "all"


def _sts(name: str, variant: str = "all") -> ScoreKey:
    return ScoreKey("sts", name, "spearman", variant)


def _efficiency() -> dict[str, ScoreKey]:
    parts = {"": "total", "psi ": "psi", "f ": "f"}
    names = [("all pairs", "s per batch"), ("all pairs", "batch"), ("all pairs", "s"), ("catalogue", "s")]
    keys = {f"{s} {p}{m}": ScoreKey("efficiency", s, m, part) for s, m in names for p, part in parts.items()}
    return keys | {f"{s} speedup": ScoreKey("efficiency", s, "speedup", "total") for s in ("all pairs", "catalogue")}


KEYS: Mapping[str, ScoreKey] = {
    **{name: _sts(name) for name in SEVEN},
    **{f"{name} wmean": _sts(name, "wmean") for name in SEVEN},
    "average": _sts(WHOLE),
    **{name: ScoreKey("classification", name, "accuracy") for name in SENTENCE_SETS},
    "quora MRR@10": ScoreKey("index", "quora-duplicates", "mrr@10", "ivf"),
    "quora ms per 1,000 queries": ScoreKey("index", "quora-duplicates", "ms per 1,000 queries", "ivf"),
    "quora MB": ScoreKey("index", "quora-duplicates", "MB", "ivf"),
    "index GB": ScoreKey("index", "msmarco", "GB", "flat"),
    "quora cluster accuracy": ScoreKey("clusters", "quora", "accuracy", "implicit"),
    "quora total s": ScoreKey("clusters", "quora", "total s", "implicit"),
    "quora k-means accuracy": ScoreKey("clusters", "quora", "accuracy", "k-means"),
    "quora k-means s": ScoreKey("clusters", "quora", "clustering s", "k-means"),
    "quora k-means total s": ScoreKey("clusters", "quora", "total s", "k-means"),
    "quora encoding s": ScoreKey("clusters", "quora", "encoding s"),
    "MRR@10": ScoreKey("retrieval", "msmarco", "mrr@10"),
    "MS MARCO MRR@10 (its DR model)": ScoreKey("retrieval", "msmarco", "mrr@10"),
    "Recall@1000": ScoreKey("retrieval", "msmarco", "recall@1000"),
    "sentences per second": ScoreKey("encoder", "", "sentences/s"),
    **{f"MNLI {kind} accuracy": ScoreKey("pairs", "MNLI", "accuracy", kind) for kind in ("matched", "mismatched")},
    **{f"{name} {m}": ScoreKey("pairs", name, m.lower()) for name in ("QQP", "MRPC") for m in ("F1", "accuracy")},
    "QNLI accuracy": ScoreKey("pairs", "QNLI", "accuracy"),
    **{f"STSB {m}": ScoreKey("pairs", "STSB", m.lower()) for m in ("Pearson", "Spearman")},
    "GLUE average": ScoreKey("pairs", WHOLE, "mean"),
    **{f"probe MRPC {m}": ScoreKey("pair-probe", "MRPC", m.lower()) for m in ("F1", "accuracy")},
    **{f"probe STSB {m}": ScoreKey("pair-probe", "STSB", m.lower()) for m in ("Pearson", "Spearman")},
    "probe SICK Pearson": ScoreKey("pair-probe", "SICK", "pearson"),
    "universal average": ScoreKey("pair-probe", WHOLE, "mean"),
    **_efficiency(),
}
"""The names in `published`, and what they are of. A row of one pair task leaves the task's name out ("F1")."""


class Published(NamedTuple):
    """A row of a paper's table, named as there. `table` is "1" or "1, 2 and 4"; `method` one of ours, or "".

    `dim` is None where the source does not say, or where it is the student's own; `parameters` likewise. `trained`: whether
    `distilbench compare` can train it, with the hyper-parameters `params`.
    """

    paper: str
    table: str
    name: str
    method: str
    dim: int | None
    teacher: str
    student: str
    parameters: int | None
    scores: Mapping[ScoreKey, float]
    params: Mapping[str, Any]
    trained: bool
    note: str = ""

    @property
    def tables(self) -> tuple[str, ...]:
        """The numbers of the tables it is in."""
        return tuple(self.table.replace(",", " ").replace("and", " ").split())


class _Entry(BaseModel):
    """A row of either list; what training needs beside it is left aside here."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    method: str = ""
    table: str = ""
    teacher: str = ""
    student: str = ""
    encoder: str = ""
    dim: int | None = None
    parameters: str = ""
    params: dict[str, Any] = Field(default_factory=dict)
    published: dict[str, float] = Field(default_factory=dict)
    note: str = ""


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    paper: str
    sizes: dict[str, str] = Field(default_factory=dict)
    rows: list[_Entry]
    references: list[_Entry] = Field(default_factory=list)


def papers_folder() -> Path | None:
    """`search_spaces/papers` of this checkout, or what an installed package has of it; None where there is neither."""
    places = (_PACKAGE.parent / "search_spaces" / "papers", _PACKAGE / "search_spaces" / "papers")
    return next((place for place in places if place.is_dir()), None)


@functools.cache
def published_rows() -> tuple[Published, ...]:
    """All rows of the four papers, in the order of the files; none where `papers_folder` is None.

    Raises:
        InputError: as `read_published`.
    """
    folder = papers_folder()
    return tuple(row for path in sorted(folder.glob("*.yaml")) for row in read_published(path)) if folder else ()


def read_published(path: Path) -> tuple[Published, ...]:
    """The published rows of one file. Rows of one table and name that differ only in their pair task are one.

    Raises:
        InputError: not readable, not YAML, a field is missing or of a wrong type, or a published number has an unknown name.
    """
    # Not `configurations.read_configurations`: it checks what is trained, for which it imports PyTorch (2 s).
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        file = _File.model_validate(yaml.load(path.read_text(encoding="utf-8"), Loader=loader))  # noqa: S506 -- a SafeLoader
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read as YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}: {where}: {first['msg']} (got {first['input']!r:.80})") from None
    entries = [(entry, True) for entry in file.rows] + [(entry, False) for entry in file.references]
    rows: dict[tuple[str, str], Published] = {}
    for entry, trained in entries:
        row = _row(path, file, entry, trained)
        key = (row.name, row.table)
        earlier = rows.get(key)
        rows[key] = row if earlier is None else earlier._replace(scores={**earlier.scores, **row.scores})
    return tuple(rows.values())


def column_key(key: ScoreKey) -> str | None:
    """The key of the leaderboard column (`table.Column.key`) that holds such scores; None where there is no such column."""
    if key.task == "sts":
        return AVERAGE if key.set == WHOLE else f"sts:{key.set}"
    if key.variant != "all" or key.set == WHOLE:
        return None
    if key.task == "retrieval":
        return f"{key.metric.replace('@', '')}:{key.set}"
    return f"{key.task}:{key.set}:{key.metric}" if key.task in ("classification", "pairs", "pair-probe") else None


def board_values(row: Published, board: Leaderboard, variant: Variant = "all") -> tuple[float | None, ...]:
    """The row's scores (x 100) in the leaderboard's columns, None where it has none of that set, metric and variant.

    STS-B and SICK have one file each, so their value is that of both variants. The papers' average is over seven sets: it
    stands only beside averages over the same.
    """
    values: dict[str, float] = {}
    for key, value in row.scores.items():
        one_file = key.set in ("STSB", "SICK")
        if key.task == "sts" and key.variant != variant and not one_file:
            continue
        if key.task == "sts" and key.set == WHOLE and set(board.sts_sets) != set(SEVEN):
            continue
        column = column_key(key)
        if column is not None:
            values[column] = value
    return tuple(None if column.dev else values.get(column.key) for column in board.columns)


def board_rows(board: Leaderboard, rows: Sequence[Published] | None = None) -> tuple[Published, ...]:
    """The published rows that have a value in some column of the leaderboard, in either variant."""
    variants: tuple[Variant, ...] = ("all", "wmean") if board.has_wmean else ("all",)
    rows = published_rows() if rows is None else rows
    return tuple(r for r in rows if any(v is not None for variant in variants for v in board_values(r, board, variant)))


def _row(path: Path, file: _File, entry: _Entry, trained: bool) -> Published:
    task = str(entry.params.get("task", ""))
    output = entry.params.get("output_dim")
    student = entry.student or entry.encoder
    size = entry.parameters or file.sizes.get(student, "")
    scores = {}
    for name, value in entry.published.items():
        key = KEYS.get(f"{task} {name}" if task else name)
        if key is None:
            raise InputError(
                f"{path}: row {entry.name!r}: published: {name!r} is no known score; known: {', '.join(KEYS)}"
            )
        scores[key] = value
    if size:
        scores[ScoreKey("encoder", "", "parameters")] = _count(path, entry.name, size)
    dim = output if isinstance(output, int) else entry.dim
    if dim is not None:
        scores[ScoreKey("encoder", "", "dim")] = dim
    return Published(
        paper=file.paper,
        table=entry.table,
        name=entry.name.removesuffix(f" {task}" if task else " DR"),
        method=entry.method,
        dim=dim,
        teacher=entry.teacher,
        student=student,
        parameters=_count(path, entry.name, size) if size else None,
        scores=scores,
        params=entry.params,
        trained=trained,
        note=entry.note,
    )


def _count(path: Path, name: str, size: str) -> int:
    """ "14M" -> 14,000,000."""
    if not size.endswith("M") or not size[:-1].isdecimal():
        raise InputError(f'{path}: row {name!r}: its size is {size!r}; expected millions of parameters, such as "14M"')
    return int(size[:-1]) * 1_000_000
