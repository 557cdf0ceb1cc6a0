"""Which layers of an encoder make the best start of a student: every choice of that many, ranked before any training.

A student of several layers has the first: without it its start is as good or better, and its end worse. Only where it embeds
queries alone, and has little text to train on, every choice is ranked (results/starts.md). The embeddings stand for the
layers before the first of a choice (`prepare.skipped_layers`), as they will in training. The pooled states are regressed on
the teacher's embeddings (ridge, closed form), and the regressed vectors are judged by what students are selected by: on pairs
of sentences, or as queries for the teacher's documents, which need no encoding.
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
from sklearn.linear_model import Ridge

from distilbench.data.corpus import HeldOut, RetrievalSet, Rows, StsSet
from distilbench.encoders.encoder import EncoderSpec, default_device
from distilbench.encoders.encoding import TOKENS_PER_BATCH, padded, token_budget_batches
from distilbench.encoders.student import (
    StudentSpec,
    count_layers,
    load_student,
    student_layers,
    student_source,
    with_encoder,
)
from distilbench.evaluation.selection import HeldOutSet, JudgedSet, SelectionSets, total
from distilbench.evaluation.sts import Embed, from_rows
from distilbench.prepare.pool import progress
from distilbench.prepare.selection_sets import held_out_set
from distilbench.prepare.skipped_layers import embeddings_setter, sample_rows
from distilbench.prepare.tokens import Tokens, load_tokens
from distilbench.storage.arrays import ShardedArray, array_sha256
from distilbench.storage.files import write_json
from distilbench.storage.store import ArtifactStore

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from distilbench.encoders.layers import LayerList

SENTENCES = 3000
"""Training sentences of the regression at most."""
TOKENS = 120_000
"""The most tokens that are read of them, as of a `sample_rows`."""
ITEMS = 1500
"""Dev pairs and queries at most, of all sets together."""
EXHAUSTIVE = 80
"""Choices up to which all are tried (3 of 12 layers, the first among them, are 55); of more, layers are added one by one."""
FIRST_SENTENCES, FIRST_ITEMS = 500, 300
"""The sentences of the first round. On STS-B dev the best two layers of all-MiniLM-L6-v2 came out first there in 8 of 9
draws, and second in the other."""
FINALISTS = 6
"""Choices that the second round compares on everything."""
LEVEL = 1.0
"""Points of a start below the best one, within which a choice with the first layer is taken: it reads its own embeddings, and
training makes more of it (results/starts.md)."""
MUCH_TEXT = 100_000
"""Training texts from which a student that embeds queries alone has the first layer too: two layers with it were worse after
49,000 texts, and better after 150,000 (results/starts.md)."""
RIDGE = 1e-3
"""The ridge, as a share of the mean variance of a state's numbers."""
STEP_VERSION = 4
FILE = "layer-ranking.json"
KEPT = "layer-rankings.json"
"""In the prepared folder of a run: the rankings of all of its students, as a list."""


class RankedChoice(BaseModel):
    """Some layers, and how good a start they are: the measure x 100 of their regressed states on the dev sets."""

    model_config = ConfigDict(frozen=True)

    layers: tuple[int, ...]
    regressed: float


class LayerRanking(BaseModel):
    """The best choices of `depth` of an encoder's `count` layers, the best first.

    Of many choices (`tried`) the first round read `first_sentences`, and `choices` are the best of them, read again on
    `sentences`. `search` is "greedy" where layers were added one by one, each the best to add to those before.
    """

    model_config = ConfigDict(frozen=True)

    student: str
    encoder: str
    count: int
    depth: int
    search: Literal["every choice", "greedy"]
    first: bool = False
    """Whether only choices with the first layer were tried."""
    sentences: int
    dev: tuple[str, ...]
    """The dev sets that rank."""
    measure: str = "Spearman"
    """What the dev sets measure, as it is called on a page."""
    tried: int
    first_sentences: int = 0
    seconds: float
    choices: tuple[RankedChoice, ...] = Field(min_length=1)

    @property
    def chosen(self) -> tuple[int, ...]:
        """The layers taken: of the best start, or of one level with it that needs no embeddings to stand for layers."""
        least = self.choices[0].regressed - LEVEL
        own = [choice.layers for choice in self.choices if choice.layers[0] == 0 and choice.regressed >= least]
        return own[0] if own else self.choices[0].layers

    @property
    def summary(self) -> str:
        """How it was done, in one sentence."""
        whole = f"all {self.tried} choices{' with the first layer' if self.first else ''}"
        one_by_one = f"the {'first' if self.first else 'best'} layer, then the best to add"
        tried = whole if self.search == "every choice" else one_by_one
        again = f", the best {len(self.choices)} again on {self.sentences:,}" if self.first_sentences else ""
        read = f"{self.first_sentences or self.sentences:,} sentences{again}"
        return (
            f"{self.depth} of the {self.count} layers of {self.encoder}: {tried} on {read}; ranked by dev {self.measure} "
            f"({', '.join(self.dev)}) after a regression on the teacher's embeddings; {self.seconds:.0f} s"
        )


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
    judged: SelectionSets
    """What students are selected by."""
    quick: bool = False
    """Whether there is no time for the second round."""

    def artifact(self, store: ArtifactStore) -> Path:
        """The folder with the ranking, made if not there."""
        ids = load_tokens(self.tokens)
        depth, count = student_layers(self.student, self.teacher), count_layers(self.student, self.teacher)
        sampled = sample_rows(self.train, ids, SENTENCES, TOKENS)
        judged = sample_items(self.judged, ITEMS, self.vectors.take)
        first = depth > 1 and not (judged.selection.by_teacher and len(self.train) < MUCH_TEXT)
        parts = {
            "encoder": student_source(self.student, self.teacher).identity(),
            "pooling": self.pooling,
            "vectors": self.vectors.folder.name,
            "tokens": self.tokens.name,
            "train": array_sha256(sampled),
            "dev": [str(judged.selection), *map(_digests, judged.every)],
            "depth": depth,
            "first": first,
            **({"quick": True} if self.quick else {}),
            "step_version": STEP_VERSION,
        }

        def make(folder: Path, missing: list[str]) -> None:
            from distilbench.encoders.layers import LayerList

            all_layers = str(replace(StudentSpec.parse(self.student), rule=f"layers:{named_layers(range(count))}"))
            model, began = load_student(all_layers, self.teacher, default_device(), self.pooling), time.perf_counter()
            layers = LayerList(model[0].model, f"--student {self.student}")
            known = np.union1d(sampled, judged.rows)
            read = np.union1d(sampled, read_rows(judged))
            stand_for = embeddings_setter(model, layers.layers, ids, self.train, read)
            source = Source(model, layers, ids, sampled, from_rows(known, self.vectors.take(known)), judged, stand_for)
            ranking = LayerRanking(
                student=with_encoder(self.student, lambda name: EncoderSpec(name).title),
                encoder=student_source(self.student, self.teacher).title,
                count=count,
                depth=depth,
                sentences=min(FIRST_SENTENCES, len(sampled)) if self.quick else len(sampled),
                dev=tuple(f"{s.name} dev" for s in judged.every),
                measure=judged.selection.title,
                **search_layers(source, depth, first=first, quick=self.quick),
                seconds=round(time.perf_counter() - began, 1),
            )
            write_json(folder / FILE, ranking.model_dump(mode="json"))

        return store.build("layers", parts, [FILE], make)


def read_rows(judged: SelectionSets) -> Rows:
    """The rows of dev sets that a student's layers read: documents have the teacher's vectors."""
    read = [column for s in judged.every for column in (s.columns if isinstance(s, StsSet) else (s.queries,))]
    return np.unique(np.concatenate(read))


def _digests(judged: JudgedSet) -> list[str]:
    labels: list[NDArray[Any]]
    match judged:
        case StsSet():
            labels = [judged.score_P]
        case RetrievalSet():
            labels = [np.concatenate(answers) for answers in (judged.relevant, judged.grades) if answers]
        case HeldOutSet():
            labels = [judged.near_NK]
    return [judged.name, *map(array_sha256, (*judged.columns, *labels))]


def sample_items(judged: SelectionSets, items: int, teacher: Embed) -> SelectionSets:
    """A fixed sample of about `items` pairs, queries and held-out sentences, as many of each set; a query keeps all
    documents."""
    each = max(2, items // len(judged.every))

    def some(column: NDArray[Any]) -> NDArray[Any]:
        return column[np.sort(np.random.default_rng(0).permutation(len(column))[:each])]

    def sample(whole: JudgedSet) -> JudgedSet:
        match whole:
            case StsSet():
                return replace(
                    whole, left_P=some(whole.left_P), right_P=some(whole.right_P), score_P=some(whole.score_P)
                )
            case RetrievalSet():
                return whole.of_queries(some(np.arange(len(whole.queries))))
            case HeldOutSet():
                return held_out_set(HeldOut("dev", some(whole.rows)), teacher)

    return replace(judged, sets={kind: tuple(map(sample, sets)) for kind, sets in judged.sets.items()})


@dataclass(frozen=True)
class Source:
    """What a choice of a model's layers is judged on: training rows with the teacher's vectors of them, and dev sets."""

    model: SentenceTransformer
    layers: LayerList
    tokens: Tokens
    train: Rows
    teacher: Embed
    """Its vectors of all that is read."""
    judged: SelectionSets
    stand_for: Callable[[int], None]
    """Has the model's embeddings stand for so many of its first layers."""

    def small(self) -> Source:
        """A fixed part of it, for the first round."""
        chosen = np.unique(np.linspace(0, len(self.train) - 1, FIRST_SENTENCES).astype(np.int64))
        return replace(self, train=self.train[chosen], judged=sample_items(self.judged, FIRST_ITEMS, self.teacher))

    def judge(self, choices: Sequence[tuple[int, ...]], label: str) -> list[RankedChoice]:
        """The choices, the best first; a progress bar has this `label`."""
        dev_rows = read_rows(self.judged)
        rows, judged = np.concatenate([self.train, dev_rows]), []
        with progress(label, len(choices) * len(rows), "sentences") as advance:
            for choice in choices:
                self.layers.keep(choice)
                self.stand_for(choice[0])
                judged.append(self._scored(choice, self._states(rows), dev_rows))
                advance(len(rows))
        return sorted(judged, key=lambda choice: (-choice.regressed, choice.layers))

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
        regressed_NE = regressed(train_ND, self.teacher(self.train), dev_ND)
        measured = self.judged.measure(self.teacher, from_rows(dev_rows, regressed_NE), across=True)
        # Of one pair, or of gold scores that are all the same, there is no correlation.
        return RankedChoice(
            layers=choice, regressed=total([m._replace(value=float(np.nan_to_num(m.value))) for m in measured])
        )


def regressed(
    train_ND: NDArray[np.float32], target_NE: NDArray[np.float32], states_ND: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The targets of states by a linear regression on those of training rows, with a bias and a small ridge, in float64."""
    states = train_ND.astype(np.float64)
    strength = RIDGE * len(states) * float(states.var(axis=0).mean()) or 1.0
    fitted = Ridge(alpha=strength, solver="cholesky").fit(states, target_NE.astype(np.float64))
    return np.asarray(fitted.predict(states_ND.astype(np.float64)), dtype=np.float32)


def search_layers(source: Source, depth: int, *, first: bool, quick: bool) -> dict[str, Any]:
    """What a `LayerRanking` has of a search: every choice of `depth` layers, or of those with the `first`, on a small part of
    the source, and, unless it must be quick, the best of them on all of it.

    Where they are too many: the first or else the best layer, then the best one to add, and so on.
    """
    count, small, screened = len(source.layers.layers), source.small(), list[RankedChoice]()
    kept = (0,) if first else ()
    others, more = range(len(kept), count), depth - len(kept)
    greedy = comb(len(others), more) > EXHAUSTIVE
    if greedy:
        for size in range(len(kept) + 1, depth + 1):
            chosen = screened[0].layers if screened else kept
            tried = [tuple(sorted((*chosen, i))) for i in others if i not in chosen]
            screened = small.judge(tried, f"Layers, {size} of {depth}")
    else:
        tried = [(*kept, *added) for added in combinations(others, more)]
        if quick or len(tried) > FINALISTS:
            screened = small.judge(tried, "Layers, first round")
    found = {"search": "greedy" if greedy else "every choice", "first": first, "tried": len(tried)}
    if quick:
        return {**found, "choices": screened[:FINALISTS]}
    finalists = [choice.layers for choice in screened[:FINALISTS]] or tried
    choices = source.judge(finalists, "Layers, last round")
    return {**found, "first_sentences": len(small.train) if screened else 0, "choices": choices}
