"""The named choices of a run, and what they are called."""

from typing import Literal

Searcher = Literal["tpe", "cmaes", "nsga2", "nsga3", "gp", "random", "grid"]


Stopping = Literal["asha", "median", "none"]


Fidelity = Literal["steps", "data"]


SpaceBudget = Literal["small", "real", "cluster"]


BUDGETS: tuple[SpaceBudget, ...] = ("small", "real", "cluster")
"""For the demonstration, for real data on a few cores, and for GPUs: a folder of METHOD.yaml each."""


QUALITY = "quality"


Stored = Literal["float16", "float32"]
"""Precision on disk. float16 halves the files; it moved a Spearman x 100 by 0.01 at most (STS12 of all-MiniLM-L6-v2)."""


Backend = Literal["torch", "onnx"]
"""What runs the encoder: PyTorch, or ONNX Runtime on the CPU (the same vectors to 1e-5, in less time)."""
