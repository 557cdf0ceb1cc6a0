"""A student's model card: README.md with Hugging Face's metadata, everything that its records say, and what they do not.

The metadata is huggingface_hub's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from distilbench.codes import FAISS_PEER, FAMILIES, code_of, family_of
from distilbench.encoders.encoder import HUB_IDS
from distilbench.encoders.prompts import TEXT
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
    return render_markdown(
        "model_card.md.j2",
        metadata=Markup(_metadata(record, name, code.base_model)),
        name=name,
        record=record,
        summary=_summary(board, row, record),
        warning=below_overlap(row),
        facts=dict(_facts(row, record)),
        code=code,
        scored=_scored(row, seed),
        columns=columns,
        scores=scores,
        training=_training_text(record),
        hyperparameters={str(name): value(setting) for name, setting in record.hyperparameters.items()},
        reproduce=reproduce_command(training) if training else "",
        limitations=list(_limitations(row, record)),
    )


def _summary(board: Leaderboard, row: Row, record: ScoreRecord) -> str:
    """What the model is, how it was made, and what is said of it on page, terminal and by `best`."""
    family, trained_for = family_of(record.quantisation), code_of(record.hyperparameters)
    if record.role == "teacher":
        made = f"It is {record.teacher} itself, the teacher of the students that it was scored beside."
    elif family and record.method == FAISS_PEER:
        made = (
            f"It is {record.teacher} itself; its vectors are kept in FAISS's own code {record.quantisation}: "
            f"{FAMILIES[family[0]].text}. It was fitted to training embeddings, without training a student."
        )
    elif record.method in FITTED:
        made = (
            f"It is {record.teacher} with a layer after it that DistilBench fitted ({record.method}), without training."
        )
    else:
        teacher = f", with {record.teacher} as its teacher" if record.teacher else ""
        what = "the query encoder" if record.documents else "it"
        made = f"DistilBench trained {what} by the method {record.method}{teacher}."
        if trained_for != "float32":
            other = "" if trained_for == record.quantisation else ", which is another form of it"
            made += f" It was trained for the code {trained_for}{other}."
    one = recommendation("", row, board, serving_costs(board))
    what, kept = "A sentence-transformers model: a sentence becomes", "kept"
    if record.documents:
        given = "are the given vectors of" if gives_documents(record) else "by"
        what = (
            "A sentence-transformers model for search: queries are embedded by the student, documents "
            f"{given} {record.documents}. Each becomes"
        )
        kept = "a document's kept"
    return (
        f"{what} {record.dim:,} numbers, {kept} in {record.bytes_per_vector:,} bytes ({record.quantisation}). {made} "
        f"In all: {one.summary} ({one.interval})."
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


def _facts(row: Row, record: ScoreRecord) -> Iterator[tuple[str, str]]:
    of_queries = " (the query encoder)" if record.documents else ""
    yield "Method", f"{record.method} ({record.label})"
    yield "Teacher", record.teacher or "none"
    yield "Student starts from", record.start
    if record.documents:
        given = "their vectors were given; what follows these is in documents/"
        yield "Queries", "the student (encode_query)"
        yield "Documents", f"{record.documents} ({given if gives_documents(record) else 'encode_document'})"
    yield "Dimensions", f"{record.dim:,}"
    yield "Bytes per vector", f"{record.bytes_per_vector:,} ({record.quantisation})"
    for role, prompt in record.prompts.items():
        texts = "other text" if role == TEXT else f"a {role}"
        yield f"Put before {texts}", f'"{prompt}"' if prompt else "nothing"
    if record.parameters:
        yield "Parameters", f"{record.parameters:,}{of_queries}"
    if record.latency_ms is not None:
        yield "Latency", f"{record.latency_ms:.3g} ms per sentence, one thread, in batches{of_queries}"
    if (own := code_overlap(row)) is not None:
        kept = f"{own.overlap10_with_flat:.1f} % of those of its float32 vectors ({set_name(own.set, own.split)})"
        yield "First 10 neighbours kept", kept
    yield "Corpus", record.corpus + (" (for demonstration)" if record.demonstration else "")


def _scored(row: Row, seed: SeedScores) -> str:
    said = "A dev score takes part in choosing settings and students: it is not a result."
    if any(s.low is not None for s in seed.record.scores):
        said += " An interval is the bootstrap's, over the items of the set."
    if len(row.seeds) > 1:
        numbers = ", ".join(str(one_seed.record.seed) for one_seed in row.seeds)
        said += f" This model is the one of seed {seed.record.seed}; means are over the seeds {numbers}, ± half of the 95 % "
        said += "confidence interval (Student's t over seeds)."
    code, documents = seed.record.quantisation, seed.record.documents
    if documents:
        said += f" Scores are of the pair: of the student's queries among documents by {documents}."
    if code != "float32":
        both = "" if documents else "of both sentences in STS, "
        said += f" Scores are of the {code} codes: {both}of the documents in retrieval."
    return said


def _training_text(record: ScoreRecord) -> str:
    run = f"part of the run {record.run}"
    how = run if record.trial is None else f"trial {record.trial} of the sweep {record.run}"
    if record.role == "teacher":
        return f"As it came; scored as {how}."
    made = "Fitted to" if record.method in FITTED else "Trained on"
    return f"{made} {record.corpus} with seed {record.seed}, as {how}."


def _limitations(row: Row, record: ScoreRecord) -> Iterator[str]:
    tested = {s.task for s in record.scores if s.split == "test"}
    missing = [name for name, tasks in _MEASURABLE if not tested & set(tasks)]
    if record.demonstration:
        yield "The corpus is small, for demonstration: how the model does on other text is not known."
    if missing:
        yield f"Not measured on any test set, in this form: {', '.join(missing)}."
    yield "Not measured: other languages, domains and lengths than those of the sets above; bias; safety."
    if record.latency_ms is None:
        yield "Not measured: its latency."
    if len(row.seeds) == 1:
        yield "One seed: how much of its scores is chance is not known."
    if record.provenance.commit.endswith("+changes"):
        yield "The code had changes that are in no commit."
    yield "No licence is stated here: those of the teacher, of the student's start and of the training text apply."
