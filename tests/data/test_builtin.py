"""The built-in corpus: deterministic, graded, and with train, dev and test apart in meaning."""

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from distilbench.data import lexicon
from distilbench.data.builtin import assemble, builtin_corpus, largest_size, split_of
from distilbench.data.corpus import Corpus
from distilbench.data.grammar import FRAMES, Frame, Meaning, Pool, new_style, opposite, say, similarity
from distilbench.errors import InputError

ROOT = Path(__file__).parents[2]
SCENE = Meaning("scene", ("repair", "bicycle", "mechanic", "one", "old", "in the garden", "in winter", ""))


@pytest.fixture(scope="module")
def assembled() -> tuple[Corpus, dict[str, Meaning]]:
    return assemble(4000, 0)


@pytest.fixture(scope="module")
def corpus(assembled: tuple[Corpus, dict[str, Meaning]]) -> Corpus:
    return assembled[0]


def rows_of(corpus: Corpus, split: str) -> set[int]:
    if split == "train":
        return set(corpus.train.tolist())
    columns = [c for s in corpus.sts if s.split == split for c in (s.left_P, s.right_P)]
    columns += [c for r in corpus.retrieval if r.split == split for c in (r.queries, r.documents)]
    return set(np.concatenate(columns).tolist())


def test_sets_and_their_sizes(corpus: Corpus) -> None:
    assert corpus.demonstration and corpus.name == "built-in demonstration"
    assert corpus.pairs_P2.shape == (4000, 2)
    sizes = {(s.name, s.split): len(s.score_P) for s in corpus.sts}
    assert sizes == {
        (name, split): n for name, n in (("DEMO-STS", 750), ("DEMO-PARA", 400)) for split in ("dev", "test")
    }
    assert [(r.name, r.split, len(r.queries), len(r.documents)) for r in corpus.retrieval] == [
        ("demo-questions", "dev", 300, 2500),
        ("demo-questions", "test", 300, 2500),
    ]
    # The teacher encodes every distinct sentence on a CPU: no more of them than that allows.
    assert 12_000 <= len(corpus.sentences) <= 15_000
    assert len(corpus.train) > len(np.unique(corpus.pairs_P2)) + 400  # single sentences too


@pytest.mark.parametrize("size", [1, 2, 997])
def test_size_is_the_number_of_pairs_and_leaves_the_other_sets_alone(size: int, corpus: Corpus) -> None:
    small = builtin_corpus(size)
    assert len(small.pairs_P2) == size
    for a, b in zip(small.sts, corpus.sts, strict=True):
        assert [small.sentences[i] for i in a.left_P] == [corpus.sentences[i] for i in b.left_P]
        assert np.array_equal(a.score_P, b.score_P)


def test_pairs_are_two_different_training_sentences_and_none_comes_twice(corpus: Corpus) -> None:
    pairs = [tuple(sorted(p)) for p in corpus.pairs_P2.tolist()]
    assert all(a != b for a, b in pairs)
    assert len(set(pairs)) == len(pairs)
    assert set(corpus.pairs_P2.ravel().tolist()) <= set(corpus.train.tolist())


def test_training_pairs_are_similar(assembled: tuple[Corpus, dict[str, Meaning]]) -> None:
    corpus, meaning_of = assembled
    scores = [similarity(*(meaning_of[corpus.sentences[i]] for i in pair)) for pair in corpus.pairs_P2]
    assert min(scores) >= 4
    assert 0.5 < np.mean(np.array(scores) == 5) < 0.95  # graded: some leave a detail out


@pytest.mark.parametrize(("a", "b"), [("train", "dev"), ("train", "test"), ("dev", "test")])
def test_splits_share_no_sentence_no_event_and_no_bag_of_words(
    a: str, b: str, assembled: tuple[Corpus, dict[str, Meaning]]
) -> None:
    corpus, meaning_of = assembled
    said = [[corpus.sentences[i] for i in sorted(rows_of(corpus, split))] for split in (a, b)]
    assert all(said) and not set(said[0]) & set(said[1])
    events = [{meaning_of[s].event for s in sentences} for sentences in said]
    assert not events[0] & events[1]
    # Without the grammar's word for it: the same words in another order would be the same meaning.
    bags = [{" ".join(sorted(re.findall(r"[\w']+", s.lower()))) for s in sentences} for sentences in said]
    assert not bags[0] & bags[1]


def test_an_event_keeps_its_split_under_every_seed() -> None:
    # A student trained on seed 1 must not have seen the test events of seed 0.
    corpus, meaning_of = assemble(300, 1)
    for split in ("train", "dev", "test"):
        assert {split_of(meaning_of[corpus.sentences[i]].event) for i in rows_of(corpus, split)} == {split}


def test_same_seed_same_bytes_in_another_process(corpus: Corpus) -> None:
    code = "import sys, distilbench.data.builtin as b; sys.stdout.write(b.builtin_corpus().fingerprint)"
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        printed = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
        assert printed == corpus.fingerprint


def test_another_seed_is_another_corpus(corpus: Corpus) -> None:
    other = builtin_corpus(seed=1)
    assert other.fingerprint != corpus.fingerprint
    assert len(set(other.sentences) & set(corpus.sentences)) < 0.2 * len(corpus.sentences)


@pytest.mark.parametrize("size", [0, -3, largest_size() + 1])
def test_impossible_sizes(size: int) -> None:
    with pytest.raises(InputError, match=rf"size is {size}, expected .* from 1 to {largest_size()}$"):
        builtin_corpus(size)


def test_tens_of_thousands_in_seconds() -> None:
    start = time.process_time()
    assert len(builtin_corpus(30_000).pairs_P2) == 30_000
    assert time.process_time() - start < 20  # about 1 s on an idle core


def test_scores_are_graded_and_are_those_of_the_meanings(assembled: tuple[Corpus, dict[str, Meaning]]) -> None:
    corpus, meaning_of = assembled
    for sts in corpus.sts:
        assert sts.score_P.min() >= 0 and sts.score_P.max() == 5
        assert np.histogram(sts.score_P, bins=5, range=(0, 5))[0].min() >= 0.02 * len(sts.score_P)
        for left, right, score in zip(sts.left_P, sts.right_P, sts.score_P, strict=True):
            assert left != right
            assert similarity(meaning_of[corpus.sentences[left]], meaning_of[corpus.sentences[right]]) == score


def changed(**slots: str) -> Meaning:
    values = list(SCENE.values)
    for name, value in slots.items():
        values[FRAMES["scene"].slot(name)] = value
    return Meaning("scene", tuple(values))


def test_similarity_orders_meanings() -> None:
    scores = [
        similarity(SCENE, other)
        for other in (
            SCENE,
            changed(time=""),
            changed(time="in summer"),
            changed(object="car"),
            changed(object="violin"),
            changed(object="violin", agent="doctor"),
            Meaning("scene", ("feed", "cow", "doctor", "two", "hungry", "on the farm", "at night", "")),
        )
    ]
    assert scores[0] == 5 and scores == sorted(scores, reverse=True) and len(set(scores)) == len(scores)
    assert similarity(SCENE, changed(negation="not")) == 3.75
    assert similarity(changed(negation="not"), changed(negation="not")) == 5
    assert similarity(SCENE, changed(object="violin")) == similarity(changed(object="violin"), SCENE)


def test_shared_words_alone_do_not_give_the_score(corpus: Corpus) -> None:
    words = [frozenset(re.findall(r"[a-z']+", s.lower())) for s in corpus.sentences]
    for sts in corpus.sts:
        pairs = zip(sts.left_P, sts.right_P, strict=True)
        overlap = np.array([len(words[a] & words[b]) / len(words[a] | words[b]) for a, b in pairs])
        overlap_rank, score_rank = (np.unique(c, return_inverse=True)[1].astype(float) for c in (overlap, sts.score_P))
        assert np.corrcoef(overlap_rank, score_rank)[0, 1] < 0.7  # a sentence encoder reaches 0.8 to 0.9
        # Some paraphrases share fewer words than some pairs of clearly different meaning.
        assert np.quantile(overlap[sts.score_P == 5], 0.25) < np.quantile(overlap[sts.score_P < 4], 0.9)


def test_relevant_documents_are_all_those_that_ask_the_same(assembled: tuple[Corpus, dict[str, Meaning]]) -> None:
    corpus, meaning_of = assembled
    for task in corpus.retrieval:
        documents = [meaning_of[corpus.sentences[i]] for i in task.documents]
        assert len(set(task.documents.tolist())) == len(task.documents)
        assert not set(task.queries.tolist()) & set(task.documents.tolist())
        for row, relevant in zip(task.queries, task.relevant, strict=True):
            asked = meaning_of[corpus.sentences[row]]
            assert relevant.tolist() == [i for i, meaning in enumerate(documents) if meaning == asked] != []


def test_most_queries_have_near_misses(assembled: tuple[Corpus, dict[str, Meaning]]) -> None:
    corpus, meaning_of = assembled
    for task in corpus.retrieval:
        documents = np.array([meaning_of[corpus.sentences[i]].values for i in task.documents])
        queries = np.array([meaning_of[corpus.sentences[i]].values for i in task.queries])
        one_off = ((queries[:, None] != documents[None]).sum(axis=2) == 1).sum(axis=1)
        assert np.median(one_off) >= 4


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_no_wording_means_two_things(frame: Frame) -> None:
    # Otherwise one sentence could stand for two meanings, and in two splits.
    for slot in frame.slots:
        wordings = Counter(w for concept in slot.concepts.values() for w in concept.wordings)
        assert max(wordings.values()) == 1, wordings.most_common(3)


@pytest.mark.parametrize(
    ("verbs", "objects"),
    [(lexicon.ACTIONS, lexicon.OBJECTS), (lexicon.STANCES, lexicon.TOPICS)],
    ids=["scenes", "headlines"],
)
def test_every_object_that_a_verb_names_exists(
    verbs: dict[str, lexicon.Concept], objects: dict[str, lexicon.Concept]
) -> None:
    known = {*objects, *(concept.family for concept in objects.values())}
    assert {name for verb in verbs.values() for name in verb.takes} <= known


def test_other_wordings_belong_to_an_object_of_a_task() -> None:
    assert set(lexicon.TASK_SYNONYMS) <= {thing for verb in lexicon.TASKS.values() for thing in verb.takes}


@pytest.mark.parametrize("name", FRAMES)
def test_the_opposite_style_says_the_same_in_another_sentence(name: str) -> None:
    pool, rng = Pool.of(FRAMES[name], list(FRAMES[name].events)), Random(0)
    for _ in range(300):
        meaning, style = pool.draw(rng), new_style(rng)
        assert say(meaning, style) != say(meaning, opposite(style))
        assert say(meaning, style) == say(meaning, style)


def test_sentences_are_well_formed(corpus: Corpus) -> None:
    singular_verb = r"\b(two|several|number of|couple of) [^,.]*\b(is|isn't|does)\b(?! being)"
    for sentence in corpus.sentences:
        assert re.fullmatch(r"[A-Z][A-Za-z' ,-]*[a-z][.?]?", sentence), sentence
        assert not re.search(r"\b[Aa] ([aio]|e(?!u))|\b[Aa]n ([^aeiou]|uni|eu)|  | [,.?]", sentence), sentence
        assert not re.search(singular_verb, sentence), sentence


@pytest.mark.parametrize(
    ("function", "word", "expected"),
    [
        (lexicon.plural, "baby", "babies"),
        (lexicon.plural, "boy", "boys"),
        (lexicon.plural, "coach", "coaches"),
        (lexicon.plural, "bus driver", "bus drivers"),
        (lexicon.plural, "mail carrier", "mail carriers"),
        (lexicon.plural, "gentleman", "gentlemen"),
        (lexicon.third_person, "carry", "carries"),
        (lexicon.third_person, "pick up", "picks up"),
        (lexicon.third_person, "fix", "fixes"),
        (lexicon.ing, "cut down", "cutting down"),
        (lexicon.ing, "hide", "hiding"),
        (lexicon.ing, "fix", "fixing"),
        (lexicon.ing, "water", "watering"),
        (lexicon.participle, "tear down", "torn down"),
        (lexicon.participle, "wrap", "wrapped"),
        (lexicon.participle, "carry", "carried"),
        (lexicon.participle, "empty", "emptied"),
        (lexicon.with_article, "old car", "an old car"),
        (lexicon.with_article, "uniform", "a uniform"),
    ],
)
def test_spelling(function: Callable[[str], str], word: str, expected: str) -> None:
    assert function(word) == expected
