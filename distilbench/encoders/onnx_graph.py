"""An encoder as one ONNX graph, from token ids to the vector, with weights in float32 or in int8.

sentence-transformers' own `backend="onnx"` takes a graph of the transformer alone, and optimum-onnx 0.1.0 to load it, which
cannot be installed beside transformers 5; so the graph is the whole of the encoder.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distilbench.errors import InputError

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

PACKAGES = ("onnxruntime", "onnxscript", "onnx")
OPSET = 23
"""The first with an Attention operator."""
OUTPUT = "sentence_embedding"
SLOWER = ("SkipLayerNormFusion",)
"""What ONNX Runtime 1.31 is not to do to a graph: its fused kernel takes five times as long as the addition and the layer
normalisation that it replaces, and an int8 encoder of two layers 15 % longer."""
QUANTISED = ("MatMul", "Gemm", "Gather")
"""Linear layers and tables of embeddings."""
VNNI = ("avx512_vnni", "avx_vnni", "amx_int8")
"""x86's instructions that add up products of int8 in 32 bits; without them the sums of two such products saturate."""


class Int8Encoder:
    """Takes the place of an encoder's `forward`: its graph with int8 weights, by ONNX Runtime on the CPU.

    It runs on as many threads as torch has at the time.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        with tempfile.TemporaryDirectory(prefix="distilbench-") as name:
            graph, in_int8 = Path(name) / "model.onnx", Path(name) / "model_int8.onnx"
            save_graph(whole(model), graph)
            quantise_graph(graph, in_int8)
            self.graph = in_int8.read_bytes()
        self._sessions: dict[int, Any] = {}

    def __call__(self, features: dict[str, torch.Tensor], **_: Any) -> dict[str, torch.Tensor]:
        """Add the vectors of a batch, B x d, to its `input_ids` and `attention_mask`, B x T."""
        import torch

        threads = torch.get_num_threads()
        if threads not in self._sessions:
            self._sessions[threads] = session_of(self.graph, threads)
        given = {name: features[name].numpy() for name in ("input_ids", "attention_mask")}
        (vectors_Bd,) = self._sessions[threads].run([OUTPUT], given)
        return {**features, OUTPUT: torch.from_numpy(vectors_Bd)}


def session_of(graph: str | bytes, threads: int = 0) -> Any:
    """A session of ONNX Runtime on the CPU for a graph, the file or its bytes; 0 threads: one for each core."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors
    return onnxruntime.InferenceSession(
        graph, options, providers=["CPUExecutionProvider"], disabled_optimizers=list(SLOWER)
    )


def quantise_graph(graph: Path, to: Path) -> None:
    """Write a graph anew with weights in int8, by ONNX Runtime's dynamic quantisation.

    Each column of a linear layer has a scale, each table one; what goes into a layer is quantised as it comes. On an x86
    processor without VNNI weights have 7 bits, with which no sum saturates.
    """
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic

    processor = torch.cpu.get_capabilities()
    with _silence():
        quantize_dynamic(
            graph,
            to,
            op_types_to_quantize=list(QUANTISED),
            per_channel=True,
            reduce_range=processor.get("architecture") == "x86_64" and not any(map(processor.get, VNNI)),
            weight_type=QuantType.QInt8,
        )


@contextmanager
def _silence() -> Iterator[None]:
    """Without the warnings of the exporter and the quantiser, of packages and preparations that change nothing here."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def check_packages(asked: str) -> None:
    """Check that the packages of the extra `onnx` are there; `asked` is the option that needs them."""
    for package in PACKAGES:
        try:
            __import__(package)
        except ImportError:
            raise InputError(
                f"{asked}: the package {package} is not installed; `pip install 'distilbench[onnx]'`, or leave {asked} out"
            ) from None


def whole(model: SentenceTransformer) -> torch.nn.Module:
    """All modules of the model, in order, and its width."""
    import torch

    transformer, after, width = model[0].model, torch.nn.ModuleList(list(model)[1:]), model.truncate_dim

    class Whole(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.transformer, self.after = transformer, after

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            states_BTH = self.transformer(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            features = {"input_ids": input_ids, "attention_mask": attention_mask, "token_embeddings": states_BTH}
            for module in self.after:
                features = module(features)
            return features[OUTPUT][:, :width]

    return Whole()


def save_graph(module: torch.nn.Module, path: Path) -> None:
    """Write the graph of a module of `input_ids` and `attention_mask` (B x T, int64; both are free).

    Its numbers go into `path` + ".data": a protobuf file ends at 2 GB.
    """
    import onnx
    import torch

    ids_BT = torch.full((3, 7), 1)
    mask_BT = torch.ones_like(ids_BT)
    mask_BT[1, 5:] = 0  # with padding: a model may look for it, and skip its mask where there is none
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with torch.no_grad(), _silence():
        program = torch.onnx.export(
            module.eval(),
            (ids_BT, mask_BT),
            dynamo=True,
            opset_version=OPSET,
            input_names=["input_ids", "attention_mask"],
            output_names=[OUTPUT],
            dynamic_shapes=(free, free),
            verbose=False,
        )
    assert program is not None, "torch.onnx.export with dynamo=True returns a program"
    program.save(str(path), external_data=True)
    graph = onnx.load(path, load_external_data=False)
    for node in graph.graph.node:  # stack traces, with the paths of this machine
        del node.metadata_props[:]
    del graph.graph.value_info[:]  # the shapes of weights, too, which quantisation turns round
    onnx.save(graph, path)


def no_graph(model: SentenceTransformer) -> str:
    """Why there is no graph of an encoder's transformer; "" where there is one."""
    from sentence_transformers.base.modules import Transformer

    first = model[0]
    if not isinstance(first, Transformer):
        return f"it begins with a {type(first).__name__} module, not with a Transformer"
    text = first.modality_config.get("text", {})
    if (text.get("method"), text.get("method_output_name")) != ("forward", "last_hidden_state"):
        return "its transformer gives something else than the last hidden states"
    return ""
