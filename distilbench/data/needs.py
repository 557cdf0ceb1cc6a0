"""What the chosen methods need of a corpus."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from distilbench.errors import InputError


@dataclass(frozen=True)
class Needs:
    """Sets beyond sentences, similar pairs and STS sets. What is not needed is not read.

    `triplets`: whether a method learns from triplets; `pair_tasks`: names of labelled pair tasks, such as "MRPC";
    `augmentation`: whether one trains on sentences made from the training sentences; `negatives`: by what hard negatives of
    judged queries are found; `nearest`: how many nearest others of each training sentence are known.
    """

    triplets: bool = False
    pair_tasks: tuple[str, ...] = ()
    augmentation: bool = False
    negatives: tuple[str, ...] = ()
    nearest: int = 0

    def __or__(self, other: Needs) -> Needs:
        return Needs(
            self.triplets or other.triplets,
            self.pair_tasks + other.pair_tasks,
            self.augmentation or other.augmentation,
            tuple(sorted({*self.negatives, *other.negatives})),
            max(self.nearest, other.nearest),
        )

    def distinct_tasks(self, known: Collection[str]) -> tuple[str, ...]:
        """Each pair task once, in the order asked for.

        Raises:
            InputError: one is not among the `known` ones.
        """
        for name in self.pair_tasks:
            if name not in known:
                raise InputError(f"pair task {name!r} is not known here; expected one of {', '.join(known)}")
        return tuple(dict.fromkeys(self.pair_tasks))


NO_NEEDS = Needs()
