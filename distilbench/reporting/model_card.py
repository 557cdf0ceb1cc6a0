"""A student's model card: README.md with Hugging Face's metadata, everything that its records say, and what they do not.

The metadata is huggingface_hub's own.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from distilbench.codes import FAISS_PEER, FAMILIES, code_of, family_of
from distilbench.encoders.encoder import HUB_IDS
from distilbench.encoders.student import StudentSpec
from distilbench.records import FROZEN, ON_VECTORS, ScoreRecord, TrialRecord
from distilbench.reporting.board import Cell, Leaderboard, Row, SeedScores, teacher_row, told
from distilbench.reporting.choice import recommendation
from distilbench.reporting.formats import set_name, value
from distilbench.reporting.loading import FITTED, gives_documents
from distilbench.reporting.markdown import one_line, render_markdown
from distilbench.reporting.run_facts import reproduce_command
from distilbench.reporting.serving import below_overlap, code_overlap, serving_costs
from distilbench.selection import TITLES

CARD = "README.md"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_HUB_TASKS = {
    "sts": ("semantic-similarity", "Semantic similarity", None),
    "classification": ("text-classification", "Sentence classification, regression on the vectors", None),
    "retrieval": ("information-retrieval", "Information retrieval", None),
    "asymmetric": ("information-retrieval", "Information retrieval, documents by another encoder", "asymmetric"),
    "pairs": ("text-classification", "Sentence pairs, the model's own pair head", "pair head"),
    "pair-probe": ("text-classification", "Sentence pairs, regression on the vectors", "pair probe"),
    "fidelity": ("sentence-similarity", "Fidelity to the teacher, on held-out sentences", None),
}
"""For each of our tasks: the metadata's task, its name, and what tells two of the same set apart."""
_MEASURABLE = (
    ("semantic similarity", ("sts",)),
    ("sentence classification", ("classification",)),
    ("retrieval", ("retrieval", "asymmetric")),
    ("pair tasks", ("pairs", "pair-probe")),
)


class Snippets(NamedTuple):
    """What the reader gets with the model: Python that loads it, that runs its ONNX graph, and the hub id of the encoder that
    it was made from; "" where there is none.
    """

    load: str
    onnx: str = ""
    base_model: str = ""


def model_card(
    board: Leaderboard,
    row: Row,
    seed: SeedScores,
    training: TrialRecord | None,
    code: Snippets,
) -> str:
    """The whole of README.md for one seed's model of a row; `training` is None where it is not recorded."""
    record = seed.record
    name = row.name + ("" if told(row) == row.name else f" ({record.quantisation})")
    columns, scores = _scores(board, row, seed)
    family = family_of(record.quantisation)
    tested = {s.task for s in record.scores if s.split == "test"}
    return render_markdown(
        "model_card.md.j2",
        metadata=Markup(_metadata(record, name, code.base_model)),
        name=name,
        record=record,
        row=row,
        recommended=recommendation("", row, board, serving_costs(board)),
        warning=below_overlap(row),
        peer=FAMILIES[family[0]].text if family and record.method == FAISS_PEER else "",
        fitted=record.method in FITTED,
        given=gives_documents(record),
        trained_for=code_of(record.hyperparameters),
        overlap=code_overlap(row),
        set_name=set_name,
        code=code,
        columns=columns,
        scores=scores,
        hyperparameters={str(name): value(setting) for name, setting in record.hyperparameters.items()},
        reproduce=reproduce_command(training) if training else "",
        unmeasured=[name for name, tasks in _MEASURABLE if not tested & set(tasks)],
    )


def _metadata(record: ScoreRecord, name: str, base_model: str) -> str:
    """The card's YAML: Hugging Face's fields, every score as a fraction of 1 as sentence-transformers' evaluators give it."""
    from huggingface_hub import EvalResult, ModelCardData

    results = []
    for s in record.scores:
        if s.variant == "all" and s.task in _HUB_TASKS:
            task, task_name, config = _HUB_TASKS[s.task]
            result = EvalResult(
                task_type=task,
                task_name=task_name,
                dataset_config=config,
                dataset_type=one_line(s.set),
                dataset_name=one_line(s.set),
                dataset_split=s.split,
                metric_type=f"{s.metric}_cosine" if s.task == "sts" else s.metric,
                metric_name=TITLES[s.metric],
                metric_value=round(s.value / 100, 6),
            )
            results.append(result)
    method = re.sub(r"[^a-z0-9]+", "-", record.method.lower()).strip("-")[:40]
    tags = ["sentence-transformers", "sentence-similarity", "feature-extraction", "distilbench", method]
    tags += [record.quantisation] if record.quantisation != "float32" else []
    base: dict[str, Any] = {"base_model": base_model} if base_model else {}
    data = ModelCardData(
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=[tag for tag in dict.fromkeys(tags) if tag],
        model_name=one_line(name) or "student",
        eval_results=results or None,
        **base,
    )
    return data.to_yaml()


def hub_base(run: Path, record: ScoreRecord) -> str:
    """The hub id of the encoder that a student was made from, as its run's `prepared` says; "" where it has none."""
    try:
        prepared = json.loads((run / "prepared" / "prepared.json").read_text())
        teacher, student = str(prepared["teacher"]["name"]), str(prepared["student"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    name = teacher if record.start == FROZEN else StudentSpec.parse(student).encoder or teacher
    name = HUB_IDS.get(name, name)
    known = record.start != ON_VECTORS and _HUB_ID.fullmatch(name) and ".." not in name
    return name if known else ""


def _scores(board: Leaderboard, row: Row, seed: SeedScores) -> tuple[list[str], dict[str, list[str]]]:
    """The headings, and the cells of each of the leaderboard's columns that the seed has a score in."""
    teacher, several = teacher_row(row, board.rows), len(row.seeds) > 1
    headings = ["This model", "95 % interval", *([f"Mean of {len(row.seeds)} seeds"] if several else [])]
    headings += ["Teacher", "Of the teacher's"] if teacher else []
    scores = {}
    for column in board.columns:
        own, mean = seed.values[column.key], row.cells[column.key]
        if own.value is not None:
            bounds = "" if own.low is None or own.high is None else f"{own.low:.2f} to {own.high:.2f}"
            cells = [f"{own.value:.2f}", bounds, *([_shown(mean)] if several else [])]
            if teacher:
                share = "" if mean.retention is None else f"{mean.retention:.1f} %"
                cells += [_shown(teacher.cells[column.key]._replace(interval=None)), share]
            group = "" if column.group == column.title else f"{column.group}: "
            scores[f"{group}{column.title}"] = cells
    return headings, scores


def _shown(cell: Cell) -> str:
    if cell.value is None:
        return ""
    return f"{cell.value:.2f}" + ("" if cell.interval is None else f" ± {cell.interval:.2f}")
