"""The demonstration corpus's triplets and pair tasks: right by their meanings, balanced, and apart in train, dev, test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from distilbench.data.builtin import assemble, builtin_corpus, split_of
from distilbench.data.builtin_pairs import COUNTS
from distilbench.data.corpus import Corpus, PairTask
from distilbench.data.grammar import FRAMES, Meaning, similarity
from distilbench.data.requirements import Requirements

ROOT = Path(__file__).parents[2]
TASKS = ("DEMO-SIM", "DEMO-DUP", "DEMO-NLI")
EVERYTHING = Requirements(triplets=True, pair_tasks=TASKS)
SCENE = FRAMES["scene"]


@pytest.fixture(scope="module")
def assembled() -> tuple[Corpus, dict[str, Meaning]]:
    return assemble(1500, 0, EVERYTHING)


@pytest.fixture(scope="module")
def corpus(assembled: tuple[Corpus, dict[str, Meaning]]) -> Corpus:
    return assembled[0]


def task_of(corpus: Corpus, name: str) -> PairTask:
    return next(task for task in corpus.pair_tasks if task.name == name)


def pairs_of(corpus: Corpus, name: str, split: str) -> list[tuple[str, str, float]]:
    found = task_of(corpus, name).splits[split]
    columns = zip(found.left_P.tolist(), found.right_P.tolist(), found.target_P.tolist(), strict=True)
    return [(corpus.sentences[one], corpus.sentences[two], target) for one, two, target in columns]


def implies(a: Meaning, b: Meaning) -> bool:
    """Whether `a` without "not" says all that `b` without "not" says."""
    return all(y in ("", x) for x, y in zip(a.values[:-1], b.values[:-1], strict=True))


def relation(premise: Meaning, hypothesis: Meaning) -> str:
    """Entailment, neutral or contradiction, from the slots alone; "?" for what should not be asked."""
    before, after = premise.values[-1], hypothesis.values[-1]
    if before != after:
        positive, negative = (hypothesis, premise) if before else (premise, hypothesis)
        return "contradiction" if implies(positive, negative) else "?"
    if implies(*((hypothesis, premise) if before else (premise, hypothesis))):
        return "entailment"
    if implies(*((premise, hypothesis) if before else (hypothesis, premise))):
        return "neutral"
    if before:
        return "?"
    slots = zip(SCENE.slots, premise.values, hypothesis.values, strict=True)
    changed = [slot.name for slot, x, y in slots if x and y and x != y]
    return "contradiction" if len(changed) == 1 and changed[0] in ("verb", "object", "agent") else "?"


@pytest.mark.parametrize("size", [1, 7, 300])
def test_as_many_triplets_as_pairs(size: int) -> None:
    corpus = builtin_corpus(size, needs=Requirements(triplets=True))
    assert corpus.triplets_T3.shape == (size, 3) and len(corpus.pairs_P2) == size
    assert corpus.pair_tasks == ()
    assert f"triplets: {size} generated ones (train)" in corpus.found


def test_triplets_entail_and_contradict(assembled: tuple[Corpus, dict[str, Meaning]]) -> None:
    corpus, meaning_of = assembled
    assert set(corpus.triplets_T3.ravel().tolist()) <= set(corpus.train.tolist())
    same = negated = 0
    for triplet in corpus.triplets_T3.tolist():
        assert len(set(triplet)) == 3
        anchor, positive, negative = (meaning_of[corpus.sentences[i]] for i in triplet)
        assert relation(anchor, positive) == "entailment"
        assert relation(anchor, negative) == "contradiction"
        same += anchor == positive
        negated += anchor.values[-1] != negative.values[-1]
    total = len(corpus.triplets_T3)
    assert 0.3 < same / total < 0.8  # reworded; the others leave a detail out
    assert 0.3 < negated / total < 0.6  # denied; the others change a slot


def test_the_form_of_the_tasks(corpus: Corpus) -> None:
    assert [(t.name, t.kind, t.classes, t.low, t.high) for t in corpus.pair_tasks] == [
        ("DEMO-SIM", "regression", (), 0, 5),
        ("DEMO-DUP", "binary", ("different", "duplicate"), 0, 1),
        ("DEMO-NLI", "three-class", ("entailment", "neutral", "contradiction"), 0, 1),
    ]
    for task in corpus.pair_tasks:
        assert {name: len(split.target_P) for name, split in task.splits.items()} == COUNTS
    assert COUNTS == {"train": 2000, "dev": 500, "test": 500}


@pytest.mark.parametrize("split", COUNTS)
@pytest.mark.parametrize(("name", "classes"), [("DEMO-DUP", 2), ("DEMO-NLI", 3)])
def test_classes_are_balanced(corpus: Corpus, name: str, classes: int, split: str) -> None:
    target = task_of(corpus, name).splits[split].target_P
    counts = np.bincount(target.astype(int))
    assert len(counts) == classes and counts.max() - counts.min() <= 1
    # In no order, neither one class after the other nor in turns.
    assert abs(np.mean(target[1:] == target[:-1]) - 1 / classes) < 0.1


@pytest.mark.parametrize("split", COUNTS)
def test_similarities_are_graded(assembled: tuple[Corpus, dict[str, Meaning]], split: str) -> None:
    corpus, meaning_of = assembled
    pairs = pairs_of(corpus, "DEMO-SIM", split)
    scores = np.array([score for *_, score in pairs])
    assert np.histogram(scores, bins=5, range=(0, 5))[0].min() >= 0.02 * len(scores)
    for left, right, score in pairs:
        assert left != right and similarity(meaning_of[left], meaning_of[right]) == score


@pytest.mark.parametrize("split", COUNTS)
def test_duplicates_mean_the_same_and_the_others_mostly_nearly_so(
    assembled: tuple[Corpus, dict[str, Meaning]], split: str
) -> None:
    corpus, meaning_of = assembled
    near = 0
    for left, right, label in pairs_of(corpus, "DEMO-DUP", split):
        one, two = meaning_of[left], meaning_of[right]
        assert left != right and one.frame == two.frame == "question"
        assert (one == two) == bool(label)
        near += sum(x != y for x, y in zip(one.values, two.values, strict=True)) == 1
    assert near > 0.7 * COUNTS[split] / 2


@pytest.mark.parametrize("split", COUNTS)
def test_nli_labels_follow_from_the_meanings(assembled: tuple[Corpus, dict[str, Meaning]], split: str) -> None:
    corpus, meaning_of = assembled
    classes = task_of(corpus, "DEMO-NLI").classes
    for premise, hypothesis, label in pairs_of(corpus, "DEMO-NLI", split):
        assert premise != hypothesis
        assert relation(meaning_of[premise], meaning_of[hypothesis]) == classes[int(label)], (premise, hypothesis)


def words(sentence: str) -> set[str]:
    return set(re.findall(r"[a-z']+", sentence.lower()))


def best_guess(feature: list[float], label: list[float]) -> float:
    """Accuracy of the best rule that cuts one feature into ranges of its quintiles and answers by majority."""
    ranges = np.digitize(feature, np.unique(np.quantile(feature, [0.2, 0.4, 0.6, 0.8])))
    numbers = np.array(label, dtype=int)
    return sum(np.bincount(numbers[ranges == r]).max() for r in np.unique(ranges)) / len(numbers)


@pytest.mark.parametrize(
    ("name", "limit"),
    [("DEMO-DUP", 0.68), ("DEMO-NLI", 0.5)],  # by chance 0.5 and 0.33; who reads the meaning gets all of them right
)
def test_shared_words_or_the_second_sentence_alone_do_not_give_the_label(
    corpus: Corpus, name: str, limit: float
) -> None:
    pairs = pairs_of(corpus, name, "train")
    label = [target for *_, target in pairs]
    overlap = [len(words(a) & words(b)) / len(words(a) | words(b)) for a, b, _ in pairs]
    assert best_guess(overlap, label) < limit
    assert best_guess([len(words(b)) for _, b, _ in pairs], label) < limit
    assert best_guess([float(bool(re.search(r"\bnot\b|n't\b", b))) for _, b, _ in pairs], label) < limit


def test_train_dev_and_test_share_no_sentence_and_no_event(assembled: tuple[Corpus, dict[str, Meaning]]) -> None:
    corpus, meaning_of = assembled
    rows = {"train": set(corpus.train.tolist()), "dev": set[int](), "test": set[int]()}
    for task in corpus.pair_tasks:
        for name, split in task.splits.items():
            rows[name] |= {*split.left_P.tolist(), *split.right_P.tolist()}
    for sts in corpus.sts:
        rows[sts.split] |= {*sts.left_P.tolist(), *sts.right_P.tolist()}
    assert rows["train"] == set(corpus.train.tolist())  # every training sentence of a task may be trained on
    for split, found in rows.items():
        assert {split_of(meaning_of[corpus.sentences[i]].event) for i in found} == {split}
    assert not rows["train"] & rows["dev"] and not rows["train"] & rows["test"] and not rows["dev"] & rows["test"]


def test_a_task_does_not_depend_on_the_others_nor_on_the_size() -> None:
    alone = builtin_corpus(5, needs=Requirements(pair_tasks=("DEMO-NLI",)))
    together = builtin_corpus(40, needs=Requirements(triplets=True, pair_tasks=TASKS))
    for split in COUNTS:
        assert pairs_of(alone, "DEMO-NLI", split) == pairs_of(together, "DEMO-NLI", split)


@pytest.mark.slow
def test_another_seed_is_another_set() -> None:
    one, two = (builtin_corpus(20, seed, EVERYTHING) for seed in (0, 1))
    assert {one.sentences[i] for i in one.triplets_T3[:, 0]} != {two.sentences[i] for i in two.triplets_T3[:, 0]}
    for name in TASKS:
        assert not set(pairs_of(one, name, "test")) & set(pairs_of(two, name, "test"))


@pytest.mark.slow
def test_same_seed_same_bytes_in_another_process() -> None:
    code = (
        "import sys; from distilbench.data.builtin import builtin_corpus\n"
        "from distilbench.data.requirements import Requirements\n"
        f"sys.stdout.write(builtin_corpus(60, 3, Requirements(True, {TASKS})).fingerprint)"
    )
    expected = builtin_corpus(60, 3, EVERYTHING).fingerprint
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True) == expected
