"""DistilBench: find the best small sentence encoder for your data and budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distilbench.api import Run, evaluate, report, sweep
    from distilbench.errors import InputError

__version__ = "0.1.0"
__all__ = ["InputError", "Run", "evaluate", "report", "sweep"]


def __getattr__(name: str) -> Any:
    """A public name is looked up when it is used, so that the command line starts without it."""
    if name not in __all__:
        raise AttributeError(f"module 'distilbench' has no attribute {name!r}")
    from distilbench import api

    value = globals()[name] = getattr(api, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
