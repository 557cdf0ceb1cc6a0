"""Augmentation: changed copies of the training sentences, one operation a file."""

from distilbench.prepare.augment.operation import Copies, Operation, same
from distilbench.prepare.augment.recipes import OPERATIONS, RECIPES, operations, parse_operations
from distilbench.settings.augment import AugmentSettings

__all__ = [
    "OPERATIONS",
    "RECIPES",
    "AugmentSettings",
    "Copies",
    "Operation",
    "operations",
    "parse_operations",
    "same",
]
