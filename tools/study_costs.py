"""Add to a report's records what its encoders cost to embed with, where the runs did not measure it.

python tools/study_costs.py reports/real-data/records.jsonl.xz --teacher FOLDER --sentences DIR/sts/STSB.dev.tsv

A speed depends on shapes, not on weights: each start of the records (the teacher, some of its layers, a table of its tokens)
is made anew from the teacher, saved, and timed beside it by `distilbench.evaluation.cost`. A head after the pooling changes
the bytes alone. The report gets a note that says so.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from pathlib import Path

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.student import load_student
from distilbench.evaluation import cost as timing
from distilbench.evaluation.cost import CostBench
from distilbench.records import FROZEN, EncoderCost, ScoreRecord
from distilbench.reporting.study_file import read_study, write_study
from distilbench.storage.store import ArtifactStore
from distilbench.trials.costs import FLOAT32

LAYERS, STATIC = " layers:", " tokens (static)"
NOTE = (
    "Speeds were measured after the study, on {processor}: of encoders with the teacher's layers or tokens that a row has, "
    "not of its own weights, which are not kept. They read sentences of STS-B, over and over: a static one knows their words."
)


def made(start: str, teacher: EncoderSpec, width: int) -> SentenceTransformer | None:
    """An encoder of the shape that a record's `start` names; None if it names none of the teacher's."""
    if LAYERS in start:
        return load_student(start.split(" ", 1)[1], teacher, "cpu")
    if start.endswith(STATIC):
        return SentenceTransformer(modules=[StaticEmbedding(teacher.load("cpu").tokenizer, embedding_dim=width)])
    return None


def main() -> None:
    """Measure each shape once, and write the file anew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path)
    parser.add_argument("--teacher", required=True, help="the study's teacher: a folder or hub id")
    parser.add_argument("--sentences", type=Path, required=True, help="a .tsv with a column sentence1")
    chosen = parser.parse_args()
    study, teacher = read_study([chosen.records]), EncoderSpec(chosen.teacher)
    with chosen.sentences.open(newline="", encoding="utf-8") as file:
        texts = [row["sentence1"] for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    scores = [record for record in study.records if isinstance(record, ScoreRecord)]
    timing.ENOUGH_S = 60.0  # measured once, for a page that stays
    with tempfile.TemporaryDirectory() as name:
        bench = CostBench(texts, ArtifactStore(Path(name) / "store"))
        costs: dict[str, tuple[EncoderCost, int]] = {FROZEN: (bench.cost(teacher), count(teacher.load("cpu")))}
        for place, start in enumerate(sorted({record.start for record in scores} - {FROZEN})):
            width = max(record.dim for record in scores if record.start == start)  # narrower ones are cut from it
            model = made(start, teacher, width)
            if model is not None:
                folder = Path(name) / str(place)
                model.save(str(folder))
                costs[start] = bench.cost(EncoderSpec(str(folder))), count(model)
    for start, (cost, _) in costs.items():
        print(f"{start}: {cost.sentences_per_second_32:,.0f} sentences/s, known to {cost.spread:.1%}")
    written = [with_cost(record, costs) if isinstance(record, ScoreRecord) else record for record in study.records]
    report = study.report
    if report is not None:
        note = NOTE.format(processor=bench.machine["processor"])
        report = report.model_copy(update={"notes": [*(n for n in report.notes if n[:30] != NOTE[:30]), note]})
    write_study(chosen.records, written, study.runs, report)


def count(model: SentenceTransformer) -> int:
    """Parameters of a model."""
    return sum(parameter.numel() for parameter in model.parameters())


def with_cost(record: ScoreRecord, costs: dict[str, tuple[EncoderCost, int]]) -> ScoreRecord:
    """The record with the cost of its start, and the bytes of its own parameters."""
    if record.start not in costs:
        return record
    cost, parameters = costs[record.start]
    extra = record.parameters - parameters
    update = {
        "bytes_on_disk": cost.bytes_on_disk + FLOAT32 * extra,
        "parameters_without_embeddings": cost.parameters_without_embeddings + extra,
    }
    return record.model_copy(update={"cost": cost.model_copy(update=update)})


if __name__ == "__main__":
    main()
