"""Stage 3: one file per method: its loss, its head, its hyper-parameters, its paper's equation numbers.

A module here with a class `Trainable` that derives from `Method` is a method, under the module's name.
"""

from __future__ import annotations

import importlib
import pkgutil

from distilbench.errors import InputError
from distilbench.methods.method import Method

NOT_METHODS = {"method", "heads"}


def method_names() -> list[str]:
    """The names that `--method` accepts."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name not in NOT_METHODS)


def get_method(name: str) -> type[Method]:
    """The method called `name`.

    Raises:
        InputError: there is none.
    """
    if name not in method_names():
        raise InputError(f"--method {name}: unknown method; expected one of {', '.join(method_names())}")
    found: type[Method] = importlib.import_module(f"{__name__}.{name}").Trainable
    return found
