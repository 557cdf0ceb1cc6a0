"""Augmented copies: with source and operation, counted, the same for any number of workers, resumed, filtered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.errors import InputError
from distilbench.prepare import copies as module
from distilbench.prepare.augment import operations
from distilbench.prepare.augment.operation import Operation
from distilbench.prepare.copies import augmented_corpus
from distilbench.storage.store import ArtifactStore

TRAIN = tuple(
    f"the {a} sees a {b} in the house" for a in ("dog", "cat", "man", "child") for b in ("river", "park", "door")
)


@dataclass(frozen=True)
class Changed(Operation):
    """Replaces a word; without it in the sentence the copy is the sentence."""

    old: str = "dog"
    new: str = "Dog  "

    name: ClassVar[str] = "changed"

    def identity(self) -> dict[str, Any]:
        return {"old": self.old, "new": self.new}

    def check(self) -> None:
        if self.new == "missing":
            raise InputError("changed: nothing is installed")

    def load(self) -> Callable[[Sequence[str], int], list[str]]:
        return lambda sentences, seed: [s.replace(self.old, self.new) for s in sentences]


def make_corpus(train: Sequence[str] = TRAIN) -> Corpus:
    builder = CorpusBuilder("test")
    builder.add_sts("STSB", "", "dev", ["a bird sees a river in the house"], ["Y"], [1.0])
    builder.train_on(train)
    return builder.build()


Run = Callable[..., None]


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch, run_in_process: Run) -> None:
    monkeypatch.setattr(module, "SHARD_ROWS", 5)
    monkeypatch.setattr(module, "run_pool", run_in_process)


def texts(corpus: Corpus) -> list[str]:
    return [corpus.sentences[i] for i in corpus.copies.rows]


def test_every_copy_has_its_source_and_operation_and_the_others_are_counted(tmp_path: Path) -> None:
    corpus = make_corpus()
    made = augmented_corpus(
        corpus, [Changed("dog", "bird"), Changed("door", "gate"), Changed("dog", "BIRD")], 0, ArtifactStore(tmp_path)
    )
    assert tuple(made.sentences)[: len(corpus.sentences)] == corpus.sentences
    assert np.array_equal(made.train, corpus.train) and made.sts == corpus.sts
    # "the bird sees a river..." differs from the evaluation sentence in "the"; BIRD repeats bird.
    assert texts(made) == [
        *(s.replace("dog", "bird") for s in TRAIN if "dog" in s),
        *(s.replace("door", "gate") for s in TRAIN if "door" in s),
    ]
    for row, source, operation in zip(made.copies.rows, made.copies.source, made.copies.operation, strict=True):
        old, new = [("dog", "bird"), ("door", "gate")][operation]
        assert made.sentences[row] == made.sentences[source].replace(old, new)
    assert made.copies.names == ("changed",) * 3
    assert made.fingerprint != corpus.fingerprint and made.sentences_fingerprint != corpus.sentences_fingerprint


def test_counts_are_told(tmp_path: Path) -> None:
    made = augmented_corpus(make_corpus(), [Changed("the dog", "a bird")], 0, ArtifactStore(tmp_path))
    # Of 3 copies one is the evaluation sentence; 9 sentences have no dog.
    assert made.found[-1] == "augmentation changed: 2 sentences from 12 (9 unchanged, 1 already there)"
    made = augmented_corpus(make_corpus(), [Changed()], 0, ArtifactStore(tmp_path))  # spaces and case alone
    assert made.found[-1] == "augmentation changed: 0 sentences from 12 (12 unchanged, 0 already there)"
    assert not len(made.copies.rows) and list(made.sentences) == list(make_corpus().sentences)


def test_a_second_run_makes_nothing_and_another_seed_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, synonym = ArtifactStore(tmp_path), operations(["synonym"])
    first = augmented_corpus(make_corpus(), synonym, 0, store)
    assert texts(augmented_corpus(make_corpus(), synonym, 1, store)) != texts(first)
    monkeypatch.setattr(module, "run_pool", lambda *_, **__: pytest.fail("made again"))
    assert augmented_corpus(make_corpus(), synonym, 0, store).fingerprint == first.fingerprint
