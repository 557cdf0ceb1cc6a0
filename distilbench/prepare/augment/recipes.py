"""What a user writes (`synonym,back-translation`, or a recipe's name) made into operations."""

from __future__ import annotations

import re
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
_TRANSLATION = re.compile(r"back-translation@([^+]+)\+([^+]+)")


def operations(names: Sequence[str]) -> list[Operation]:
    """The operations of these names and recipes, each once, described but not checked (`Operation.check`).

    `back-translation@THERE+BACK` is by these two MarianMT models.
    """
    resolved: dict[str, None] = {}
    for name in names:
        if name not in OPERATIONS and name not in RECIPES and not _TRANSLATION.fullmatch(name):
            recipes = "; ".join(f"{recipe} ({', '.join(parts)})" for recipe, parts in RECIPES.items())
            raise InputError(
                f"augmentation {name!r}: expected one of {', '.join(OPERATIONS)}, back-translation@THERE+BACK with two "
                f"MarianMT models, or the recipe {recipes}"
            )
        resolved |= dict.fromkeys(RECIPES.get(name, (name,)))
    return [_made(name) for name in resolved]


def _made(name: str) -> Operation:
    if models := _TRANSLATION.fullmatch(name):
        return BackTranslation(*(EncoderSpec(one).absolute() for one in models.groups()))
    return OPERATIONS[name]()
