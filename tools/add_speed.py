"""Measure how fast the encoders of a report embed, all of them on this machine, and write the report's records with it.

python tools/add_speed.py reports/NAME/records.jsonl.gz --data DIR --store STORE --out FILE [--max-sentences N]
distilbench report FILE --out reports/NAME

For a report of several sweeps that were made without --speed, or on several machines. What an encoder takes depends on its
shape and not on what it has learned, so that one of each kind is made, untrained, and timed as `sweep --speed` does. Of each
student its row names the layers that it started from. Cross-encoders, and students that are made for a pair task (dse), are
not timed. A note of the report says that speeds are of one machine, and of which commit.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from distilbench.cluster.provenance import provenance
from distilbench.cluster.resources import ray_cluster
from distilbench.commands.corpus import load_corpus
from distilbench.data.needs import Needs
from distilbench.evaluation.latency import this_processor
from distilbench.methods import get_method
from distilbench.prepare.prepared import load_prepared
from distilbench.prepare.stage import Wanted, prepare_corpus
from distilbench.settings.commands import PrepareSettings
from distilbench.stored import FAISS_PEER
from distilbench.trials.cost_bench import kind_of, measure_costs
from distilbench.trials.costs import StudentCost, kind_key
from distilbench.trials.scoring import CROSS_ENCODER, TEACHER

STATIC, FROZEN = "tokens (static)", "teacher (frozen)"


def student_of(row: dict[str, Any]) -> str:
    """What `--student` is called that a row started from: "static", or "layers:4,5@ENCODER"; "" of a head on the teacher."""
    encoder, _, rest = row["start"].rpartition(" layers:")
    if encoder:
        return f"layers:{rest}" if encoder == row["teacher"] else f"layers:{rest}@{encoder}"
    if row["start"].endswith(STATIC):
        return "static"
    if row["start"] == FROZEN:
        return ""
    raise SystemExit(f"{row['label']}: it started from {row['start']}; expected layers, static or {FROZEN}")


def is_timed(method: str) -> bool:
    """Whether rows of a method are timed here."""
    if method in (TEACHER, FAISS_PEER):
        return True
    return method != CROSS_ENCODER and "task" not in get_method(method).params_type.model_fields


def measured(
    rows: list[dict[str, Any]], student: str, settings: PrepareSettings, console: Console
) -> dict[str, StudentCost]:
    """What each kind of these rows costs, which all started from one student; and their teacher."""
    corpus = load_corpus(settings, Needs(), console)
    inputs = prepare_corpus(settings, corpus, Wanted(augmentation=False, tokens=bool(student), logits=False), console)
    kinds = [kind_of(r["method"], r["hyperparameters"]) for r in rows if r["method"] not in (TEACHER, FAISS_PEER)]
    with tempfile.TemporaryDirectory(prefix="distilbench-") as name:
        folder = Path(name) / "prepared"
        inputs.save(folder, settings)
        ready = load_prepared(folder)
        return measure_costs(kinds, ready, corpus.sentences, folder, settings.artifacts, console)


def main() -> None:
    """Read the records, measure, write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path)
    parser.add_argument(
        "--data", type=Path, required=True, help="what the rows were trained on: sentences are drawn from it"
    )
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--max-sentences", type=int)
    parser.add_argument("--max-documents", type=int)
    given = parser.parse_args()
    console = Console(width=160)
    with gzip.open(given.records, "rt") as file:
        lines = [json.loads(line) for line in file]
    rows = [line for line in lines if line["kind"] == "score" and is_timed(line["method"])]
    [teacher] = {row["teacher"] for row in rows}
    limits = {n: v for n in ("max_sentences", "max_documents") if (v := getattr(given, n)) is not None}
    with ray_cluster(None, 1, False):
        for student in sorted({student_of(row) for row in rows}):
            own = [row for row in rows if student_of(row) == student]
            asked = {"student": student} if student else {}
            settings = PrepareSettings(data=str(given.data), store=given.store, teacher=teacher, **asked, **limits)
            costs = measured(own, student, settings, console)
            for row in own:
                cost = costs[kind_key(row["method"], row["hyperparameters"])]
                row |= {"latency_ms": cost.latency_ms, "cost": cost.cost.model_dump(mode="json")}
    made = provenance()
    note = f"Speeds are of one machine ({this_processor()['processor']}), measured after the sweeps at commit {made.commit}."
    for line in lines:
        if line["kind"] == "report":
            line["notes"] = [*line["notes"], note]
    with gzip.open(given.out, "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


if __name__ == "__main__":
    main()
