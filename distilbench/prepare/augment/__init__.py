"""Augmentation: changed copies of the training sentences, by the operations or the recipe that a user names."""

from __future__ import annotations

import re
from collections.abc import Sequence

from distilbench.encoders.encoder import EncoderSpec
from distilbench.errors import InputError
from distilbench.prepare.augment.back_translation import BackTranslation
from distilbench.prepare.augment.operation import Operation
from distilbench.prepare.augment.synonym import Synonym

OPERATIONS: dict[str, type[Operation]] = {"synonym": Synonym, "back-translation": BackTranslation}
RECIPES = {"hpd": ("synonym", "back-translation")}
"""hpd: the HPD paper's triplication, each sentence with a WordNet synonym copy and a back translation."""
_TRANSLATION = re.compile(r"back-translation@([^+]+)\+([^+]+)")


def operations(names: Sequence[str]) -> list[Operation]:
    """The operations of these names and recipes, each once, described but not checked (`Operation.check`).

    `back-translation@THERE+BACK` is by these two MarianMT models.
    """
    made: dict[str, Operation] = {}
    for name in [part for given in names for part in RECIPES.get(given, (given,))]:
        if models := _TRANSLATION.fullmatch(name):
            made[name] = BackTranslation(*(EncoderSpec(model).absolute() for model in models.groups()))
        elif name in OPERATIONS:
            made[name] = OPERATIONS[name]()
        else:
            recipes = "; ".join(f"{recipe} ({', '.join(parts)})" for recipe, parts in RECIPES.items())
            raise InputError(
                f"augmentation {name!r}: expected one of {', '.join(OPERATIONS)}, back-translation@THERE+BACK with two "
                f"MarianMT models, or the recipe {recipes}"
            )
    return list(made.values())
