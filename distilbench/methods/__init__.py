"""One file per method: its loss, its head, its hyper-parameters, its paper's equation numbers.

A module here, with one class that derives from `Method`, is a method under the module's name; `parts/` holds what several
methods share.
"""

from __future__ import annotations

import importlib
import pkgutil

from distilbench.errors import InputError
from distilbench.methods.method import Method


def method_names() -> list[str]:
    """The names that `--method` accepts."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.ispkg and m.name != "method")


def get_method(name: str) -> type[Method]:
    """The method called `name`."""
    if name not in method_names():
        raise InputError(f"--method {name}: unknown method; expected one of {', '.join(method_names())}")
    module = importlib.import_module(f"{__name__}.{name}")
    (method,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Method) and value.__module__ == module.__name__
    )
    return method
