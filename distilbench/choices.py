"""The named choices of a run: what an option, a setting or a record can say."""

from typing import Literal, get_args

Searcher = Literal["tpe", "random"]
Stopping = Literal["halving", "asha", "median", "none"]
BUDGETS = ("small", "real", "cluster")
"""For the demonstration, for real data on a few cores, and for GPUs: a folder of METHOD.yaml each."""
QUALITY = "quality"
"""The objective that every search has."""
Stored = Literal["float16", "float32"]
"""The precision in which a teacher's embeddings are stored."""
Backend = Literal["torch", "bf16"]
"""What runs an encoder on a CPU: torch in float32 or in bfloat16."""
EvaluatedBackend = Literal["torch", "bf16", "int8"]
"""What runs an encoder that is evaluated: also ONNX Runtime with int8 weights."""
TaskKind = Literal["sts", "classification", "retrieval", "pairs"]
"""A kind of evaluation sets."""
EVERY_TASK: tuple[TaskKind, ...] = get_args(TaskKind)
SWEPT_TASKS: tuple[TaskKind, ...] = ("sts", "retrieval")
"""What the rows of a run are scored on where nothing else is asked for."""
ObjectiveName = Literal["quality", "bytes", "latency", "model_bytes"]
"""What a search can want more of, or less."""
FaissKind = Literal["flat", "ivf", "hnsw"]
"""An index of FAISS: every vector compared, lists, or a graph."""
FAISS_KINDS: tuple[FaissKind, ...] = get_args(FaissKind)
