"""Which layers of an encoder make the best start of a student: every choice of that many, ranked before any training.

The pooled states of each choice are regressed on the teacher's embeddings (ridge, closed form), and the Spearman of the
regressed vectors on the dev sets ranks. Without a labelled dev set the residual on held-out sentences does.
Axes: N sentences, D width of the student, E of the teacher.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations, groupby
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from distilbench.data.corpus import Rows
from distilbench.encoder import TOKENS_PER_BATCH, EncoderSpec, default_device, padded, token_budget_batches
from distilbench.evaluation.sts import cosine, spearman
from distilbench.prepare.prepared import DevSet
from distilbench.prepare.progress import progress
from distilbench.prepare.ranked_layers import FILE, LayerRanking, RankedChoice, named
from distilbench.prepare.tokens import Tokens, load_tokens
from distilbench.store import ArtifactStore, ShardedArray, array_sha256, write_json
from distilbench.student import count_layers, describe_student, load_student, student_layers, student_source, with_rule

if TYPE_CHECKING:
    from distilbench.prepare.layer_walk import Choice, LayerWalk

SENTENCES = 3000
"""Training sentences of the regression at most."""
ENOUGH_SENTENCES = 1000
TOKENS = 120_000
"""Of these sentences at most, where there are more than `ENOUGH_SENTENCES`: long documents take as long as short ones."""
PAIRS = 1500
"""Dev pairs at most, of all sets together."""
EXHAUSTIVE = 100
"""Runs of a layer up to which every choice is tried; beyond them layers are added one by one."""
RIDGE = 1e-3
"""Of the mean variance of a state's numbers."""
HELD_OUT = 5
"""One sentence in so many is held out, where the residual ranks."""
STEP_VERSION = 1


def ranking_artifact(
    student: str,
    teacher: EncoderSpec,
    pooling: str,
    vectors: ShardedArray,
    tokens: Path,
    train: Rows,
    dev: Sequence[DevSet],
    store: ArtifactStore,
) -> Path:
    """The folder with the ranking for a student such as auto:2, made if not there.

    `vectors` are the teacher's of all sentences, `tokens` the artifact of the student's tokens.

    Raises:
        InputError: the encoder does not have as many layers, or they cannot be told apart.
    """
    ids = load_tokens(tokens)
    depth, count = student_layers(student, teacher), count_layers(student, teacher)
    sampled, sets = sample_sentences(train, ids), sample_pairs(dev)
    parts = {
        "encoder": student_source(student, teacher).identity(),
        "pooling": pooling,
        "vectors": vectors.folder.name,
        "tokens": tokens.name,
        "train": array_sha256(sampled),
        "dev": [[s.name, *(array_sha256(part) for part in (s.left_P, s.right_P, s.score_P))] for s in sets],
        "depth": depth,
        "step_version": STEP_VERSION,
    }

    def make(folder: Path, missing: list[str]) -> None:
        from distilbench.prepare.layer_walk import LayerWalk

        every = with_rule(student, f"layers:{named(range(count))}")
        walk = LayerWalk(load_student(every, teacher, default_device(), pooling), f"--student {student}")
        began = time.perf_counter()
        source = Source(walk, ids, sampled, vectors.take(sampled), tuple(sets))
        choices, path, runs = search_layers(source, depth)
        found = LayerRanking(
            student=student,
            encoder=describe_student(every, teacher).rsplit(" ", 1)[0],
            count=count,
            depth=depth,
            search="greedy" if path else "every choice",
            by="dev" if sets else "residual",
            sentences=len(sampled),
            dev=tuple(s.name for s in sets),
            pairs=sum(len(s.score_P) for s in sets),
            evaluations=runs,
            seconds=round(time.perf_counter() - began, 1),
            choices=tuple(choices),
            path=tuple(path),
        )
        write_json(folder / FILE, found.model_dump(mode="json"))

    return store.build("layers", parts, [FILE], make)


def sample_sentences(train: Rows, tokens: Tokens) -> Rows:
    """A fixed sample of the training sentences, rising rows."""
    drawn = np.random.default_rng(0).permutation(train)[:SENTENCES]
    within = int(np.searchsorted(np.cumsum(tokens.lengths_of(drawn)), TOKENS, side="right"))
    return np.sort(drawn[: max(within, ENOUGH_SENTENCES)])


def sample_pairs(dev: Sequence[DevSet]) -> list[DevSet]:
    """A fixed sample of the pairs of each dev set, of which there are as many as the others have."""
    found = []
    for s in dev:
        kept = np.sort(np.random.default_rng(0).permutation(len(s.score_P))[: max(2, PAIRS // len(dev))])
        found.append(DevSet(s.name, s.left_P[kept], s.right_P[kept], s.score_P[kept]))
    return found


@dataclass(frozen=True)
class Source:
    """What a choice of layers is judged on: training rows with the teacher's vectors of them, and dev sets."""

    walk: LayerWalk
    tokens: Tokens
    train: Rows
    target_NE: NDArray[np.float32]
    dev: tuple[DevSet, ...]

    def judge(self, choices: Sequence[Choice], told: Callable[[int], None]) -> list[RankedChoice]:
        """The choices, each with its scores; `told` hears of every run of a layer."""
        from distilbench.prepare.layer_walk import evaluations

        pairs = [side for s in self.dev for side in (s.left_P, s.right_P)]
        dev_rows = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *pairs]))
        rows = np.concatenate([self.train, dev_rows])
        found = []
        # One after the other, the parts of the tree that begin with the same layer: their states are in memory together.
        for _, part in groupby(sorted(choices), key=lambda choice: choice[0]):
            own = list(part)
            states = self._states(rows, own)
            found += [self._scored(choice, states[choice], dev_rows) for choice in own]
            told(evaluations(own))
        return found

    def _states(self, rows: Rows, choices: Sequence[Choice]) -> Mapping[Choice, NDArray[np.float32]]:
        import torch

        device = self.walk.device
        # Two threads with a batch each read more than two on one batch (prepare.here).
        threads = 1 if device == "cuda" else torch.get_num_threads()
        batches = token_budget_batches(self.tokens.lengths_of(rows), TOKENS_PER_BATCH[device])
        found = {choice: np.empty((len(rows), self.walk.width), dtype=np.float32) for choice in choices}

        def read(batch: NDArray[np.int64]) -> None:
            if device != "cuda":
                torch.set_num_threads(1)
            features = padded([self.tokens[int(row)] for row in rows[batch]], self.walk.pad, device)
            for choice, states_BD in self.walk.pooled(features, choices).items():
                found[choice][batch] = states_BD

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(read, batches))
        return found

    def _scored(self, choice: Choice, states_ND: NDArray[np.float32], dev_rows: Rows) -> RankedChoice:
        train_ND, dev_ND = states_ND[: len(self.train)], states_ND[len(self.train) :]
        if not self.dev:
            held = np.arange(len(train_ND)) % HELD_OUT == HELD_OUT - 1
            regress = ridge(train_ND[~held], self.target_NE[~held])
            left = ((self.target_NE[held] - regress(train_ND[held])) ** 2).sum()
            whole = ((self.target_NE[held] - self.target_NE[~held].mean(axis=0)) ** 2).sum()
            return RankedChoice(layers=choice, residual=float(left / max(whole, 1e-12)))
        regressed_NE = ridge(train_ND, self.target_NE)(dev_ND)
        return RankedChoice(
            layers=choice, dev=self._spearman(dev_ND, dev_rows), regressed=self._spearman(regressed_NE, dev_rows)
        )

    def _spearman(self, vectors: NDArray[np.float32], dev_rows: Rows) -> float:
        at = [(np.searchsorted(dev_rows, s.left_P), np.searchsorted(dev_rows, s.right_P)) for s in self.dev]
        found = [
            spearman(cosine(vectors[one], vectors[two]), s.score_P) for (one, two), s in zip(at, self.dev, strict=True)
        ]
        return float(np.mean(found))


def ridge(
    states_ND: NDArray[np.float32], target_NE: NDArray[np.float32]
) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """The linear regression of targets on states, with a bias and a small ridge, fitted in float64."""
    states, target = states_ND.astype(np.float64), target_NE.astype(np.float64)
    mean_D, mean_E = states.mean(axis=0), target.mean(axis=0)
    states -= mean_D
    moment_DD = states.T @ states
    strength = RIDGE * float(np.trace(moment_DD)) / len(moment_DD) or 1.0
    moment_DD[np.diag_indices_from(moment_DD)] += strength
    weight_DE = cho_solve(cho_factor(moment_DD, overwrite_a=True), states.T @ (target - mean_E))
    bias_E = mean_E - mean_D @ weight_DE
    return lambda states: np.asarray(states @ weight_DE.astype(np.float32) + bias_E.astype(np.float32))


def search_layers(source: Source, depth: int) -> tuple[list[RankedChoice], list[RankedChoice], int]:
    """The choices compared, the best first; the best of each size where they were found greedily; runs of a layer."""
    from distilbench.prepare.layer_walk import evaluations

    count = source.walk.count
    # Prefixes of length j that can still be completed: the last depth - j layers stay free.
    runs = sum(comb(count - depth + j, j) for j in range(1, depth + 1))
    if runs <= EXHAUSTIVE:
        every = list(combinations(range(count), depth))
        with progress("Ranking of layers", runs, "layers") as told:
            return best_first(source.judge(every, told)), [], runs
    path: list[RankedChoice] = []
    found: list[RankedChoice] = []
    total = 0
    for size in range(1, depth + 1):
        known = path[-1].layers if path else ()
        tried = [tuple(sorted((*known, i))) for i in range(count) if i not in known]
        with progress(f"Ranking of layers, {size} of {depth}", evaluations(tried), "layers") as told:
            found = best_first(source.judge(tried, told))
        path.append(found[0])
        total += evaluations(tried)
    return found, path, total


def best_first(choices: Sequence[RankedChoice]) -> list[RankedChoice]:
    """By falling score; the same score by rising layers."""
    return sorted(choices, key=lambda choice: (-choice.score, choice.layers))
