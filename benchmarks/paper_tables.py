"""The tables of the four papers, with measured rows beside the published ones, as Markdown.

    python benchmarks/paper_tables.py runs/A results/records/mcr2.jsonl.xz [--table mcr2-2] [--out tables]

Published rows are `rows` and `references` of search_spaces/papers/*.yaml: other teachers, other data, another machine. They
are in italics. Of a run stand there the float32 rows, and of the trials of a sweep those that dev chose. Without --table
every table is made that a measured row fits. Clusters (MCR2, table 1) and the speed of pair heads (DSE, tables 3 and 4) have
no column in records: of these tables the published rows are printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from distilbench.errors import InputError
from distilbench.records import ScoreRecord
from distilbench.reporting.board import Leaderboard, Row, leaderboard, mean_cell, rivals
from distilbench.reporting.serving import serving_costs
from distilbench.reporting.study_file import read_study

SEVEN = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICK")
"""The sets of the papers' average."""
PAPERS = Path(__file__).resolve().parents[1] / "search_spaces" / "papers"
METRICS = {"accuracy": "accuracy", "f1": "F1", "pearson": "Pearson", "spearman": "Spearman"}
UNCOMPRESSED = ""
"""The method of a teacher, or of an encoder as it came."""
TINYBERT, MINILM = "TinyBERT_L-4_H-312_v2", "MiniLM-L6-H384-uncased"


@dataclass(frozen=True)
class Entry:
    """A row, published or measured. `values` are called as in `published` of the papers' files; `student` and `teacher`
    are last parts of names."""

    name: str
    method: str
    student: str
    teacher: str
    params: Mapping[str, Any]
    values: Mapping[str, float]
    source: str
    tables: tuple[str, ...] = ()
    """The numbers of the tables that print it; () of a measured row."""
    spread: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Column:
    """A column; a cell of several `names` is "86.7/85.9"."""

    title: str
    names: tuple[str, ...]
    digits: int = 2
    scale: float = 1.0
    shown: str = "number"


@dataclass(frozen=True)
class Block:
    """A group of rows: of `methods`, with that student or teacher ("": any) and these settings (True: set, False: not)."""

    title: str
    methods: tuple[str, ...]
    student: str = ""
    teacher: str = ""
    settings: tuple[tuple[str, bool], ...] = ()

    def fits(self, entry: Entry) -> bool:
        """Whether the row belongs to the group."""
        return (
            entry.method in self.methods
            and self.student in ("", entry.student)
            and self.teacher in ("", entry.teacher)
            and all(bool(entry.params.get(name)) is expected for name, expected in self.settings)
        )


@dataclass(frozen=True)
class Table:
    """A table. A row goes to the first block that it fits. `parts`: what is put after a row's name, and the columns there."""

    key: str
    title: str
    columns: tuple[Column, ...]
    blocks: tuple[Block, ...]
    note: str = ""
    parts: tuple[tuple[str, tuple[Column, ...]], ...] = ()
    parameters: tuple[str, ...] = ()
    """Hyper-parameters that a measured row names."""

    @property
    def forms(self) -> tuple[tuple[str, tuple[Column, ...]], ...]:
        """The parts of a row; one of all columns where a table has none."""
        return self.parts or (("", self.columns),)


def one(name: str, title: str = "", digits: int = 2, scale: float = 1.0, shown: str = "number") -> Column:
    return Column(title or name, (name,), digits, scale, shown)


def sts(suffix: str = "", digits: int = 2, scale: float = 1.0) -> dict[str, Column]:
    titles = {**{f"STS{year}": f"STS{year}" for year in range(12, 17)}, "STSB": "STS-B", "SICK": "SICK-R"}
    return {
        name: one(name + (suffix if name != "STSB" else ""), title, digits, scale) for name, title in titles.items()
    }


def times(columns: Sequence[Column], names: Iterable[str]) -> tuple[Column, ...]:
    return tuple(replace(column, names=(name,)) for column, name in zip(columns, names, strict=True))


AVERAGE, DIM = one("average", "Avg."), one("dim", "Dim", 0)
PARAMS, SPEED = one("parameters", "Params", 0, shown="millions"), one("sentences per second", "Speed", 0)
MARCO = (one("MRR@10"), one("Recall@1000"))
SEVEN_SETS = (*sts().values(), AVERAGE)
STS_NOTE = (
    "Spearman x 100; STS12-16 with all subsets concatenated. Measured on the text as it is; the papers' is tokenised and "
    "lower-cased. An average that lacks one of the seven sets is missing."
)
SPEED_NOTE = "Speed: sentences per second; published on a GPU, measured in batches on one thread of the run's machine."
PCA_NOTE = "PCA of the same teacher stands among the measured rows; the paper leaves it out."
PLAIN = (("ft_epochs", False), ("whiten_from", False))
AUGMENTED, WITHOUT = (*PLAIN, ("augmentation", True)), (*PLAIN, ("augmentation", False))
IBKD_METHODS = ("contrastive", "mse", "hpd", "crd", "ibkd")
KERNELS = ("kernel", "beta1", "beta2")


def backbones(methods: tuple[str, ...], first: str, settings: tuple[tuple[str, bool], ...] = ()) -> tuple[Block, ...]:
    return (
        Block(first, (UNCOMPRESSED,)),
        Block("Backbone for compact model: TinyBERT", methods, TINYBERT, settings=settings),
        Block("Backbone for compact model: MiniLM", methods, MINILM, settings=settings),
        Block("Other backbones", methods, settings=settings),
    )


def augmented() -> tuple[Block, ...]:
    students = (("HPD-MiniLM", MINILM), ("HPD-TinyBERT", TINYBERT), ("HPD, other backbones", ""))
    return tuple(
        Block(title + suffix, ("hpd",), student, settings=settings)
        for title, student in students
        for suffix, settings in (("", AUGMENTED), (" without augmentation", WITHOUT))
    )


def teachers() -> tuple[Block, ...]:
    methods = (UNCOMPRESSED, "mcr2", "pca")
    names = ("all-mpnet-base-v2", "all-MiniLM-L6-v2")
    return (*(Block(name, methods, teacher=name) for name in names), Block("Other encoders", methods))


HPD = (
    Table(
        "hpd-1",
        "HPD, table 1: sentence embeddings on STS tasks",
        (*SEVEN_SETS, replace(PARAMS, title="Size"), DIM, SPEED),
        backbones(("contrastive", "hpd"), "Large models", (("ft_epochs", False),)),
        f"{STS_NOTE} {SPEED_NOTE}",
    ),
    Table(
        "hpd-2",
        "HPD, table 2: data augmentation and dimensions",
        (DIM, sts()["STSB"], AVERAGE),
        augmented(),
        STS_NOTE,
    ),
    Table(
        "hpd-3",
        "HPD, table 3: semantic retrieval on Quora",
        (
            one("quora MRR@10", "MRR", 3, 0.01),
            one("quora ms per 1,000 queries", "Time", 1),
            one("quora MB", "Mem"),
        ),
        (
            Block("TinyBERT", ("hpd",), TINYBERT),
            Block("MiniLM", ("hpd",), MINILM),
            Block("Others", (UNCOMPRESSED, "hpd")),
        ),
        "IVF indexes of FAISS; MRR@10, ms per 1,000 queries, MB of the index. Every question2 is a document, question1 asks. "
        "Times and sizes depend on the documents: compare measured rows with each other.",
    ),
    Table(
        "hpd-4",
        "HPD, table 4: augmentation, dimensions and whitening on STS tasks",
        (DIM, *SEVEN_SETS),
        (*augmented(), Block("With whitening", ("hpd",), settings=(("ft_epochs", False), ("whiten_from", True)))),
        f"{STS_NOTE} Averages are as printed: that of HPD-MiniLM-H256 is 0.13 off the mean of its printed sets.",
    ),
)

CLUSTERS = tuple(
    one(f"quora {what}", title, 3 if title == "accuracy" else 2, 0.01 if title == "accuracy" else 1.0, shown)
    for what, title, shown in (
        ("cluster accuracy", "accuracy", "number"),
        ("encoding s", "encoding", "time"),
        ("cluster s", "clustering", "time"),
        ("total s", "total", "time"),
    )
)
K_MEANS = times(CLUSTERS, ("quora k-means accuracy", "quora encoding s", "quora k-means s", "quora k-means total s"))
WMEAN = sts(" wmean", 3, 0.01)
MCR2 = (
    Table(
        "mcr2-1",
        "MCR2, table 1: semantic retrieval within clusters",
        CLUSTERS,
        teachers(),
        "Share of queries with a duplicate in their own cluster, and the time (h:mm:ss, or s).",
        parts=(("", CLUSTERS), (" + kmeans", K_MEANS)),
    ),
    Table(
        "mcr2-2",
        "MCR2, table 2: semantic textual similarity",
        (DIM, WMEAN["STSB"], *(WMEAN[f"STS{year}"] for year in range(12, 17))),
        teachers(),
        f"Spearman; STS12-16 as means over each year's subsets, weighted by their sizes. {PCA_NOTE}",
    ),
    Table(
        "mcr2-3",
        "MCR2, table 3: sentence classification",
        (DIM, *map(one, ("SST2", "SST5", "MR", "CR", "SUBJ", "MPQA", "TREC", "MRPC"))),
        teachers(),
        f"Accuracy x 100 of a logistic regression on frozen embeddings (SentEval's protocol). {PCA_NOTE}",
    ),
    Table(
        "mcr2-4",
        "MCR2, table 4: knowledge distillation",
        (DIM, *SEVEN_SETS),
        (Block("MCR2", ("mcr2_distil",)), Block("PCA (HPD without augmentation)", ("hpd",), settings=WITHOUT)),
        STS_NOTE,
    ),
)

IBKD_SIZE = (PARAMS, replace(DIM, title="Dimension"))
IBKD_OTHER = (Block("Teachers", (UNCOMPRESSED,)), Block("Students", ("hpd", "ibkd")))
IBKD = (
    Table(
        "ibkd-2",
        "IBKD, table 2: STS datasets",
        (*SEVEN_SETS, *IBKD_SIZE),
        backbones(IBKD_METHODS, "Teachers"),
        f"{STS_NOTE} Averages are as printed: those of MiniLM-CRD (by 0.45), TinyBERT-IBKD (0.43), TinyBERT-HPD_ft (0.26) "
        "and MiniLM-IBKD_ft (0.14) are not the means of the printed sets.",
        parameters=KERNELS,
    ),
    Table(
        "ibkd-3",
        "IBKD, table 3: MS MARCO passages",
        (*MARCO, *reversed(IBKD_SIZE), SPEED, one("index GB", "Memory, GB", 1)),
        backbones(IBKD_METHODS, "Teachers"),
        f"Records have no Recall@1000 and, for most sets, no index of MS MARCO's size. {SPEED_NOTE}",
        parameters=KERNELS,
    ),
    Table(
        "ibkd-4",
        "IBKD, table 4: kernels",
        (replace(AVERAGE, title="STS"), one("MRR@10", "DR")),
        (Block("", ("ibkd",), settings=(("ft_epochs", True),)),),
        "STS: average Spearman x 100 of the seven sets; DR: MRR@10 x 100 on MS MARCO, there of another model.",
        parameters=KERNELS,
    ),
    Table(
        "ibkd-6",
        "IBKD, table 6: STS with other teachers",
        (AVERAGE, *IBKD_SIZE),
        IBKD_OTHER,
        f"The published rows have SimCSE-BERT-large as their teacher. {STS_NOTE}",
    ),
    Table(
        "ibkd-7",
        "IBKD, table 7: dense retrieval with other teachers",
        (*MARCO, *IBKD_SIZE),
        IBKD_OTHER,
        "The published rows have RetroMAE as their teacher. The paper prints two rows each as TinyBERT-HPD and "
        "TinyBERT-IBKD; by place and value the second is the fine-tuned one.",
    ),
)

PAIR = ("F1", "accuracy")
BOTH = ("Pearson", "Spearman")
ALL_PAIRS = (
    one("all pairs speedup", "Speedup factor", 0),
    one("all pairs s", "Time", shown="time"),
    one("all pairs batch", "Max batch size", 0),
    one("all pairs s per batch", "Time / Max batch size", shown="time"),
)
CATALOGUE = (one("catalogue speedup", "Speedup factor", 0), one("catalogue s", "Time", shown="time"))


def phases(columns: Sequence[Column], setup: str) -> tuple[tuple[str, tuple[Column, ...]], ...]:
    """The whole of a row, its encoder (psi) and its pair head (f)."""
    return tuple(
        (suffix, times(columns, (c.names[0].replace(setup, f"{setup}{part}") for c in columns)))
        for suffix, part in (("", ""), (" (psi phase)", " psi"), (" (f phase)", " f"))
    )


DSE = (
    Table(
        "dse-1",
        "DSE, table 1: sentence-pair tasks",
        (
            Column("MNLI", ("MNLI matched accuracy", "MNLI mismatched accuracy"), 1),
            Column("QQP", tuple(f"QQP {m}" for m in PAIR), 1),
            one("QNLI accuracy", "QNLI", 1),
            Column("MRPC", tuple(f"MRPC {m}" for m in PAIR), 1),
            Column("STS-B", tuple(f"STSB {m}" for m in BOTH), 1),
            one("GLUE average", "AVG"),
        ),
        (
            Block("Cross Attentive Models", ("cross-encoder",)),
            Block("Sentence Embedding Models", (UNCOMPRESSED, "dse")),
        ),
        "Published on GLUE's test sets, measured on those of the data folder. MNLI is matched / mismatched, here its two dev "
        "sets, of which the matched one may have chosen the student.",
    ),
    Table(
        "dse-2",
        "DSE, table 2: universal sentence embeddings",
        (
            *(one(name, digits=1) for name in ("MR", "CR", "SUBJ", "MPQA")),
            *(one("SST2", "SST", 1), one("TREC", digits=1)),
            Column("MRPC", tuple(f"probe MRPC {m}" for m in PAIR), 1),
            one("probe SICK Pearson", "SICK-R", 3, 0.01),
            one("SICK-E", digits=1),
            Column("STS-B", tuple(f"probe STSB {m}" for m in BOTH), 1),
            one("universal average", "AVG", 1),
        ),
        (Block("", (UNCOMPRESSED, "dse")),),
        "Linear models on frozen embeddings: accuracy, for MRPC F1 / accuracy, SICK-R Pearson, STS-B Pearson / Spearman. "
        "Measured pair tasks are of the pair probe, whose protocol is not SentEval's.",
    ),
    Table(
        "dse-3",
        "DSE, table 3: 1M pairs of 1,000 sentences",
        ALL_PAIRS,
        (Block("", ("cross-encoder", "dse")),),
        parts=phases(ALL_PAIRS, "all pairs"),
    ),
    Table(
        "dse-4",
        "DSE, table 4: one query against a catalogue of 100,000 sentences",
        CATALOGUE,
        (Block("", ("cross-encoder", "dse", UNCOMPRESSED)),),
        parts=phases(CATALOGUE, "catalogue"),
    ),
)

TABLES = {table.key: table for table in (*HPD, *MCR2, *IBKD, *DSE)}
NAMES = {name for table in TABLES.values() for _, columns in table.forms for column in columns for name in column.names}
NAMES |= {f"{name} wmean" for name in SEVEN} | {*SEVEN, "MS MARCO MRR@10 (its DR model)"}
"""What `published` may name."""


SIZES = {"dim", "parameters", "sentences per second", "quora encoding s"}
"""What a row may have in every table: no score of its own."""


def published(folder: Path = PAPERS) -> list[Entry]:
    """All rows of the four papers. Those of one name and table that differ only in their pair task are one."""
    rows: dict[tuple[str, str, str], Entry] = {}
    for path in sorted(folder.glob("*.yaml")):
        file = yaml.safe_load(path.read_text(encoding="utf-8"))
        for row in chain(file["rows"], file.get("references", ())):
            entry = printed(path, file, row)
            key = (path.stem, entry.name, row.get("table", ""))
            rows[key] = replace(entry, values={**rows[key].values, **entry.values}) if key in rows else entry
    return list(rows.values())


def printed(path: Path, file: Mapping[str, Any], row: Mapping[str, Any]) -> Entry:
    params = row.get("params", {})
    task, student = str(params.get("task", "")), row.get("student") or row.get("encoder", "")
    values = {f"{task} {name}".strip(): float(value) for name, value in row["published"].items()}
    if unknown := sorted(values.keys() - NAMES):
        raise InputError(f"{path}: row {row['name']!r}: published: {unknown[0]!r} is no known score")
    if "MS MARCO MRR@10 (its DR model)" in values:
        values["MRR@10"] = values.pop("MS MARCO MRR@10 (its DR model)")
    if size := str(row.get("parameters") or file.get("sizes", {}).get(student, "")):
        values["parameters"] = 1e6 * float(size.removesuffix("M"))
    dim = params.get("output_dim") if isinstance(params.get("output_dim"), int) else row.get("dim")
    last = student.rsplit("/", 1)[-1]
    numbers = row.get("table", "").replace(",", " ").replace("and", " ").split()
    return Entry(
        row["name"].removesuffix(f" {task}" if task else " DR"),
        row.get("method", ""),
        last,
        row.get("teacher", "").rsplit("/", 1)[-1] or last,
        params,
        values if dim is None else {**values, "dim": dim},
        f"published: {file['paper']}",
        tuple(f"{path.stem}-{number}" for number in numbers),
    )


def representatives(board: Leaderboard) -> list[Row]:
    """The float32 rows; of the trials of a sweep that compete, only the one that dev chose."""
    plain = [row for row in board.rows if row.record.quantisation == "float32"]
    decided = {rivals(row.record) for row in plain if row.chosen}
    return [row for row in plain if row.record.trial is None or row.chosen or rivals(row.record) not in decided]


def measured(board: Leaderboard) -> list[Entry]:
    """The rows of a leaderboard."""
    speeds = serving_costs(board).rows
    return [measured_entry(row, speeds[row.anchor].sentences_per_s) for row in representatives(board)]


def joined(table: Table, entries: Iterable[Entry]) -> list[Entry]:
    """Rows of one name that have no score of the table in common are one: a model for each task, as the papers print it."""
    names = {name for _, columns in table.forms for column in columns for name in column.names} - SIZES
    found: list[Entry] = []
    for entry in entries:
        for place, other in enumerate(found if entry.tables or "task" in entry.params else ()):
            same = (other.name, other.source, other.method) == (entry.name, entry.source, entry.method)
            if same and not names & other.values.keys() & entry.values.keys():
                found[place] = replace(other, values={**entry.values, **other.values})
                break
        else:
            found.append(entry)
    return found


def measured_entry(row: Row, speed: float | None) -> Entry:
    r = row.record
    uncompressed = r.role in ("teacher", "encoder")
    values: dict[str, list[float]] = {}
    for seed in row.seeds:
        for name, value in scores_of(seed.record):
            values.setdefault(name, []).append(value)
    cells = {name: mean_cell(found) for name, found in values.items()}
    if speed is not None:
        cells["sentences per second"] = mean_cell([speed])
    tasked = r.method == "dse" and "task" in r.hyperparameters
    if not tasked:
        cells |= {"dim": mean_cell([float(r.dim)]), "parameters": mean_cell([float(r.parameters)])}
    alpha = r.hyperparameters.get("alpha", 0.5)
    frozen = "Frozen, " if r.hyperparameters.get("frozen") else ""
    notes = [f"run {r.run}", *([f"teacher {r.teacher}"] if r.teacher and not uncompressed else [])]
    notes += [f"start {r.start}"] if r.start and not uncompressed else []
    notes += [f"{len(row.seeds)} seeds"] if len(row.seeds) > 1 else []
    return Entry(
        f"DSE ({frozen}alpha = {alpha:g}), d={r.dim}" if tasked else row.name,
        UNCOMPRESSED if uncompressed else r.method,
        r.start.rsplit("/", 1)[-1],
        (r.teacher or r.label).rsplit("/", 1)[-1],
        r.hyperparameters,
        {name: cell.value for name, cell in cells.items() if cell.value is not None},
        ", ".join(["measured", *notes]),
        spread={name: cell.interval for name, cell in cells.items() if cell.interval is not None},
    )


def scores_of(record: ScoreRecord) -> Iterator[tuple[str, float]]:
    """A record's scores, called as in the papers' files; the average over the seven STS sets where all are there."""
    found: dict[str, float] = {}
    for s in record.scores:
        metric = METRICS.get(s.metric, s.metric)
        if s.task == "sts" and s.split == "test" and s.metric == "spearman" and s.variant in ("all", "wmean"):
            found[s.set if s.variant == "all" else f"{s.set} wmean"] = s.value
        elif s.variant != "all":
            continue
        elif s.task == "pairs" and s.set == "MNLI":
            found[f"MNLI {'matched' if s.split == 'dev' else 'mismatched'} {metric}"] = s.value
        elif s.task == "retrieval" and "".join(filter(str.isalnum, s.set.lower())) == "msmarco":
            found[{"mrr@10": "MRR@10", "recall@1000": "Recall@1000"}.get(s.metric, s.metric)] = s.value
        elif s.split == "test" and s.task in ("classification", "pairs", "pair-probe"):
            task = {"classification": s.set, "pairs": f"{s.set} {metric}", "pair-probe": f"probe {s.set} {metric}"}
            found[task[s.task]] = s.value
    for c in record.indexes:
        if (c.kind, c.set, c.device) == ("ivf", "quora-duplicates", "cpu"):
            found |= {"quora MRR@10": c.mrr10, "quora ms per 1,000 queries": c.ms_per_1000_queries}
            found["quora MB"] = c.bytes / 1e6
        elif c.kind == "flat" and "".join(filter(str.isalnum, c.set.lower())) == "msmarco":
            found["index GB"] = c.bytes / 1e9
    if all(name in found for name in SEVEN):
        found["average"] = sum(found[name] for name in SEVEN) / len(SEVEN)
    yield from found.items()


def lines(table: Table, entries: Sequence[Entry]) -> list[str]:
    """The Markdown of a table: the rows of each block that have one of its scores, published ones first."""
    titles = ["Model", *(column.title for column in table.columns), "From"]
    out = [f"## {table.title}", "", piped(titles), piped(["---", *["---:"] * len(table.columns), "---"])]
    placed: dict[Block, list[list[str]]] = {block: [] for block in table.blocks}
    for entry in entries:
        block = next((block for block in table.blocks if block.fits(entry)), None)
        if block is not None:
            placed[block] += cells_of(table, entry)
    for block, rows in placed.items():
        if rows and block.title:
            out.append(piped([f"**{block.title}**", *[""] * (len(titles) - 1)]))
        out += map(piped, rows)
    return [*out, "", *([table.note] if table.note else [])]


def cells_of(table: Table, entry: Entry) -> list[list[str]]:
    """The lines of an entry: one for each of the table's parts in which it has a score; none where it has none."""
    about = [f"{name} {entry.params[name]}" for name in table.parameters if name in entry.params and not entry.tables]
    found = []
    for suffix, columns in table.forms:
        if is_scored(columns, entry):
            cells = [entry.name + suffix, *(shown(c, entry) for c in columns), ", ".join([entry.source, *about])]
            found.append([f"*{cell}*" if entry.tables and cell != "-" else cell.replace("|", "\\|") for cell in cells])
    return found


def is_scored(columns: Iterable[Column], entry: Entry) -> bool:
    return any(name in entry.values for column in columns for name in column.names if name not in SIZES)


def shown(column: Column, entry: Entry) -> str:
    values = [entry.values.get(name) for name in column.names]
    numbers = ["-" if value is None else f"{value * column.scale:.{column.digits}f}" for value in values]
    if all(value is None for value in values):
        return "-"
    value = values[0] or 0.0
    if column.shown == "millions":
        return f"{value / 1e6:.{0 if value >= 1e7 else 1}f}M"
    if column.shown == "time":
        minutes, rest = divmod(round(value), 60)
        return f"{value:.3g} s" if value < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
    half = entry.spread.get(column.names[0])
    return "/".join(numbers) + (f" ± {half * column.scale:.{column.digits}f}" if half is not None else "")


def piped(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def made(board: Leaderboard, keys: Sequence[str] = ()) -> dict[str, str]:
    """The tables by key: those that are asked for, or those that a measured row fits."""
    printed_rows, rows = published(), measured(board)
    found = {}
    for table in TABLES.values():
        of_table = joined(table, (entry for entry in printed_rows if table.key in entry.tables))
        fitting = joined(table, (e for e in rows if any(b.fits(e) for b in table.blocks) and cells_of(table, e)))
        if table.key in keys or (fitting and not keys):
            found[table.key] = "\n".join(lines(table, [*of_table, *fitting])) + "\n"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", type=Path, help="run folders, files of records, folders of reports")
    parser.add_argument("--table", action="append", default=[], choices=TABLES, help="only this one; may be repeated")
    parser.add_argument("--out", type=Path, help="a folder for one file each; default: all are printed")
    chosen = parser.parse_args()
    try:
        records = read_study(chosen.sources).records if chosen.sources else ()
        tables = made(leaderboard(records), chosen.table)
    except InputError as error:
        sys.exit(str(error))
    for key, text in tables.items():
        if chosen.out is None:
            print(text)
        else:
            chosen.out.mkdir(parents=True, exist_ok=True)
            (chosen.out / f"{key}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
