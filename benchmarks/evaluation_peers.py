"""What others would run in place of our evaluation suite: the peers of benchmarks/evaluation.py, or by themselves.

    pip install -c constraints.txt mteb
    python benchmarks/evaluation_peers.py {mteb,loop} MODEL_FOLDER DATA_FOLDER [--sets STS12 ...] [--batch-size N]

* `mteb_sts`: the STS tasks of mteb 2, by `mteb.evaluate`, fed from DATA_FOLDER/sts instead of the hub;
* `loop_sts`: a loop over batches with `SentenceTransformer.encode`, as SentEval's `sts.py` and `sick.py` have it;
* `sklearn_classification`: SentEval's protocol of sentence classification with scikit-learn's `LogisticRegressionCV`.

Files: STS12.SUBSET.tsv to STS16.SUBSET.tsv, STSB.test.tsv and SICK.test.tsv, maybe gzipped; a set without files is left out.
Everything that the libraries decide by default is left as it is, except progress bars and mteb's cache of results.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import time
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before huggingface_hub is imported: nothing here needs the hub

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import PredefinedSplit, StratifiedKFold

MTEB_TASKS = {
    **{name: name for name in ("STS12", "STS13", "STS14", "STS15", "STS16")},
    "STSB": "STSBenchmark",
    "SICK": "SICK-R",
}
"""Our name of each set, and mteb's. mteb's upload of SICK-R holds all 9,927 pairs; here it gets the test split's."""
ONE_FILE = ("STSB", "SICK")
SENTEVAL_BATCH = 128
FOLDS, SEED = 10, 1111
MOST_STEPS = 1000
"""Of the solver, whose default is 100: SST2 with C = 8 takes 118 where `tol` is 1e-7."""


class Pairs(NamedTuple):
    """One file: sentences of both sides and gold scores."""

    name: str
    left: list[str]
    right: list[str]
    scores: list[float]


def read_sts(data_folder: Path, sets: Collection[str] = MTEB_TASKS) -> dict[str, list[Pairs]]:
    """The test pairs of each of `sets` that is there, by file.

    Raises:
        FileNotFoundError: none is.
    """
    found: dict[str, list[Pairs]] = {}
    for name in sets:
        subset = "test" if name in ONE_FILE else "*"
        files = {p.stem: p for p in data_folder.glob(f"sts/{name}.{subset}.tsv.gz")}
        files |= {p.name: p for p in data_folder.glob(f"sts/{name}.{subset}.tsv")}
        if files:
            found[name] = [_read(files[key]) for key in sorted(files)]
    if not found:
        raise FileNotFoundError(f"{data_folder / 'sts'}: no files of {', '.join(sets)}")
    return found


def _read(path: Path) -> Pairs:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return Pairs(
        path.name.split(".tsv")[0],
        [row["sentence1"].strip() for row in rows],
        [row["sentence2"].strip() for row in rows],
        [float(row["score"]) for row in rows],
    )


def mteb_sts(
    model_folder: Path, data_folder: Path, sets: Collection[str] = MTEB_TASKS, batch_size: int | None = None
) -> dict[str, float]:
    """mteb's main score of each set, x 100: Spearman of cosine over all its pairs, subsets concatenated.

    `batch_size` None is mteb's own, 32. Loading of model and data is a part, as in `loop_sts`.
    """
    import mteb
    from datasets import Dataset, DatasetDict
    from sentence_transformers import SentenceTransformer

    found = read_sts(data_folder, sets)
    tasks = []
    for name, files in found.items():
        task = mteb.get_task(MTEB_TASKS[name])
        rows: dict[str, list[Any]] = defaultdict(list)
        for file in files:
            rows["sentence1"] += file.left
            rows["sentence2"] += file.right
            rows["score"] += file.scores
        task.dataset = DatasetDict({"test": Dataset.from_dict(rows)})
        task.data_loaded = True  # `evaluate` then leaves out `load_data`, which would ask the hub
        tasks.append(task)
    settings: Any = {"show_progress_bar": False, **({"batch_size": batch_size} if batch_size else {})}
    model = SentenceTransformer(str(model_folder))
    results = mteb.evaluate(model, tasks, encode_kwargs=settings, cache=None, show_progress_bar=False)
    scores = {result.task_name: result.get_score() for result in results.task_results}
    return {name: 100 * scores[MTEB_TASKS[name]] for name in found}


def loop_sts(
    model_folder: Path, data_folder: Path, sets: Collection[str] = MTEB_TASKS, batch_size: int | None = None
) -> dict[str, float]:
    """Spearman of cosine x 100, of each file ("STS12.MSRpar") and, concatenated, of each set ("STS12").

    SentEval's loop: a file's pairs sorted by their numbers of words, both sides of each batch encoded, one batch after
    the other. `batch_size` None is SentEval's own, 128. A set of several files is scored as in SimCSE's copy of SentEval.
    """
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(model_folder))
    size = batch_size or SENTEVAL_BATCH
    scores: dict[str, float] = {}
    for name, files in read_sts(data_folder, sets).items():
        cosines, gold = [], []
        for file in files:
            found, sorted_gold = _loop(model, file, size)
            if len(files) > 1:
                scores[file.name] = _spearman(found, sorted_gold)
            cosines.append(found)
            gold += sorted_gold
        scores[name] = _spearman(np.concatenate(cosines), gold)
    return scores


def _loop(model: Any, file: Pairs, size: int) -> tuple[NDArray[np.float32], list[float]]:
    """Cosines and gold scores of one file's pairs, sorted by length."""
    pairs = sorted(
        zip(file.left, file.right, file.scores, strict=True), key=lambda p: (len(p[0].split()), len(p[1].split()), p[2])
    )
    cosines = []
    for start in range(0, len(pairs), size):
        left, right, _ = zip(*pairs[start : start + size], strict=True)
        left_BD = model.encode(list(left), batch_size=len(left), show_progress_bar=False)
        right_BD = model.encode(list(right), batch_size=len(right), show_progress_bar=False)
        lengths_B = np.linalg.norm(left_BD, axis=1) * np.linalg.norm(right_BD, axis=1)
        cosines.append((left_BD * right_BD).sum(axis=1) / lengths_B)
    return np.concatenate(cosines), [score for *_, score in pairs]


def _spearman(cosines: NDArray[np.float32], gold: list[float]) -> float:
    return 100 * float(spearmanr(cosines, gold).statistic)


def sklearn_classification(
    features_ND: NDArray[np.float32],
    classes_N: NDArray[np.int64],
    split_N: NDArray[np.str_] | None = None,
    *,
    solver: str = "lbfgs",
    tol: float = 1e-4,
    n_jobs: int | None = None,
) -> float:
    """Test accuracy x 100 by SentEval's protocol, with scikit-learn; splits are "train", "dev" and "test".

    * all rows in train, or None: 10 folds, in each the penalty by 10 folds of the others; the mean over folds;
    * train and test: the penalty by 10 folds of train;
    * train, dev and test: the penalty by dev, which is not trained on.

    Folds depend on the order of the rows: give them as `distilbench.evaluation.classification` has them. `solver`, `tol` and
    `n_jobs` are scikit-learn's, with its defaults; `n_jobs` processes share the folds of the inner cross-validation. At its
    `tol` of 1e-4 the regressions stop short of the minimum: on SST2 (all-MiniLM-L6-v2) that moves an accuracy by up to 0.5.
    """
    split_N = np.full(len(classes_N), "train") if split_N is None else np.asarray(split_N)
    train_N, dev_N, test_N = (split_N == name for name in ("train", "dev", "test"))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=SEED)

    def accuracy(powers: range, fit_N: Any, test_N: Any, cv: Any = folds, refit: bool = True) -> float:
        model = LogisticRegressionCV(
            Cs=[2.0**t for t in powers],
            cv=cv,
            scoring="accuracy",
            solver=solver,
            tol=tol,
            max_iter=MOST_STEPS,
            refit=refit,
            n_jobs=n_jobs,
            l1_ratios=(0,),  # these two are the defaults from scikit-learn 1.10 on
            use_legacy_attributes=False,
        )
        model.fit(features_ND[fit_N], classes_N[fit_N])
        return 100 * float(np.mean(model.predict(features_ND[test_N]) == classes_N[test_N]))

    if dev_N.any():
        fit_N = train_N | dev_N
        only_dev = PredefinedSplit(np.where(dev_N, 0, -1)[fit_N])
        # Without refit: the best penalty's coefficients of the only fold, which are trained on train.
        return accuracy(range(-2, 4), fit_N, test_N, only_dev, refit=False)
    if test_N.any():
        return accuracy(range(-1, 6), train_N, test_N)
    return float(np.mean([accuracy(range(-2, 4), fit, test) for fit, test in folds.split(features_ND, classes_N)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=("mteb", "loop"))
    parser.add_argument("model", type=Path, help="folder of a SentenceTransformer")
    parser.add_argument("data", type=Path, help="data folder: its sts/ is read")
    parser.add_argument("--sets", nargs="+", choices=MTEB_TASKS, default=list(MTEB_TASKS))
    parser.add_argument("--batch-size", type=int, help="in place of the peer's own")
    chosen = parser.parse_args()
    run = mteb_sts if chosen.peer == "mteb" else loop_sts
    wall, cpu = time.perf_counter(), time.process_time()
    scores = run(chosen.model, chosen.data, chosen.sets, chosen.batch_size)
    seconds = {"wall_s": time.perf_counter() - wall, "processor_s": time.process_time() - cpu}
    print(json.dumps({"peer": chosen.peer, **seconds, "scores": scores}, indent=1))


if __name__ == "__main__":
    main()
