"""Our evaluation beside what others would run, on the same model and files, in one run.

    pip install -c constraints.txt mteb
    python benchmarks/evaluation.py sts --data DIR [--model NAME] [--rounds 3]
    python benchmarks/evaluation.py widths --data DIR
    python benchmarks/evaluation.py classification --data DIR

sts             all STS test sets of DIR, on the text as it is:
                `distilbench evaluate --tasks sts --no-cost` beside mteb's tasks and a loop as SentEval has it
                (`evaluation_peers`). Every run is a process of its own with nothing kept from before.
widths          the same with 8 dimensions x 3 quantisations beside one scoring.
classification  SentEval's protocol on vectors that are there: ours beside `LogisticRegressionCV`, with its default tolerance
                and with one that converges.

All use torch's own number of threads; --threads sets it for all. Machines are noisy and shared: ratios count, of the
median of the rounds. The processor time is of all threads.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

SETS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICK")
PEERS = ("mteb", "loop")
WIDTHS = (320, 256, 192, 128, 96, 64, 32)
"""Beside the model's own."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("sts", "widths", "classification", "child"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--tasks", nargs="*", default=["MRPC", "CR", "SST2", "MR"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.threads and os.environ.get("OMP_NUM_THREADS") != str(chosen.threads):
        # BLAS, torch and OpenMP read it when they are loaded.
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OMP_NUM_THREADS": str(chosen.threads)})
    if chosen.what == "child":
        print(json.dumps(child(chosen.way, chosen.model, chosen.data)))
        return
    run = {"sts": sts, "widths": widths, "classification": classification}[chosen.what]
    found = run(chosen)
    print(json.dumps(found, indent=1))
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1))


def sts(chosen: argparse.Namespace) -> dict[str, Any]:
    """Seconds of each way, and whether all give the same scores to two decimals."""
    found = in_turn(chosen, ("ours", *PEERS))
    names = sorted(found["ours"][0]["scores"])
    scores = {way: {name: round(runs[0]["scores"][name], 2) for name in names} for way, runs in found.items()}
    return {**summary(found, "ours"), "scores": scores, "equal": len({json.dumps(s) for s in scores.values()}) == 1}


def widths(chosen: argparse.Namespace) -> dict[str, Any]:
    """24 scorings beside one."""
    return summary(in_turn(chosen, ("ours", "all widths")), "ours")


def in_turn(chosen: argparse.Namespace, ways: tuple[str, ...]) -> dict[str, list[dict[str, Any]]]:
    """What the child processes say, round by round."""
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder:
        only_test_sets(chosen.data / "sts", Path(folder) / "sts")
        for _ in range(chosen.rounds):
            for way in ways:
                command = [sys.executable, __file__, "child", "--way", way, "--model", chosen.model, "--data", folder]
                began = time.perf_counter()
                out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
                told = json.loads(out.splitlines()[-1])
                found[way].append({**told, "process_s": time.perf_counter() - began})
                print(way, {k: round(v, 1) for k, v in found[way][-1].items() if k != "scores"}, file=sys.stderr)
    return found


def only_test_sets(data: Path, folder: Path) -> None:
    """The STS test sets of `data`, linked into `folder`."""
    folder.mkdir()
    for path in sorted(data.glob("*.tsv")):
        if path.name.split(".")[0] in SETS and not path.name.endswith((".train.tsv", ".dev.tsv")):
            (folder / path.name).symlink_to(path.resolve())


def child(way: str, model: str, data: Path) -> dict[str, Any]:
    """One way, with its libraries imported: wall and processor seconds from loading the model on, and its scores."""
    from evaluation_peers import loop_sts, mteb_sts

    from distilbench.encoders.encoder import EncoderSpec

    folder = EncoderSpec(model).folder()
    assert folder is not None, "a local model"
    if way == "mteb":
        import mteb  # noqa: F401
    import sentence_transformers  # noqa: F401

    with tempfile.TemporaryDirectory() as work:
        wall, processor = time.perf_counter(), time.process_time()
        if way in PEERS:
            peer = {"mteb": mteb_sts, "loop": loop_sts}[way]
            scores = {name: value for name, value in peer(folder, data).items() if name in SETS}
        else:
            scores = ours(model, data, Path(work), every=way == "all widths")
        return {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - processor, "scores": scores}


def ours(model: str, data: Path, work: Path, *, every: bool) -> dict[str, float]:
    """Spearman x 100 of the whole vectors, as `distilbench evaluate` has recorded it."""
    from rich.console import Console

    from distilbench.commands.evaluate import evaluate
    from distilbench.records import ScoreRecord, read_records
    from distilbench.settings.commands import EvaluateSettings

    settings = EvaluateSettings(
        model=(model,),
        data=str(data),
        tasks=("sts",),
        indexes=(),
        dims=WIDTHS if every else (),
        quantise=("int8", "binary") if every else (),
        cost=False,
        name="benchmark",
        runs=work / "runs",
        store=work / "store",
    )
    evaluate(settings, Console(quiet=True))
    records = [r for r in read_records(work / "runs" / "benchmark" / "scores.jsonl") if isinstance(r, ScoreRecord)]
    assert len(records) == (24 if every else 1)
    wanted = [s for s in records[0].scores if (s.metric, s.variant) == ("spearman", "all")]
    return {s.set: s.value for s in wanted}


def summary(found: dict[str, list[dict[str, Any]]], base: str) -> dict[str, Any]:
    """Medians, and each as a multiple of `base`."""
    kinds = ("wall_s", "cpu_s", "process_s")
    medians = {way: {k: statistics.median(r[k] for r in runs) for k in kinds} for way, runs in found.items()}
    ratios = {way: {k: medians[way][k] / medians[base][k] for k in kinds} for way in medians if way != base}
    return {"median": medians, f"times {base}": ratios, "rounds": len(found[base])}


def classification(chosen: argparse.Namespace) -> dict[str, Any]:
    """Of each set: test accuracy and seconds, ours and scikit-learn's."""
    from evaluation_peers import sklearn_classification

    from distilbench.data.classification_sets import read_classification
    from distilbench.data.corpus import CorpusBuilder
    from distilbench.encoders.encoder import EncoderSpec
    from distilbench.encoders.encoding import encode
    from distilbench.evaluation.classification import classified, pair_features

    builder = CorpusBuilder("benchmark")
    read_classification(chosen.data, builder)
    corpus = builder.build()
    model = EncoderSpec(chosen.model).load()
    found = {}
    for task in (s for s in corpus.classification if s.name in chosen.tasks):
        rows = np.unique(np.concatenate(task.columns))
        vectors_ND = encode(model, [corpus.sentences[int(row)] for row in rows])

        def embed(asked: Any, rows: Any = rows, vectors_ND: Any = vectors_ND) -> Any:
            return vectors_ND[np.searchsorted(rows, asked)]

        sides = [embed(side) for side in task.columns]
        features_ND = sides[0] if len(sides) == 1 else pair_features(*sides)
        order = np.arange(len(task.class_N))
        whole = bool((task.split_N == "train").all())
        if whole:  # as SentEval sorts before it draws folds
            lengths = np.array([len(corpus.sentences[int(row)].split()) for row in task.columns[0]])
            order = np.lexsort((task.class_N, lengths))
        split_N = None if whole else task.split_N
        ways = {"ours": lambda task=task, embed=embed: classified(embed, task, corpus.sentences).test}
        for name, tol in (("LogisticRegressionCV", 1e-4), ("LogisticRegressionCV, converged", 1e-7)):
            ways[name] = lambda tol=tol, x=features_ND[order], y=task.class_N[order], s=split_N: sklearn_classification(
                x, y, s, tol=tol
            )
        found[task.name] = {name: timed(way) for name, way in ways.items()}
        print(task.name, found[task.name], file=sys.stderr)
    return found


def timed(way: Any) -> dict[str, float]:
    wall, processor = time.perf_counter(), time.process_time()
    accuracy = float(way())
    return {"test": accuracy, "wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - processor}


if __name__ == "__main__":
    main()
