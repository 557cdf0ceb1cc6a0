"""`distilbench methods`: what there is to choose from."""

from __future__ import annotations

import inspect
from typing import Any

from pydantic.fields import FieldInfo
from rich.console import Console
from rich.table import Table

from distilbench.methods import get_method, method_names
from distilbench.methods.method import Method


def print_methods(console: Console, name: str | None = None) -> None:
    """Print a table of all methods; or what one is, and its hyper-parameters.

    Raises:
        InputError: there is no method of that name.
    """
    rows: list[tuple[str, ...]] = []
    if name is None:
        rows = [(method_name, " ".join(description(get_method(method_name)).split())) for method_name in method_names()]
        console.print(_table(("--method", ""), rows))
        console.print("distilbench methods METHOD lists its hyper-parameters, such as distilbench methods hpd.")
        return
    method = get_method(name)
    console.print(description(method), markup=False, highlight=False)
    for field_name, field in method.params_type.model_fields.items():
        default = "" if field.is_required() else str(field.default)
        text = (field.description or "").split("\n\n")[0].replace("\n", " ")
        rows.append((field.alias or field_name, _values(field), default, text))
    console.print(_table(("hyper-parameter", "values", "default", ""), rows))


def description(method: type[Method]) -> str:
    """Say what a method trains and reads, and its source: the second paragraph of its docstring."""
    return (inspect.getdoc(method) or "").partition("\n\n")[2]


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=column == columns[0])
    for row in rows:
        table.add_row(*row)
    return table


def _values(field: FieldInfo) -> str:
    """The values of a hyper-parameter: its type, or its choices, and its limits."""
    annotation: Any = field.annotation
    kind = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    kind = kind.replace("typing.", "").removeprefix("Literal").replace("'", "").strip("[]")
    signs = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    limits = [f"{signs[b]} {getattr(limit, b):g}" for limit in field.metadata for b in signs if hasattr(limit, b)]
    return f"{kind} {', '.join(limits)}".strip()
