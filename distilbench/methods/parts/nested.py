"""Nested widths: one training whose first w numbers are an embedding of their own, for several w at once."""

from __future__ import annotations

from distilbench.errors import InputError
from distilbench.methods.method import Possible
from distilbench.training.params import ParamsPart


class NestedParams(ParamsPart):
    """Which widths one training serves."""

    nested: bool = False
    """Whether the loss is taken at several widths at once, each of which gets a row of its own."""
    widths: tuple[int, ...] = ()
    """The widths below output_dim that are nested in it; () is output_dim halved again and again, down to 16."""


def check_widths(possible: Possible) -> None:
    """Check the nested widths that a search space or a row can ask for."""
    largest = min(possible("output_dim"))
    for widths in possible("widths"):
        if widths and True not in possible("nested"):
            raise InputError(f"widths: {list(widths)}, but nested is false; expected nested: true with them")
        for width in widths:
            if not 1 <= width <= largest:
                raise InputError(f"widths: {width}; expected from 1 to output_dim, which can be {largest}")
