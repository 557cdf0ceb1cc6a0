"""Augmentation: changed copies of the training sentences, one operation a file."""

from distilbench.prepare.augment.operation import Copies, Operation, same
from distilbench.prepare.augment.recipes import OPERATIONS, RECIPES, AugmentSettings, operations, parse

__all__ = [
    "OPERATIONS",
    "RECIPES",
    "AugmentSettings",
    "Copies",
    "Operation",
    "operations",
    "parse",
    "same",
]
