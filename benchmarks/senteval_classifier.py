"""Sentence classification with SentEval's other classifier, the one that its users' scripts switch on.

    python benchmarks/senteval_classifier.py --data DIR [--model NAME] [--set CR]

SentEval's protocol has two classifiers. `usepytorch: False` is scikit-learn's logistic regression, brought to its minimum:
what `distilbench evaluate` computes. `usepytorch: True` trains a linear layer by Adam (batches of 64, 4 epochs at a time,
until the held-out accuracy has not risen six times) with weight decay from 1e-5 to 1e-2, and stops before the minimum.
`--quick` has the settings that SentEval's README names for prototyping: 5 folds, RMSprop, batches of 128, 2 epochs at a time,
until it has not risen four times. `--seeds` repeats it: another initial layer, order and held-out part.

For sets that are cross-validated (MR, CR, SUBJ, MPQA): 10 folds, in each the weight decay by 10 folds of the others.
For MRPC: the weight decay by 10 folds of train.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold
from torch import nn

from distilbench.data.classification_sets import read_classification
from distilbench.data.corpus import CorpusBuilder, Rows
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import encode
from distilbench.evaluation.classification import classified, pair_features

SEED = 1111
WEIGHT_DECAYS = tuple(10.0**t for t in range(-5, -1))
MOST_EPOCHS = 200
HELD_OUT = 0.05
"""Of the training rows of a fold, where the weight decay is known."""


class Way(NamedTuple):
    """How the layer is trained."""

    optimizer: type[torch.optim.Optimizer]
    folds: int
    batch: int
    epochs_at_a_time: int
    patience: int
    seed: int = SEED


DEFAULT, QUICK = Way(torch.optim.Adam, 10, 64, 4, 5), Way(torch.optim.RMSprop, 5, 128, 2, 3)
Examples = tuple[NDArray[np.float32], NDArray[np.int64]]


def fitted(train: Examples, held_out: Examples, weight_decay: float, way: Way) -> tuple[nn.Linear, float]:
    """The layer with the best held-out accuracy, and that."""
    torch.manual_seed(way.seed)
    x, y = (torch.from_numpy(np.ascontiguousarray(part)) for part in train)
    layer = nn.Linear(x.shape[1], int(y.max()) + 1)
    made: Any = way.optimizer
    optimizer = made(layer.parameters(), weight_decay=weight_decay)
    best, best_state, failures, epochs = -1.0, layer.state_dict(), 0, 0
    while failures <= way.patience and epochs <= MOST_EPOCHS:
        for _ in range(way.epochs_at_a_time):
            for rows in torch.randperm(len(x)).split(way.batch):
                optimizer.zero_grad()
                nn.functional.cross_entropy(layer(x[rows]), y[rows]).backward()
                optimizer.step()
        epochs += way.epochs_at_a_time
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


def trained_and_tested(train: Examples, test: Examples, way: Way) -> float:
    """Test accuracy x 100, with the weight decay of the best mean over folds of train."""
    x, y = train
    means = [
        np.mean([fitted((x[a], y[a]), (x[b], y[b]), decay, way)[1] for a, b in folds(train, way)])
        for decay in WEIGHT_DECAYS
    ]
    order = np.random.default_rng(way.seed).permutation(len(x))
    own, rest = np.split(order, [int(HELD_OUT * len(x))])
    layer, _ = fitted((x[rest], y[rest]), (x[own], y[own]), WEIGHT_DECAYS[int(np.argmax(means))], way)
    return 100 * accuracy(layer, test)


def cross_validated(examples: Examples, way: Way) -> float:
    """Test accuracy x 100, the mean over the outer folds."""
    x, y = examples
    tests = []
    for train, test in folds(examples, way):
        tests.append(trained_and_tested((x[train], y[train]), (x[test], y[test]), way))
        print(f"fold {len(tests)}: {tests[-1]:.2f}, mean {np.mean(tests):.2f}", flush=True)
    return float(np.mean(tests))


def folds(examples: Examples, way: Way) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Training and test rows of each fold."""
    return list(StratifiedKFold(way.folds, shuffle=True, random_state=SEED).split(*examples))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    parser.add_argument("--set", default="CR")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    builder = CorpusBuilder("benchmark")
    read_classification(chosen.data, builder)
    corpus = builder.build()
    [task] = [s for s in corpus.classification if s.name == chosen.set]
    rows = list(dict.fromkeys(int(row) for side in task.columns for row in side))
    vectors = encode(EncoderSpec(chosen.model).load(), [corpus.sentences[row] for row in rows])
    by_row = dict(zip(rows, vectors, strict=True))

    def embed(asked: Rows) -> NDArray[np.float32]:
        return np.stack([by_row[row] for row in asked.tolist()])

    began = time.perf_counter()
    ours = classified(embed, task, corpus.sentences).test
    middle = time.perf_counter()
    # SentEval sorts by the sentences' lengths, then class, before it draws folds.
    lengths = [np.array([len(corpus.sentences[row].split()) for row in side.tolist()]) for side in task.columns]
    order = np.lexsort((task.class_N, *reversed(lengths)))
    sides = [embed(side)[order] for side in task.columns]
    features_ND = sides[0] if len(sides) == 1 else pair_features(sides[0], sides[1])
    class_N, train_N = task.class_N[order], task.split_N[order] == "train"
    way, theirs = QUICK if chosen.quick else DEFAULT, []
    for seed in range(SEED, SEED + chosen.seeds):
        if train_N.all():
            theirs.append(cross_validated((features_ND, class_N), way._replace(seed=seed)))
        else:
            train, test = ((features_ND[part], class_N[part]) for part in (train_N, ~train_N))
            theirs.append(trained_and_tested(train, test, way._replace(seed=seed)))
    seconds = {"ours": middle - began, "SentEval's PyTorch classifier": time.perf_counter() - middle}
    print(json.dumps({"set": chosen.set, "ours": ours, "SentEval's PyTorch classifier": theirs, "seconds": seconds}))


if __name__ == "__main__":
    main()
