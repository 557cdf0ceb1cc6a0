"""Sentence classification with SentEval's other classifier, the one that its users' scripts switch on.

    python benchmarks/senteval_classifier.py --data DIR [--model NAME] [--set CR]

SentEval's protocol has two classifiers. `usepytorch: False` is scikit-learn's logistic regression, brought to its minimum:
what `distilbench evaluate` computes. `usepytorch: True` trains a linear layer by Adam (batches of 64, 4 epochs at a time,
until the held-out accuracy has not risen six times) with weight decay from 1e-5 to 1e-2, and stops before the minimum.

For sets that are cross-validated (MR, CR, SUBJ, MPQA): 10 folds, in each the weight decay by 10 folds of the others.
For MRPC: the weight decay by 10 folds of train.
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
from distilbench.data.corpus import CorpusBuilder, Rows
from distilbench.encoder import EncoderSpec, encode
from distilbench.evaluation.classification import classified, pair_features

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


def trained_and_tested(train: Examples, test: Examples) -> float:
    """Test accuracy x 100, with the weight decay of the best mean over folds of train."""
    x, y = train
    means = [
        np.mean([fitted((x[a], y[a]), (x[b], y[b]), decay)[1] for a, b in folds(train)]) for decay in WEIGHT_DECAYS
    ]
    order = np.random.default_rng(SEED).permutation(len(x))
    own, rest = np.split(order, [int(HELD_OUT * len(x))])
    layer, _ = fitted((x[rest], y[rest]), (x[own], y[own]), WEIGHT_DECAYS[int(np.argmax(means))])
    return 100 * accuracy(layer, test)


def cross_validated(examples: Examples) -> float:
    """Test accuracy x 100, the mean over the outer folds."""
    x, y = examples
    tests = []
    for train, test in folds(examples):
        tests.append(trained_and_tested((x[train], y[train]), (x[test], y[test])))
        print(f"fold {len(tests)}: {tests[-1]:.2f}, mean {np.mean(tests):.2f}", flush=True)
    return float(np.mean(tests))


def folds(examples: Examples) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Training and test rows of each of ten folds."""
    return list(StratifiedKFold(FOLDS, shuffle=True, random_state=SEED).split(*examples))


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
    rows = list(dict.fromkeys(int(row) for side in task.texts for row in side))
    vectors = encode(EncoderSpec(chosen.model).load(), [corpus.sentences[row] for row in rows])
    by_row = dict(zip(rows, vectors, strict=True))

    def embed(asked: Rows) -> NDArray[np.float32]:
        return np.stack([by_row[row] for row in asked.tolist()])

    began = time.perf_counter()
    ours = classified(embed, task, corpus.sentences).test
    middle = time.perf_counter()
    # SentEval sorts by the sentences' lengths, then class, before it draws folds.
    lengths = [np.array([len(corpus.sentences[row].split()) for row in side.tolist()]) for side in task.texts]
    order = np.lexsort((task.class_N, *reversed(lengths)))
    sides = [embed(side)[order] for side in task.texts]
    features_ND = sides[0] if len(sides) == 1 else pair_features(sides[0], sides[1])
    class_N, train_N = task.class_N[order], task.split_N[order] == "train"
    if train_N.all():
        theirs = cross_validated((features_ND, class_N))
    else:
        theirs = trained_and_tested(
            (features_ND[train_N], class_N[train_N]), (features_ND[~train_N], class_N[~train_N])
        )
    seconds = {"ours": middle - began, "SentEval's PyTorch classifier": time.perf_counter() - middle}
    print(json.dumps({"set": chosen.set, "ours": ours, "SentEval's PyTorch classifier": theirs, "seconds": seconds}))


if __name__ == "__main__":
    main()
