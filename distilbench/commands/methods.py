"""`distilbench methods`: what there is to choose from."""

from __future__ import annotations

import inspect
from typing import Any

from pydantic.fields import FieldInfo
from rich.console import Console
from rich.table import Column, Table

from distilbench.methods import get_method, method_names
from distilbench.methods.method import Method


def print_methods(console: Console, name: str | None = None) -> None:
    """Print a table of all methods; or what one is, and its hyper-parameters."""
    if name is None:
        table = _table("--method", "")
        for method_name in method_names():
            table.add_row(method_name, " ".join(description(get_method(method_name)).split()))
        console.print(table)
        console.print("distilbench methods METHOD lists its hyper-parameters, such as distilbench methods hpd.")
        return
    method, table = get_method(name), _table("hyper-parameter", "values", "default", "")
    console.print(description(method), markup=False, highlight=False)
    for field_name, field in method.params_type.model_fields.items():
        default = "" if field.is_required() else str(field.default)
        text = (field.description or "").split("\n\n")[0].replace("\n", " ")
        table.add_row(field.alias or field_name, _values(field), default, text)
    console.print(table)


def description(method: type[Method]) -> str:
    """Say what a method trains and reads, and its source: the second paragraph of its docstring."""
    return (inspect.getdoc(method) or "").partition("\n\n")[2]


def _table(first: str, *others: str) -> Table:
    return Table(Column(first, no_wrap=True), *others, box=None, pad_edge=False, header_style="bold")


def _values(field: FieldInfo) -> str:
    annotation: Any = field.annotation
    kind = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    kind = kind.replace("typing.", "").removeprefix("Literal").replace("'", "").strip("[]")
    signs = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    limits = [f"{signs[b]} {getattr(limit, b):g}" for limit in field.metadata for b in signs if hasattr(limit, b)]
    return f"{kind} {', '.join(limits)}".strip()
