"""DistilBench: find the best small sentence encoder for your data and budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distilbench.api.calls import evaluate, report, sweep
    from distilbench.api.run import Run
    from distilbench.errors import InputError

__version__ = "0.1.0"
__all__ = ["InputError", "Run", "evaluate", "report", "sweep"]
_HOME = {
    **dict.fromkeys(("sweep", "evaluate", "report"), "distilbench.api.calls"),
    "Run": "distilbench.api.run",
    "InputError": "distilbench.errors",
}
"""Where each public name is: looked up when it is used, so that the command line starts without it."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOME:
        raise AttributeError(f"module 'distilbench' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
