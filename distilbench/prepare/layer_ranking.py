"""Which layers of an encoder make the best start of a student: every choice of that many, ranked before any training.

The pooled states of each choice are regressed on the teacher's embeddings (ridge, closed form), and the Spearman of the
regressed vectors on the dev sets ranks. Without a labelled dev set the residual on held-out sentences does.
Axes: N sentences, D width of the student, E of the teacher.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import combinations, groupby
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from distilbench.data.corpus import Rows
from distilbench.encoders.encoder import TOKENS_PER_BATCH, EncoderSpec, default_device, padded, token_budget_batches
from distilbench.encoders.student import (
    StudentSpec,
    count_layers,
    load_student,
    student_layers,
    student_source,
    with_encoder,
)
from distilbench.evaluation.selection import DevSet
from distilbench.evaluation.sts import cosine, spearman
from distilbench.prepare.progress import progress
from distilbench.prepare.ranked_layers import FILE, LayerRanking, RankedChoice, named
from distilbench.prepare.tokens import Tokens, load_tokens
from distilbench.storage.arrays import ShardedArray, array_sha256
from distilbench.storage.files import write_json
from distilbench.storage.store import ArtifactStore

if TYPE_CHECKING:
    from distilbench.prepare.layer_walk import Choice, LayerWalk

SENTENCES = 3000
"""Training sentences of the regression at most."""
ENOUGH_SENTENCES = 1000
TOKENS = 120_000
"""The most tokens that are read of more than `ENOUGH_SENTENCES` sentences: long documents take as long as short ones."""
PAIRS = 1500
"""Dev pairs at most, of all sets together."""
EXHAUSTIVE = 100
"""Runs of a layer up to which every choice is tried; beyond them layers are added one by one."""
FIRST_SENTENCES, FIRST_PAIRS = 500, 300
"""The sentences of the first round. On STS-B dev the best two layers of all-MiniLM-L6-v2 came out first there in 8 of 9
draws, and second in the other."""
FINALISTS = 6
"""Choices that the second round compares on everything."""
RIDGE = 1e-3
"""The ridge, as a share of the mean variance of a state's numbers."""
HELD_OUT = 5
"""One sentence in so many is held out, where the residual ranks."""
STEP_VERSION = 1


@dataclass(frozen=True)
class LayerRanker:
    """Ranks the layers for a student such as auto:2 by the teacher's `vectors` of all sentences."""

    student: str
    teacher: EncoderSpec
    pooling: str
    vectors: ShardedArray
    tokens: Path
    """The artifact of the student's tokens."""
    train: Rows
    dev: Sequence[DevSet]

    def artifact(self, store: ArtifactStore) -> Path:
        """The folder with the ranking, made if not there."""
        ids = load_tokens(self.tokens)
        depth, count = student_layers(self.student, self.teacher), count_layers(self.student, self.teacher)
        sampled, sets = sample_sentences(self.train, ids), sample_pairs(self.dev, PAIRS)
        parts = {
            "encoder": student_source(self.student, self.teacher).identity(),
            "pooling": self.pooling,
            "vectors": self.vectors.folder.name,
            "tokens": self.tokens.name,
            "train": array_sha256(sampled),
            "dev": [[s.name, *(array_sha256(part) for part in (s.left_P, s.right_P, s.score_P))] for s in sets],
            "depth": depth,
            "step_version": STEP_VERSION,
        }

        def make(folder: Path, missing: list[str]) -> None:
            from distilbench.prepare.layer_walk import LayerWalk

            all_layers = str(replace(StudentSpec.parse(self.student), rule=f"layers:{named(range(count))}"))
            model = load_student(all_layers, self.teacher, default_device(), self.pooling)
            walk, began = LayerWalk(model, f"--student {self.student}"), time.perf_counter()
            source = Source(walk, ids, sampled, self.vectors.take(sampled), tuple(sets))
            ranking = self._described(search_layers(source, depth), source, depth, time.perf_counter() - began)
            write_json(folder / FILE, ranking.model_dump(mode="json"))

        return store.build("layers", parts, [FILE], make)

    def _described(self, search: LayerSearch, source: Source, depth: int, seconds: float) -> LayerRanking:
        return LayerRanking(
            student=with_encoder(self.student, lambda name: EncoderSpec(name).title),
            encoder=student_source(self.student, self.teacher).title,
            count=source.walk.count,
            depth=depth,
            search="greedy" if search.path else "every choice",
            tried=len(search.screened) or len(search.choices),
            by="dev" if source.dev else "residual",
            sentences=len(source.train),
            dev=tuple(s.name for s in source.dev),
            pairs=sum(len(s.score_P) for s in source.dev),
            first_sentences=len(source.small().train) if search.screened else 0,
            seconds=round(seconds, 1),
            choices=tuple(search.choices),
            screened=tuple(search.screened),
            path=tuple(search.path),
        )


def sample_sentences(train: Rows, tokens: Tokens) -> Rows:
    """A fixed sample of the training sentences, rising rows."""
    drawn = np.random.default_rng(0).permutation(train)[:SENTENCES]
    within = int(np.searchsorted(np.cumsum(tokens.lengths_of(drawn)), TOKENS, side="right"))
    return np.sort(drawn[: max(within, ENOUGH_SENTENCES)])


def sample_pairs(dev: Sequence[DevSet], pairs: int) -> list[DevSet]:
    """A fixed sample of about `pairs` pairs, as many of each dev set."""
    samples = []
    for s in dev:
        chosen = np.sort(np.random.default_rng(0).permutation(len(s.score_P))[: max(2, pairs // len(dev))])
        samples.append(DevSet(s.name, s.left_P[chosen], s.right_P[chosen], s.score_P[chosen]))
    return samples


@dataclass(frozen=True)
class Source:
    """What a choice of layers is judged on: training rows with the teacher's vectors of them, and dev sets."""

    walk: LayerWalk
    tokens: Tokens
    train: Rows
    target_NE: NDArray[np.float32]
    dev: tuple[DevSet, ...]

    def small(self) -> Source:
        """A fixed part of it, for the first round."""
        chosen = np.unique(np.linspace(0, len(self.train) - 1, FIRST_SENTENCES).astype(np.int64))
        dev = tuple(sample_pairs(self.dev, FIRST_PAIRS))
        return replace(self, train=self.train[chosen], target_NE=self.target_NE[chosen], dev=dev)

    @property
    def dev_rows(self) -> Rows:
        """The distinct rows of the dev sets, rising."""
        pairs = [side for s in self.dev for side in (s.left_P, s.right_P)]
        return np.unique(np.concatenate([np.empty(0, dtype=np.int64), *pairs]))

    def judge(self, choices: Sequence[Choice], label: str) -> list[RankedChoice]:
        """The choices, the best first; a progress bar with this `label` counts the sentences that each layer has read."""
        from distilbench.prepare.layer_walk import evaluations

        dev_rows = self.dev_rows
        rows = np.concatenate([self.train, dev_rows])
        with progress(label, evaluations(choices) * len(rows), "sentences") as advance:
            return best_first(self._judged(choices, rows, dev_rows, advance))

    def _judged(
        self, choices: Sequence[Choice], rows: Rows, dev_rows: Rows, advance: Callable[[int], None]
    ) -> list[RankedChoice]:
        from distilbench.prepare.layer_walk import evaluations

        scored = []
        # One after the other, the parts of the tree that begin with the same layer: their states are in memory together.
        for _, part in groupby(sorted(choices), key=lambda choice: choice[0]):
            part_choices = list(part)
            states = self._states(rows, part_choices)
            scored += [self._scored(choice, states[choice], dev_rows) for choice in part_choices]
            advance(evaluations(part_choices) * len(rows))
        return scored

    def _states(self, rows: Rows, choices: Sequence[Choice]) -> Mapping[Choice, NDArray[np.float32]]:
        import torch

        device = self.walk.device
        # Two threads with a batch each read more than two on one batch (prepare.pool).
        threads = 1 if device == "cuda" else torch.get_num_threads()
        batches = token_budget_batches(self.tokens.lengths_of(rows), TOKENS_PER_BATCH[device])
        states = {choice: np.empty((len(rows), self.walk.width), dtype=np.float32) for choice in choices}

        def read(batch: NDArray[np.int64]) -> None:
            if device != "cuda":
                torch.set_num_threads(1)
            features = padded([self.tokens[int(row)] for row in rows[batch]], self.walk.pad, device)
            for choice, states_BD in self.walk.pooled(features, choices).items():
                states[choice][batch] = states_BD

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(read, batches))
        return states

    def _scored(self, choice: Choice, states_ND: NDArray[np.float32], dev_rows: Rows) -> RankedChoice:
        train_ND, dev_ND = states_ND[: len(self.train)], states_ND[len(self.train) :]
        if not self.dev:
            held_out = np.arange(len(train_ND)) % HELD_OUT == HELD_OUT - 1
            regress = ridge(train_ND[~held_out], self.target_NE[~held_out])
            residual = ((self.target_NE[held_out] - regress(train_ND[held_out])) ** 2).sum()
            total = ((self.target_NE[held_out] - self.target_NE[~held_out].mean(axis=0)) ** 2).sum()
            return RankedChoice(layers=choice, residual=float(residual / max(total, 1e-12)))
        regressed_NE = ridge(train_ND, self.target_NE)(dev_ND)
        return RankedChoice(
            layers=choice, dev=self._spearman(dev_ND, dev_rows), regressed=self._spearman(regressed_NE, dev_rows)
        )

    def _spearman(self, vectors: NDArray[np.float32], dev_rows: Rows) -> float:
        at = [(np.searchsorted(dev_rows, s.left_P), np.searchsorted(dev_rows, s.right_P)) for s in self.dev]
        correlations = [
            spearman(cosine(vectors[one], vectors[two]), s.score_P) for (one, two), s in zip(at, self.dev, strict=True)
        ]
        return float(
            np.mean(np.nan_to_num(correlations))
        )  # of one pair, or of gold scores that are all the same, there is none


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


class LayerSearch(NamedTuple):
    """What a search came to: the finalists, the best first; what was screened last, if anything; and the greedy path."""

    choices: list[RankedChoice]
    screened: list[RankedChoice]
    path: list[RankedChoice]


def search_layers(source: Source, depth: int) -> LayerSearch:
    """Every choice of `depth` layers on a small part of the source, and the best of them on all of it.

    Where they are too many: the best layer, then the best one to add, and so on.
    """
    count, small = source.walk.count, source.small()
    path: list[RankedChoice] = []
    screened: list[RankedChoice] = []
    # Prefixes of j layers, after which there are still enough for the others.
    if sum(comb(count - depth + j, j) for j in range(1, depth + 1)) <= EXHAUSTIVE:
        tried = list(combinations(range(count), depth))
        if len(tried) > FINALISTS:
            screened = small.judge(tried, "Layers, first round")
    else:
        for size in range(1, depth + 1):
            chosen = path[-1].layers if path else ()
            tried = [tuple(sorted((*chosen, i))) for i in range(count) if i not in chosen]
            screened = small.judge(tried, f"Layers, {size} of {depth}")
            path.append(screened[0])
    finalists = [choice.layers for choice in screened[:FINALISTS]] or tried
    return LayerSearch(source.judge(finalists, "Layers, last round"), screened, path)


def best_first(choices: Sequence[RankedChoice]) -> list[RankedChoice]:
    """By falling score; the same score by rising layers."""
    return sorted(choices, key=lambda choice: (-choice.score, choice.layers))
