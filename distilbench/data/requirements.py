"""What the chosen methods need of a corpus and of its preparation."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from distilbench.errors import InputError


@dataclass(frozen=True)
class Requirements:
    """What methods need beyond sentences, similar pairs, STS sets, embeddings and PCA. The rest is neither read nor made."""

    triplets: bool = False
    """Whether a method learns from triplets."""
    pair_tasks: tuple[str, ...] = ()
    """Names of labelled pair tasks, such as "MRPC"."""
    augmentation: bool = False
    """Whether one trains on sentences made from the training sentences."""
    negatives: bool = False
    """Whether one learns from hard negatives of judged queries."""
    nearest: int = 0
    """How many nearest others of each training sentence are known."""
    logits: bool = False
    """Whether one learns from a cross-encoder's logits of the pair task."""
    students: tuple[str | None, ...] = ()
    """The students that are trained; None is that of the settings."""

    def __or__(self, other: Requirements) -> Requirements:
        return Requirements(
            self.triplets or other.triplets,
            self.pair_tasks + other.pair_tasks,
            self.augmentation or other.augmentation,
            self.negatives or other.negatives,
            max(self.nearest, other.nearest),
            self.logits or other.logits,
            tuple(dict.fromkeys((*self.students, *other.students))),
        )

    def distinct_tasks(self, known: Collection[str]) -> tuple[str, ...]:
        """Each pair task once, in the order asked for; one that is not among the `known` ones is refused."""
        for name in self.pair_tasks:
            if name not in known:
                raise InputError(f"pair task {name!r} is not known here; expected one of {', '.join(known)}")
        return tuple(dict.fromkeys(self.pair_tasks))


NO_REQUIREMENTS = Requirements()
