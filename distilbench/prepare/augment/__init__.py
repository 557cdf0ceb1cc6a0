"""Augmentation: changed copies of the training sentences."""

from distilbench.prepare.augment.operation import Copies, Operation, same
from distilbench.prepare.augment.recipes import OPERATIONS, RECIPES, operations

__all__ = ["OPERATIONS", "RECIPES", "Copies", "Operation", "operations", "same"]
