"""Is a student of a user's own text better there than the general one? A table of both, with paired intervals.

    distilbench evaluate OWN GENERAL [CONTINUED] --teacher TEACHER --data USER --tasks retrieval --name score-USER
    python benchmarks/own_domain.py runs/score-USER ...

Each folder is such an evaluation: the user's own student is named first, and third, if there is one, the general student that
was trained further on the user's text. The scores are those of the test queries, which no choice has seen, with 95 %
intervals over them; a difference is that to the general student, paired: both are resampled alike.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from distilbench.evaluation.bootstrap import Items, Resampled, paired_bootstrap, paired_difference, resampled_mean
from distilbench.evaluation.predictions import Predictions, predictions_path
from distilbench.records import ScoreRecord, read_records

METRICS = {"ndcg@10": "nDCG@10", "mrr@10": "MRR@10", "recall@100": "Recall@100"}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    print(
        "| user | queries | metric | teacher | own | general | continued | own - general | p | continued - general | p |"
    )
    print("|---" * 11 + "|")
    for run in parser.parse_args().runs:
        for line in lines(run):
            print(line)


def lines(run: Path) -> Iterator[str]:
    """A line for each metric of each test set of an evaluation.

    Raises:
        SystemExit: it is not one of a teacher and two or three students.
    """
    if not (run / "scores.jsonl").is_file():
        raise SystemExit(f"{run}: no scores.jsonl in it; expected the folder of an evaluation, such as runs/score-USER")
    folders = json.loads((run / "config.json").read_text()).get("models", [])
    records = [r for r in read_records(run / "scores.jsonl") if isinstance(r, ScoreRecord)]
    whole = {(r.role, r.label): r for r in records if r.quantisation == "float32"}
    teachers = [r for (role, _), r in whole.items() if role == "teacher"]
    students = [found for folder in folders if (found := whole.get(("encoder", Path(folder).name)))]
    if not teachers or len(students) not in (2, 3) or len(students) < len(folders):
        raise SystemExit(
            f"{run}: rows {sorted(label for _, label in whole)}; expected a teacher and two or three students"
        )
    scored = [items(run, record) for record in (teachers[0], *students)]
    for name in scored[0]:
        _, data, metric = name.split("/")
        if metric not in METRICS:
            continue
        cells = [data, str(len(scored[0][name])), METRICS[metric], *(told(resampled_mean(of[name])) for of in scored)]
        cells += [""] * (3 - len(students))
        averages = paired_bootstrap([[{name: Items(of[name])}] for of in scored[1:]])
        for student in (0, 2):
            if student >= len(students):
                cells += ["", ""]
                continue
            found = paired_difference(averages, student, 1)
            cells += [f"{found.value:+.2f} ({found.low:+.2f} to {found.high:+.2f})", f"{found.p:.3f}"]
        yield f"| {' | '.join(cells)} |"


def items(run: Path, record: ScoreRecord) -> dict[str, NDArray[np.floating]]:
    """The value of each test query, by "retrieval/SET/METRIC"."""
    found = Predictions.load(predictions_path(run, record.record_id)).test
    return {name: of_set.value_P for name, of_set in found.items() if name.startswith("retrieval/")}


def told(score: Resampled) -> str:
    """A score and its interval."""
    low, high = score.interval
    return f"{score.value:.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main()
