"""What a user writes (`synonym,back-translation`, or a recipe's name) made into operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distilbench.encoders.encoder import EncoderSpec
from distilbench.errors import InputError
from distilbench.prepare.augment.operation import Operation
from distilbench.prepare.augment.translation import BackTranslation
from distilbench.prepare.augment.words import Delete, Swap, Synonym

RECIPES = {"hpd": ("synonym", "back-translation")}
"""hpd: the HPD paper's triplication, each sentence with a WordNet synonym copy and a back translation."""
OPERATIONS: dict[str, Callable[[], Operation]] = {
    "synonym": Synonym,
    "swap": Swap,
    "delete": Delete,
    "back-translation": BackTranslation,
}


def operations(names: Sequence[str], marian: tuple[str, str] | None = None) -> list[Operation]:
    """The operations of these names and recipes, each once, described but not checked (`Operation.check`).

    Back translation is by the two MarianMT models `marian`; None is English and German from the hub.
    """
    resolved: dict[str, None] = {}
    for name in names:
        if name not in OPERATIONS and name not in RECIPES:
            recipes = "; ".join(f"{recipe} ({', '.join(parts)})" for recipe, parts in RECIPES.items())
            raise InputError(f"augmentation {name!r}: expected one of {', '.join(OPERATIONS)}, or the recipe {recipes}")
        resolved |= dict.fromkeys(RECIPES.get(name, (name,)))
    makers = dict(OPERATIONS)
    if marian is not None:
        makers["back-translation"] = lambda: BackTranslation(*(EncoderSpec(one).absolute() for one in marian))
    return [makers[name]() for name in resolved]
