"""Drawing meanings for the demonstration corpus, saying them, and finding others to compare them with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

from distilbench.data.grammar import FRAMES, Meaning, Pool, Style, new_style, opposite, say, similarity

# Where the two sentences of a graded pair differ: how many slots, and how often.
_CHANGES: Mapping[int, float] = {0: 0.25, 1: 0.33, 2: 0.22, 3: 0.12, 4: 0.04}  # the rest: two unrelated meanings


@dataclass
class Writer:
    """Says meanings and remembers what each sentence means."""

    meaning_of: dict[str, Meaning] = field(default_factory=dict)

    def say(self, meaning: Meaning, style: Style) -> str:
        """The sentence for a meaning in a style."""
        sentence = say(meaning, style)
        self.meaning_of[sentence] = meaning
        return sentence


def fresh(pool: Pool, used: set[Meaning], rng: Random) -> Meaning:
    """A meaning that was not drawn before."""
    while True:
        meaning = pool.draw(rng)
        if meaning not in used:
            used.add(meaning)
            return meaning


def negated(meaning: Meaning) -> Meaning:
    """A scene's meaning with "not", or without it where it has one."""
    return Meaning(meaning.frame, (*meaning.values[:-1], "" if meaning.values[-1] else "not"))


def with_less(meaning: Meaning, rng: Random) -> Meaning:
    """`meaning` with one of its details left open, where it has one that can be."""
    slots = FRAMES[meaning.frame].slots
    details = [i for i, s in enumerate(slots) if s.open_rate and s.weight and meaning.values[i]]
    if not details:
        return meaning
    dropped = rng.choice(details)
    return Meaning(meaning.frame, tuple("" if i == dropped else v for i, v in enumerate(meaning.values)))


def positions(meaning: Meaning, rng: Random) -> list[int]:
    """The slots that can change, in random order; a slot of great weight tends to come early."""
    slots = FRAMES[meaning.frame].slots
    order: Iterator[tuple[float, int]] = (
        (rng.random() ** (1 / slot.weight), i) for i, slot in enumerate(slots) if slot.weight and meaning.values[i]
    )
    return [i for _, i in sorted(order, reverse=True)]


def graded_pairs(pool: Pool, count: int, writer: Writer, rng: Random) -> list[tuple[str, str, float]]:
    """Pairs of sentences, two with the same left side, and their similarity from 0 to 5."""
    used = set[Meaning]()
    rows: list[tuple[str, str, float]] = []
    while len(rows) < count:
        meaning, style = fresh(pool, used, rng), new_style(rng)
        left = writer.say(meaning, style)
        for other, other_style in (_counterpart(meaning, style, pool, rng) for _ in range(2)):
            right = writer.say(other, other_style)
            if right != left:
                rows.append((left, right, similarity(meaning, other)))
    return rows[:count]


def _counterpart(meaning: Meaning, style: Style, pool: Pool, rng: Random) -> tuple[Meaning, Style]:
    """A meaning to compare with, and a style so that the number of shared words does not give the similarity away.

    The same meaning comes in other words; a different one mostly in the same words, but for what differs.
    """
    changes = rng.choices([*_CHANGES, -1], [*_CHANGES.values(), 1 - sum(_CHANGES.values())])[0]
    if changes == 0:
        return (meaning if rng.random() < 0.75 else with_less(meaning, rng)), rng.choice(
            [opposite(style), new_style(rng)]
        )
    if changes < 0:
        return pool.draw(rng), new_style(rng)
    negatable = pool.frame.name == "scene"
    if negatable and rng.random() < 0.07:
        meaning, changes = negated(meaning), changes - 1
    for position in positions(meaning, rng)[:changes]:
        meaning = pool.change(meaning, position, rng) or meaning
    return meaning, rng.choices([style, opposite(style), new_style(rng)], [0.35, 0.15, 0.5])[0]
