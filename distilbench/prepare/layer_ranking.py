"""Which layers of an encoder make the best start of a student: every choice of that many, ranked before any training.

The pooled states of each choice are regressed on the teacher's embeddings (ridge, closed form), and the Spearman of the
regressed vectors on the dev sets ranks. Without a labelled dev set the residual on held-out sentences does.
Axes: N sentences, D width of the student, E of the teacher.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from scipy.linalg import cho_factor, cho_solve

from distilbench.data.corpus import Rows, StsSet
from distilbench.encoders.encoder import TOKENS_PER_BATCH, EncoderSpec, default_device, padded, token_budget_batches
from distilbench.encoders.student import (
    StudentSpec,
    count_layers,
    load_student,
    student_layers,
    student_source,
    with_encoder,
)
from distilbench.evaluation.sts import cosine, spearman
from distilbench.prepare.pool import progress
from distilbench.prepare.tokens import Tokens, load_tokens
from distilbench.storage.arrays import ShardedArray, array_sha256
from distilbench.storage.files import write_json
from distilbench.storage.store import ArtifactStore

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from distilbench.encoders.layers import LayerList

SENTENCES = 3000
"""Training sentences of the regression at most."""
ENOUGH_SENTENCES = 1000
TOKENS = 120_000
"""The most tokens that are read of more than `ENOUGH_SENTENCES` sentences: long documents take as long as short ones."""
PAIRS = 1500
"""Dev pairs at most, of all sets together."""
EXHAUSTIVE = 80
"""Choices up to which all are tried (2 of 12 layers are 66); of more, layers are added one by one."""
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
FILE = "layer-ranking.json"
KEPT = "layer-rankings.json"
"""In the prepared folder of a run: the rankings of all of its students, as a list."""


class RankedChoice(BaseModel):
    """Some layers, and how good a start they are: Spearman x 100 on the dev sets, of the states as they are and regressed.

    `residual` is the part of the variance of the teacher's held-out embeddings that the regression leaves; without a labelled
    dev set it takes the place of the two others.
    """

    model_config = ConfigDict(frozen=True)

    layers: tuple[int, ...]
    dev: float | None = None
    regressed: float | None = None
    residual: float | None = None

    @property
    def score(self) -> float:
        """What ranks: the higher the better."""
        return self.regressed if self.regressed is not None else -(self.residual or 0.0)


class LayerRanking(BaseModel):
    """The best choices of `depth` of an encoder's `count` layers, the best first.

    Of many choices (`tried`) the first round read `first_sentences`, and `choices` are the best of them, read again on
    `sentences`. `search` is "greedy" where the best layer was sought first, then the best one to add, and so on.
    """

    model_config = ConfigDict(frozen=True)

    student: str
    encoder: str
    count: int
    depth: int
    search: Literal["every choice", "greedy"]
    sentences: int
    dev: tuple[str, ...]
    """The dev sets whose Spearman ranks; none where the residual does."""
    tried: int
    first_sentences: int = 0
    seconds: float
    choices: tuple[RankedChoice, ...] = Field(min_length=1)

    @property
    def by(self) -> Literal["dev", "residual"]:
        """What ranks the choices."""
        return "dev" if self.dev else "residual"

    @property
    def chosen(self) -> tuple[int, ...]:
        """The layers taken."""
        return self.choices[0].layers

    @property
    def summary(self) -> str:
        """How it was done, in one sentence."""
        tried = f"all {self.tried} choices" if self.search == "every choice" else "the best layer, then the best to add"
        again = f", the best {len(self.choices)} again on {self.sentences:,}" if self.first_sentences else ""
        by = f"dev Spearman ({', '.join(self.dev)}) after" if self.dev else "what is left on held-out sentences by"
        read = f"{self.first_sentences or self.sentences:,} sentences{again}"
        return (
            f"{self.depth} of the {self.count} layers of {self.encoder}: {tried} on {read}; ranked by {by} a regression on "
            f"the teacher's embeddings; {self.seconds:.0f} s"
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Headings of a table of it."""
        return ("layers", "dev", "dev after regression") if self.by == "dev" else ("layers", "residual")

    def values(self, choice: RankedChoice) -> list[float]:
        """The numbers of a choice below these headings."""
        return [v for v in (choice.dev, choice.regressed, choice.residual) if v is not None]


def named_layers(layers: Sequence[int]) -> str:
    """The layers as `--student layers:` takes them."""
    return ",".join(map(str, layers))


def keep_rankings(folder: Path, artifacts: Iterable[Path | None]) -> None:
    """Write the rankings of a run's students, that of its own first, from where they were made; others go."""
    rankings = [ranking for path in artifacts if path is not None and (ranking := read_ranking(path)) is not None]
    distinct = {(ranking.student, ranking.encoder): ranking for ranking in rankings}
    write_json(folder / KEPT, [ranking.model_dump(mode="json") for ranking in distinct.values()])


def read_rankings(folder: Path) -> tuple[LayerRanking, ...]:
    """What `keep_rankings` has written; nothing where it cannot be read."""
    try:
        return TypeAdapter(tuple[LayerRanking, ...]).validate_json((folder / KEPT).read_bytes())
    except (OSError, ValidationError):
        return ()


def read_ranking(folder: Path) -> LayerRanking | None:
    """The ranking in a folder; None where there is none, or none that can be read."""
    try:
        return LayerRanking.model_validate_json((folder / FILE).read_bytes())
    except (OSError, ValidationError):
        return None


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
    dev: Sequence[StsSet]
    quick: bool = False
    """Whether there is no time for the second round."""

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
            "dev": [
                [f"{s.name} dev", *(array_sha256(part) for part in (s.left_P, s.right_P, s.score_P))] for s in sets
            ],
            "depth": depth,
            **({"quick": True} if self.quick else {}),
            "step_version": STEP_VERSION,
        }

        def make(folder: Path, missing: list[str]) -> None:
            from distilbench.encoders.layers import LayerList

            all_layers = str(replace(StudentSpec.parse(self.student), rule=f"layers:{named_layers(range(count))}"))
            model, began = load_student(all_layers, self.teacher, default_device(), self.pooling), time.perf_counter()
            layers = LayerList(model[0].model, f"--student {self.student}")
            source = Source(model, layers, ids, sampled, self.vectors.take(sampled), tuple(sets))
            ranking = LayerRanking(
                student=with_encoder(self.student, lambda name: EncoderSpec(name).title),
                encoder=student_source(self.student, self.teacher).title,
                count=count,
                depth=depth,
                sentences=min(FIRST_SENTENCES, len(sampled)) if self.quick else len(sampled),
                dev=tuple(f"{s.name} dev" for s in sets),
                **search_layers(source, depth, quick=self.quick),
                seconds=round(time.perf_counter() - began, 1),
            )
            write_json(folder / FILE, ranking.model_dump(mode="json"))

        return store.build("layers", parts, [FILE], make)


def sample_sentences(train: Rows, tokens: Tokens) -> Rows:
    """A fixed sample of the training sentences, rising rows."""
    drawn = np.random.default_rng(0).permutation(train)[:SENTENCES]
    within = int(np.searchsorted(np.cumsum(tokens.lengths_of(drawn)), TOKENS, side="right"))
    return np.sort(drawn[: max(within, ENOUGH_SENTENCES)])


def sample_pairs(dev: Sequence[StsSet], pairs: int) -> list[StsSet]:
    """A fixed sample of about `pairs` pairs, as many of each dev set."""
    samples = []
    for s in dev:
        chosen = np.sort(np.random.default_rng(0).permutation(len(s.score_P))[: max(2, pairs // len(dev))])
        columns = {name: getattr(s, name)[chosen] for name in ("left_P", "right_P", "score_P")}
        samples.append(replace(s, **columns))
    return samples


@dataclass(frozen=True)
class Source:
    """What a choice of a model's layers is judged on: training rows with the teacher's vectors of them, and dev sets."""

    model: SentenceTransformer
    layers: LayerList
    """The model's own."""
    tokens: Tokens
    train: Rows
    target_NE: NDArray[np.float32]
    dev: tuple[StsSet, ...]

    def small(self) -> Source:
        """A fixed part of it, for the first round."""
        chosen = np.unique(np.linspace(0, len(self.train) - 1, FIRST_SENTENCES).astype(np.int64))
        dev = tuple(sample_pairs(self.dev, FIRST_PAIRS))
        return replace(self, train=self.train[chosen], target_NE=self.target_NE[chosen], dev=dev)

    def judge(self, choices: Sequence[tuple[int, ...]], label: str) -> list[RankedChoice]:
        """The choices, the best first; a progress bar has this `label`."""
        sides = [side for s in self.dev for side in (s.left_P, s.right_P)]
        dev_rows = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *sides]))
        rows, judged = np.concatenate([self.train, dev_rows]), []
        with progress(label, len(choices) * len(rows), "sentences") as advance:
            for choice in choices:
                self.layers.keep(choice)
                judged.append(self._scored(choice, self._states(rows), dev_rows))
                advance(len(rows))
        return sorted(judged, key=lambda choice: (-choice.score, choice.layers))

    def _states(self, rows: Rows) -> NDArray[np.float32]:
        import torch

        device, pad = self.model.device.type, int(self.model.tokenizer.pad_token_id or 0)
        states = np.empty((len(rows), int(self.model.get_embedding_dimension() or 0)), dtype=np.float32)

        def read(batch: NDArray[np.int64]) -> None:
            with torch.inference_mode():
                features = padded([self.tokens[int(row)] for row in rows[batch]], pad, device)
                states[batch] = self.model(features)["sentence_embedding"].float().cpu().numpy()

        # Two threads with a batch each read more than two on one batch (prepare.pool).
        threads = 1 if device == "cuda" else torch.get_num_threads()
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            list(pool.map(read, token_budget_batches(self.tokens.lengths_of(rows), TOKENS_PER_BATCH[device])))
        return states

    def _scored(self, choice: tuple[int, ...], states_ND: NDArray[np.float32], dev_rows: Rows) -> RankedChoice:
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
        correlations = []
        for s in self.dev:
            left, right = (vectors[np.searchsorted(dev_rows, side)] for side in (s.left_P, s.right_P))
            correlations.append(spearman(cosine(left, right), s.score_P))
        # Of one pair, or of gold scores that are all the same, there is none.
        return float(np.mean(np.nan_to_num(correlations)))


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


def search_layers(source: Source, depth: int, *, quick: bool = False) -> dict[str, Any]:
    """What a `LayerRanking` has of a search: every choice of `depth` layers on a small part of the source, and, unless it
    must be quick, the best of them on all of it.

    Where they are too many: the best layer, then the best one to add, and so on.
    """
    count, small, screened = len(source.layers.layers), source.small(), list[RankedChoice]()
    greedy = comb(count, depth) > EXHAUSTIVE
    if greedy:
        for size in range(1, depth + 1):
            chosen = screened[0].layers if screened else ()
            tried = [tuple(sorted((*chosen, i))) for i in range(count) if i not in chosen]
            screened = small.judge(tried, f"Layers, {size} of {depth}")
    else:
        tried = list(combinations(range(count), depth))
        if quick or len(tried) > FINALISTS:
            screened = small.judge(tried, "Layers, first round")
    found = {"search": "greedy" if greedy else "every choice", "tried": len(tried)}
    if quick:
        return {**found, "choices": screened[:FINALISTS]}
    finalists = [choice.layers for choice in screened[:FINALISTS]] or tried
    choices = source.judge(finalists, "Layers, last round")
    return {**found, "first_sentences": len(small.train) if screened else 0, "choices": choices}
