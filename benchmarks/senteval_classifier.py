"""Sentence classification with SentEval's other classifier, the one that its users' scripts switch on.

    python benchmarks/senteval_classifier.py --data DIR [--model NAME] [--set CR]

SentEval's protocol has two classifiers. `usepytorch: False` is scikit-learn's logistic regression, brought to its minimum:
what `distilbench evaluate` computes. `usepytorch: True` trains a linear layer by Adam (batches of 64, 4 epochs at a time,
until the held-out accuracy has not risen six times) with weight decay from 1e-5 to 1e-2, and stops before the minimum.

Only for sets that are cross-validated (MR, CR, SUBJ, MPQA): 10 folds, in each the weight decay by 10 folds of the others.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold
from torch import nn

from distilbench.data.classification import read_classification
from distilbench.data.corpus import CorpusBuilder
from distilbench.encoder import EncoderSpec, encode
from distilbench.evaluation.classification import classified

FOLDS, SEED = 10, 1111
WEIGHT_DECAYS = tuple(10.0**t for t in range(-5, -1))
BATCH, EPOCHS_AT_A_TIME, PATIENCE, MOST_EPOCHS = 64, 4, 5, 200
HELD_OUT = 0.05
"""Of the training rows of a fold, where the weight decay is known."""

Examples = tuple[NDArray[np.float32], NDArray[np.int64]]


def fitted(train: Examples, held_out: Examples, weight_decay: float) -> tuple[nn.Linear, float]:
    """The layer with the best held-out accuracy, and that."""
    torch.manual_seed(SEED)
    x, y = (torch.from_numpy(np.ascontiguousarray(part)) for part in train)
    layer = nn.Linear(x.shape[1], int(y.max()) + 1)
    optimizer = torch.optim.Adam(layer.parameters(), weight_decay=weight_decay)
    best, best_state, failures, epochs = -1.0, layer.state_dict(), 0, 0
    while failures <= PATIENCE and epochs <= MOST_EPOCHS:
        for _ in range(EPOCHS_AT_A_TIME):
            for rows in torch.randperm(len(x)).split(BATCH):
                optimizer.zero_grad()
                nn.functional.cross_entropy(layer(x[rows]), y[rows]).backward()
                optimizer.step()
        epochs += EPOCHS_AT_A_TIME
        found = accuracy(layer, held_out)
        if found > best:
            best, best_state = found, {name: value.clone() for name, value in layer.state_dict().items()}
        else:
            failures += 1
    layer.load_state_dict(best_state)
    return layer, best


def accuracy(layer: nn.Linear, examples: Examples) -> float:
    with torch.inference_mode():
        return float((layer(torch.from_numpy(examples[0])).argmax(1).numpy() == examples[1]).mean())


def nested(features_ND: NDArray[np.float32], classes_N: NDArray[np.int64]) -> float:
    """Test accuracy x 100, the mean over the outer folds."""

    def folds(x: NDArray[np.float32], y: NDArray[np.int64]) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        return list(StratifiedKFold(FOLDS, shuffle=True, random_state=SEED).split(x, y))

    tests = []
    for train, test in folds(features_ND, classes_N):
        x, y = features_ND[train], classes_N[train]
        means = [
            np.mean([fitted((x[a], y[a]), (x[b], y[b]), decay)[1] for a, b in folds(x, y)]) for decay in WEIGHT_DECAYS
        ]
        order = np.random.default_rng(SEED).permutation(len(x))
        own, rest = np.split(order, [int(HELD_OUT * len(x))])
        layer, _ = fitted((x[rest], y[rest]), (x[own], y[own]), WEIGHT_DECAYS[int(np.argmax(means))])
        tests.append(100 * accuracy(layer, (features_ND[test], classes_N[test])))
        print(f"fold {len(tests)}: {tests[-1]:.2f}, mean {np.mean(tests):.2f}", flush=True)
    return float(np.mean(tests))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    parser.add_argument("--set", default="CR")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    builder = CorpusBuilder("benchmark")
    read_classification(chosen.data, builder)
    corpus = builder.build()
    [task] = [s for s in corpus.classification if s.name == chosen.set]
    vectors_ND = encode(EncoderSpec(chosen.model).load(), [corpus.sentences[int(row)] for row in task.texts[0]])
    began = time.perf_counter()
    by_row = dict(zip(task.texts[0].tolist(), vectors_ND, strict=True))
    lengths = np.array([len(corpus.sentences[int(row)].split()) for row in task.texts[0]])
    order = np.lexsort((task.class_N, lengths))  # as SentEval sorts before it draws folds
    ours = classified(lambda rows: np.stack([by_row[row] for row in rows.tolist()]), task, corpus.sentences).test
    middle = time.perf_counter()
    theirs = nested(vectors_ND[order], task.class_N[order])
    seconds = {"ours": middle - began, "SentEval's PyTorch classifier": time.perf_counter() - middle}
    print(json.dumps({"set": chosen.set, "ours": ours, "SentEval's PyTorch classifier": theirs, "seconds": seconds}))


if __name__ == "__main__":
    main()
