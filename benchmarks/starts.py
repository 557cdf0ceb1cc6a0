"""What a good start is worth: each method as it was first tried at commit be7c367, and as it is now, at equal steps.

    python benchmarks/starts.py --data DIR [--teacher all-MiniLM-L6-v2] [--runs runs] [--store STORE] [--methods hpd,mse]
        [--sides before,after] [--seeds 3] [--steps 160] [--batch 32] [--out results/starts]

Trains the rows of search_spaces/studies/starts-{before,after}.yaml by `distilbench compare`: one comparison for each
student, two where some of its methods read triplets. The same command again goes on, also with other `--methods`.
`--steps` of `--batch` sentences are a student's; a head on the frozen teacher (MCR2) has the steps of its row. Of DIR
only STS-B dev and test and the training text are read, through links in RUNS/starts-data, so that scoring takes
seconds. `--out` gets a table (.md) of STS-B dev Spearman x 100 (DSE: Pearson x 100 of its head's scores), and all its figures
with the curves (.json).

A side's values are of the last rung. Beside them stand the best of the start and the rungs, which is what a sweep takes
and what commit be7c367 did not; and, of the same student and width, its start (the parameters before the first step), the
ridge regression of the untrained student's states on 3,000 sentences to the teacher's PCA (below the teacher's width)
or to the teacher itself; the teacher's PCA; the teacher.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from distilbench.data.corpus import Corpus
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.requirements import Requirements
from distilbench.evaluation.sts import from_rows
from distilbench.methods import get_method
from distilbench.prepare.prepared import load_prepared
from distilbench.records import TrialRecord, read_records
from distilbench.storage.files import write_json
from distilbench.training.loop import Trainer
from distilbench.trials.dev import dev_pca_score, dev_report
from distilbench.trials.rung_training import build_method

STUDIES = Path(__file__).parents[1] / "search_spaces" / "studies"
STSB = tuple(f"sts/STSB.{split}.tsv" for split in ("train", "dev", "test"))
READ = (*STSB, "quora/pairs.tsv", "quora/pairs.tsv.gz", "unlabeled", "nli")
HEADS = ("mcr2",)
"""Methods without a student of their own."""
SENTENCES, RIDGE = 3000, 1e-3
NO_LIMIT = 10**9
Row = dict[str, Any]


class Examples(NamedTuple):
    """How much of a corpus there is to train on: sentences, triplets, and training pairs of the pair task."""

    sentences: int
    triplets: int
    task: int

    @classmethod
    def of(cls, corpus: Corpus) -> Examples:
        """Count those of a corpus."""
        task = len(corpus.pair_tasks[0].splits["train"].target_P) if corpus.pair_tasks else 0
        return cls(len(corpus.train), len(corpus.triplets_T3), task)


def linked(data: Path, folder: Path) -> Path:
    """A data folder with links to the parts of `data` in `READ`."""
    for name in READ:
        link = folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if (data / name).exists() and not link.exists():
            link.symlink_to((data / name).resolve())
    return folder


def at_equal_steps(row: Row, examples: Examples, steps: int, batch: int) -> Row:
    """The row with batches of `batch` sentences, and epochs that come to `steps` of them.

    A method with two stages on the student takes half of them for each.
    """
    params = dict(row["params"])

    def epochs(count: int, share: float = 1.0) -> float:
        return share * steps / (count // batch)

    if row["method"] == "mcr2_distil":
        params |= {"distil_batch_size": batch, "distil_epochs": epochs(examples.sentences)}
    elif row["method"] == "dse":
        params |= {"batch_size": batch, "epochs": epochs(examples.task)}
    elif row["method"] not in HEADS:
        stages = 2 if params.get("ft_epochs") else 1
        only_triplets = stages == 1 and reads_triplets(row)
        count = examples.triplets if only_triplets else examples.sentences
        params |= {"batch_size": batch, "epochs": epochs(count, 1 / stages)}
        if stages == 2:
            params |= {"ft_batch_size": batch, "ft_epochs": epochs(examples.triplets, 1 / stages)}
    return {**row, "params": params}


def train(side: str, rows: list[Row], data: Path, given: argparse.Namespace) -> None:
    """The comparisons of a side: one for each student, and for each of the corpora that its methods need."""
    runs = [folder_of(given.runs, side, row) for row in rows]
    for run in dict.fromkeys(runs):
        of_run = [row for row, its in zip(rows, runs, strict=True) if its == run]
        file = given.runs / f"{run.name}.yaml"
        # Rows that are widths of one nested training are one row of the comparison.
        distinct = {str([row["method"], row["params"]]): row for row in reversed(of_run)}.values()
        file.write_text(yaml.safe_dump({"rows": list(distinct)}, sort_keys=False))
        options = [
            "--data",
            data,
            "--teacher",
            given.teacher,
            "--student",
            of_run[0]["student"],
            "--seeds",
            given.seeds,
        ]
        options += ["--name", run.name, "--runs", given.runs, "--quantise", "none"]
        options += ["--max-pairs", given.max_pairs, "--max-sentences", given.max_sentences]
        options += ["--cpus", given.cpus, "--no-dashboard", *(["--store", given.store] if given.store else [])]
        command = [sys.executable, "-m", "distilbench", "compare", file, *options]
        subprocess.run(list(map(str, command)), check=True)


def reads_triplets(row: Row) -> bool:
    """Whether it trains on triplets, which are sentences of the corpus only where they are needed."""
    return row["method"] in ("contrastive", "matryoshka") or bool(row["params"].get("ft_epochs"))


def width_of(row: Row) -> int | None:
    """How many of a nested training's numbers a row is, which its name says (d=64); None of any other training."""
    named = re.search(r"d=(\d+)", row["name"])
    return int(named[1]) if row["params"].get("nested") and named else None


def folder_of(runs: Path, side: str, row: Row) -> Path:
    """The run that a row of a side is in."""
    student = str(row["student"]).replace(":", "-").replace(",", "-").replace("/", "-")
    return runs / "-".join(filter(None, ["starts", side, student, corpus_of(row)]))


def corpus_of(row: Row) -> str:
    """What a row reads beside the text: triplets, the pairs of a task, or nothing ("")."""
    return "triplets" if reads_triplets(row) else "pairs" if row["method"] == "dse" else ""


def curves(run: Path, row: Row) -> dict[int, dict[str, Any]]:
    """The recorded rungs of a row, by seed: steps, dev metric and mean loss; `dev`: of the last rung.

    A row of a nested training is its first numbers.
    """
    found = {}
    for record in read_records(run / "trials.jsonl"):
        if not isinstance(record, TrialRecord) or record.method != row["method"]:
            continue
        # What a row does not name has the default: a row without `nested` is not the nested training of the same width.
        whole = get_method(row["method"]).params_type.model_validate({**row["params"], "output_dim": record.dim})
        wanted = whole.model_dump(mode="json", by_alias=True)
        if any(wanted.get(name, value) != value for name, value in record.params.items()):
            continue
        if row["params"]["output_dim"] not in (record.dim, "native"):
            continue
        chosen = [rung for rung in record.rungs if rung.objective == record.objective]
        key = metric_of(row)
        found[record.seed] = {
            "dev": chosen[-1].metrics[key] if chosen else None,
            "failed": record.reason,
            "steps": [rung.step for rung in record.rungs],
            "dev_curve": [rung.metrics[key] for rung in record.rungs],
            "loss_curve": [rung.metrics["loss"] for rung in record.rungs],
            "params": record.params,
        }
    return dict(sorted(found.items()))


def metric_of(row: Row) -> str:
    """The dev metric of a rung that a row shows."""
    if row["method"] == "dse":
        return "dev_STSB_pearson"
    width = width_of(row)
    return "dev_score" if width is None else f"dev_score_{width}"


def start(run: Path, row: Row, params: dict[str, Any], seed: int) -> float | None:
    """What a row has on dev before its first step; None where another phase makes its targets first."""
    folder = (run / "prepared").resolve()
    prepared = load_prepared(folder)
    made = build_method(row["method"], params, prepared, seed, "cpu")
    if not Trainer(made, seed, NO_LIMIT).enter_start():
        return None
    made.eval()
    return dev_report(made, folder, prepared)[1][metric_of(row)]


def regression(run: Path, dim: int) -> float:
    """Dev Spearman of the untrained student after a ridge regression to the teacher's PCA at `dim`, or to the teacher."""
    prepared = load_prepared((run / "prepared").resolve())
    bare = {"output_dim": prepared.vectors.width, "lr": 1e-4, "batch_size": 32}
    student = build_method("mse", bare, prepared, 0, "cpu")
    train = prepared.train[np.linspace(0, len(prepared.train) - 1, SENTENCES).astype(np.int64)]
    rows = prepared.selection.rows
    vectors = prepared.vectors.take(train)
    target_Nd = vectors if dim == prepared.vectors.width else prepared.pca.project(vectors, dim)
    x_ND, dev_ND = (np.hstack([x, np.ones((len(x), 1))]).astype(np.float64) for x in map(student.embed, (train, rows)))
    weight_Dd = np.linalg.solve(x_ND.T @ x_ND + RIDGE * np.eye(x_ND.shape[1]), x_ND.T @ target_Nd)
    return prepared.selection.score(from_rows(rows, (dev_ND @ weight_Dd).astype(np.float32)))


def _mean(seeds: dict[int, dict[str, Any]], key: str) -> float | None:
    values = [seed[key] for seed in seeds.values() if seed[key] is not None]
    return float(np.mean(values)) if values else None


def measured(side: str, row: Row, runs: Path) -> dict[str, Any] | None:
    """All figures of a row; None where nothing of it is trained."""
    run = folder_of(runs, side, row)
    if not (trained := curves(run, row)):
        return None
    params = next(iter(trained.values()))["params"]
    prepared, dim = load_prepared((run / "prepared").resolve()), width_of(row) or int(params["output_dim"])
    usable = {number: one for number, one in trained.items() if one["dev"] is not None and not one["failed"]}
    for number, one in usable.items():
        one["start"] = start(run, row, params, number)
        # The first phases of a method with several make no student of its width.
        final = one["dev_curve"] if one["start"] is not None else one["dev_curve"][-1:]
        one["best"] = max(value for value in (one["start"], *final) if value is not None)
    return {
        "student": row["student"],
        "dim": dim,
        "mean": _mean(usable, "dev"),
        "best": _mean(usable, "best"),
        "seeds": trained,
        "start": _mean(usable, "start"),
        "regression": None if row["method"] in (*HEADS, "dse") else regression(run, dim),
        "pca": None if row["method"] == "dse" else dev_pca_score((run / "prepared").resolve(), dim),
        "teacher": None if row["method"] == "dse" else prepared.selection.score(prepared.vectors.take),
    }


def table(found: dict[str, dict[str, Any]], steps: int, batch: int) -> str:
    """A Markdown table: a line for each row and side."""
    columns = ("", "", "student", "mean", "seeds", "best rung", "before a step", "regression", "PCA at d", "teacher")
    lines = [
        f"STS-B dev, Spearman x 100, after {steps} steps of {batch}.",
        "",
        _line(columns),
        _line(["---"] * len(columns)),
    ]
    for name, sides in found.items():
        for side, m in sides.items():
            seeds = [_shown(seed["dev"]) if not seed["failed"] else "failed" for seed in m["seeds"].values()]
            figures = [_shown(m[key]) for key in ("best", "start", "regression", "pca", "teacher")]
            student = "" if name.startswith("MCR2 head") else m["student"]
            lines.append(_line([name, side, student, _shown(m["mean"]), " ".join(seeds), *figures]))
    return "\n".join(lines) + "\n"


def _line(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def main() -> None:
    """Train what is not there, then write the table."""
    options = argparse.ArgumentParser(description="Each method before and now, at equal steps.")
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--teacher", default="all-MiniLM-L6-v2")
    options.add_argument("--runs", type=Path, default=Path("runs"))
    options.add_argument("--store", type=Path)
    options.add_argument("--methods", default="", help="with commas; default: all of the rows'")
    options.add_argument("--sides", default="before,after")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--steps", type=int, default=160)
    options.add_argument("--batch", type=int, default=32)
    options.add_argument("--max-pairs", type=int, default=500, help="duplicate questions")
    options.add_argument("--max-sentences", type=int, default=20_000)
    options.add_argument("--cpus", type=int, default=1)
    options.add_argument("--out", type=Path, default=Path("results/starts"))
    options.add_argument("--no-training", action="store_true", help="only the table, of what is trained")
    given = options.parse_args()
    data = linked(given.data, given.runs / "starts-data")
    limits = Limits(pairs=given.max_pairs, sentences=given.max_sentences)
    # Triplets are sentences to distil from too, in the comparison that reads them.
    examples = {
        kind: Examples.of(folder_corpus(data, limits, needs))
        for kind, needs in (
            ("", Requirements()),
            ("triplets", Requirements(triplets=True)),
            ("pairs", Requirements(pair_tasks=("STSB",))),
        )
    }
    found: dict[str, dict[str, Any]] = {}
    for side in given.sides.split(","):
        rows = yaml.safe_load((STUDIES / f"starts-{side}.yaml").read_text())["rows"]
        chosen = given.methods.split(",") if given.methods else [row["method"] for row in rows]
        rows = [row for row in rows if row["method"] in chosen]
        rows = [at_equal_steps(row, examples[corpus_of(row)], given.steps, given.batch) for row in rows]
        if not given.no_training:
            train(side, rows, data, given)
        for row in rows:
            if (figures := measured(side, row, given.runs)) is not None:
                found.setdefault(row["name"], {})[side] = figures
    given.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(given.out.with_suffix(".json"), found)
    told = table(found, given.steps, given.batch)
    given.out.with_suffix(".md").write_text(told)
    print(told)


if __name__ == "__main__":
    main()
