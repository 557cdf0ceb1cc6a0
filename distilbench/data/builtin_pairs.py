"""Triplets and labelled pair tasks of the demonstration corpus.

DEMO-SIM    regression   two scenes, from 0 (unrelated) to 5 (the same meaning), graded as in "DEMO-STS"
DEMO-DUP    binary       two questions: duplicates, or nearly the same and still another question
DEMO-NLI    three-class  two scenes: entailment, neutral or contradiction

What entails what follows from the slots: a scene entails itself with a detail left out, not with one added; under "not" it
is the other way round. As in SNLI the two sentences are about one event, so another agent, object or action contradicts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Literal

from distilbench.data.corpus import CorpusBuilder, PairTask
from distilbench.data.grammar import FRAMES, Meaning, Pool, Style, new_style, opposite, third_way
from distilbench.data.meanings import Writer, fresh, graded_pairs, negated, positions, with_less

DEMO_TASKS = ("DEMO-SIM", "DEMO-DUP", "DEMO-NLI")
COUNTS: Mapping[str, int] = {"train": 2000, "dev": 500, "test": 500}
"""Pairs in each split of a task."""

_NEGATED_RATE = 0.2  # of premises, so that "not" is no sign of a contradiction
_NEGATING_RATE = 0.3  # of the contradictions of a premise without "not": those that deny it; the others change a slot
_SAME_MEANING_RATE = 0.4  # of the entailments: no detail is left out
_UNRELATED_RATE = 0.15  # of the questions that are no duplicates
_SHORTENED_RATE = (
    0.5  # of the contradictions: a detail is left out of one side, so that lengths do not tell the classes
)
_ANYONE = ("child", "adult")  # families of agents that may be any other agent as well: a man may be a doctor

_Rows = list[tuple[str, str, float]]


def add_generated_triplets(builder: CorpusBuilder, writer: Writer, pool: Pool, size: int, rng: Random) -> None:
    """Train on `size` triplets of scenes: a sentence, one that it entails, one that contradicts it."""
    used, triplets = set[Meaning](), list[tuple[str, str, str]]()
    while len(triplets) < size:
        premise, entailed = _entailment(_scene(pool, used, rng), rng)
        style = new_style(rng)
        triplet = [writer.say(premise, style)]
        for other in (entailed, _contradiction(premise, pool, rng)):
            triplet.append(writer.say(other, _other_style(style, other == premise, rng)))
        if len(set(triplet)) == 3:
            triplets.append((triplet[0], triplet[1], triplet[2]))
    builder.train_triplets(*zip(*triplets, strict=True))
    builder.found.append(f"triplets: {size} generated ones (train)")


def add_task(
    builder: CorpusBuilder, writer: Writer, name: str, pools: Callable[[str], Mapping[str, Pool]], seed: int
) -> None:
    """Add a task of `DEMO_TASKS`; `pools` gives the meanings of a split by frame. Its training sentences are trained on."""
    make, frame, kind, classes, high = _TASKS[name]
    splits = {}
    for split, count in COUNTS.items():
        lefts, rights, targets = zip(
            *make(pools(split)[frame], count, writer, Random(f"{seed} {name} {split}")), strict=True
        )
        splits[split] = builder.pair_split(lefts, rights, targets)
        if split == "train":
            builder.train_on([*lefts, *rights])
    builder.add_pair_task(PairTask(name, kind, classes, 0.0, high, splits))
    builder.found.append(f"{name}: {', '.join(f'{n} pairs ({split})' for split, n in COUNTS.items())}")


def _scene(pool: Pool, used: set[Meaning], rng: Random) -> Meaning:
    meaning = fresh(pool, used, rng)
    return negated(meaning) if (rng.random() < _NEGATED_RATE) != (meaning.values[-1] == "not") else meaning


def _other_style(style: Style, same_meaning: bool, rng: Random) -> Style:
    """Words for the second sentence: mostly others where it means the same, so that shared words do not tell."""
    if same_meaning:
        return rng.choice([opposite(style), new_style(rng)])
    return rng.choices([style, opposite(style), new_style(rng)], [0.35, 0.15, 0.5])[0]


def _entailment(meaning: Meaning, rng: Random) -> tuple[Meaning, Meaning]:
    """Premise and hypothesis: `meaning` twice, or once with a detail left out."""
    less = meaning if rng.random() < _SAME_MEANING_RATE else with_less(meaning, rng)
    return (less, meaning) if meaning.values[-1] else (meaning, less)


def _contradiction(premise: Meaning, pool: Pool, rng: Random) -> Meaning:
    """What cannot be true along with `premise`, which stays whole: "not" is added or taken away, or a slot changed.

    Under "not" only the first is left: nobody repairs a car and nobody repairs a van may both be true.
    """
    if premise.values[-1] or rng.random() < _NEGATING_RATE:
        return negated(premise)
    frame = FRAMES[premise.frame]
    agent = frame.slot("agent")
    for position in positions(premise, rng):
        if position not in (frame.slot("verb"), frame.slot("object"), agent):
            continue
        changed = pool.change(premise, position, rng)
        if changed is None:
            continue
        people = {frame.slots[agent].concepts[m.values[agent]].family for m in (premise, changed)}
        if position != agent or not people.intersection(_ANYONE):
            return changed
    return negated(premise)


def _one_shorter(premise: Meaning, hypothesis: Meaning, rng: Random) -> tuple[Meaning, Meaning]:
    """A contradicting pair with a detail left out of one side, so that it still contradicts.

    Where only one side is negated it is that one: to deny the detailed event leaves room for the one without.
    """
    if premise.values[-1]:
        return with_less(premise, rng), hypothesis
    if hypothesis.values[-1] or rng.random() < 0.5:
        return premise, with_less(hypothesis, rng)
    return with_less(premise, rng), hypothesis


def _nli_pairs(pool: Pool, count: int, writer: Writer, rng: Random) -> _Rows:
    """As many pairs of each class, but for a remainder."""
    used, rows = set[Meaning](), _Rows()
    while len(rows) < count:
        meaning, label = _scene(pool, used, rng), len(rows) % 3
        if label == 2:
            premise, hypothesis = meaning, _contradiction(meaning, pool, rng)
            if rng.random() < _SHORTENED_RATE:
                premise, hypothesis = _one_shorter(premise, hypothesis, rng)
        elif label == 1:
            less = with_less(meaning, rng)
            if less == meaning:
                continue
            premise, hypothesis = (meaning, less) if meaning.values[-1] else (less, meaning)
        else:
            premise, hypothesis = _entailment(meaning, rng)
        style = new_style(rng)
        left = writer.say(premise, style)
        right = writer.say(hypothesis, _other_style(style, premise == hypothesis, rng))
        if left != right:
            rows.append((left, right, float(label)))
    rng.shuffle(rows)
    return rows


def _duplicate_questions(pool: Pool, count: int, writer: Writer, rng: Random) -> _Rows:
    """Half duplicates, half not: mostly questions with one slot changed, in words as alike as those of duplicates."""
    used, rows = set[Meaning](), _Rows()
    while len(rows) < count:
        meaning, style, label = fresh(pool, used, rng), new_style(rng), len(rows) % 2
        answer_style = rng.choice([opposite(style), third_way(style), new_style(rng)])
        if label:
            right = writer.say(meaning, answer_style)
        elif rng.random() < _UNRELATED_RATE:
            other = pool.draw(rng)
            if other == meaning:
                continue
            right = writer.say(other, new_style(rng))
        else:
            changes = (pool.change(meaning, position, rng) for position in positions(meaning, rng))
            near_miss = next((changed for changed in changes if changed is not None), None)
            if near_miss is None:
                continue
            miss_style = rng.choices([answer_style, style, new_style(rng)], [0.6, 0.1, 0.3])[0]
            right = writer.say(near_miss, miss_style)
        left = writer.say(meaning, style)
        if left != right:
            rows.append((left, right, float(label)))
    rng.shuffle(rows)
    return rows


_Kind = Literal["regression", "binary", "three-class"]
_Make = Callable[[Pool, int, Writer, Random], _Rows]
# How the pairs are made, of which frame; then the kind of task, its classes and the upper end of its scale.
_TASKS: Mapping[str, tuple[_Make, str, _Kind, tuple[str, ...], float]] = {
    "DEMO-SIM": (graded_pairs, "scene", "regression", (), 5.0),
    "DEMO-DUP": (_duplicate_questions, "question", "binary", ("different", "duplicate"), 1.0),
    "DEMO-NLI": (_nli_pairs, "scene", "three-class", ("entailment", "neutral", "contradiction"), 1.0),
}
