"""An encoder's transformer on ONNX Runtime: exported once into the store, loaded from there by every worker.

Only the transformer is replaced. Tokenising, pooling, dense layers and normalisation stay sentence-transformers' own,
and `distilbench.encoders.encoder.encode` runs the result like any other encoder, on the CPU in float32.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distilbench.encoders.encoder import EncoderSpec, encode
from distilbench.errors import InputError
from distilbench.storage.files import atomic_path
from distilbench.storage.store import ArtifactStore

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

PACKAGES = ("onnxruntime", "onnxscript", "onnx")
"""What making a graph needs."""

GRAPH, WEIGHTS = "model.onnx", "model.onnx.data"
"""The files of the artifact. The weights lie apart: a protobuf file ends at 2 GB."""

OPSET = 23
"""The first with an Attention operator."""

SLOW_FUSIONS = ["SkipLayerNormFusion"]
"""Fused on CPU, addition and layer normalisation take 1.17 ms for 512 x 384 numbers, one after the other 0.16 ms."""

LARGEST_DIFFERENCE = 1e-5
"""The largest difference of a component from PyTorch's vector, both scaled to the PyTorch vector's length of 1."""

STEP_VERSION = 3
"""Part of every fingerprint: raise it when the code below changes the graph."""

SAMPLES = (
    "",
    "a",
    "the dog runs",
    "one small red cat plays slowly under the big blue house " * 3,
    "how do i " * 400,
)
"""Sentences for every kind of batch: short ones padded together, a middle one, and one longer than any encoder's limit."""


def onnx_artifact(spec: EncoderSpec, store: ArtifactStore) -> Path:
    """The graph of an encoder's transformer, exported if the store does not have it; its prompt has no part in it."""
    _require(*PACKAGES)
    parts = {
        "encoder": spec.identity()["source"],
        "versions": {name: version(name) for name in ("torch", "transformers", "onnxscript", "onnxruntime")},
        "opset": OPSET,
        "step_version": STEP_VERSION,
    }

    def make(folder: Path, missing: list[str]) -> None:
        with tempfile.TemporaryDirectory() as name:
            graph = Path(name) / GRAPH
            try:
                _export(spec, graph)
                difference = _largest_difference(spec, graph)
            except InputError:
                raise
            except Exception as error:  # exporter and runtime raise many kinds
                raise _unable(spec, (str(error).splitlines() or [type(error).__name__])[0]) from error
            if not difference <= LARGEST_DIFFERENCE:
                raise _unable(spec, f"its vectors differ from PyTorch's by {difference:.1e}")
            for file in (WEIGHTS, GRAPH):  # both: the two files of one export belong together
                with atomic_path(folder / file) as temporary:
                    shutil.copyfile(graph.with_name(file), temporary)

    return store.build("onnx", parts, [WEIGHTS, GRAPH], make) / GRAPH


def load_onnx(spec: EncoderSpec, graph: Path) -> SentenceTransformer:
    """The encoder with its transformer computed by ONNX Runtime from `graph`, as `onnx_artifact` returned it."""
    _require("onnxruntime")
    model = spec.load("cpu")
    transformer = _transformer(spec, model)
    config = transformer.model.config
    del transformer.model  # PyTorch's copy of the weights
    transformer.model = _Graph(graph, config)
    return model


class _Graph:
    """What sentence-transformers' Transformer module asks of a Hugging Face model, answered by ONNX Runtime."""

    def __init__(self, graph: Path, config: Any) -> None:
        import onnxruntime
        import torch

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3  # errors
        self.session = onnxruntime.InferenceSession(
            str(graph), options, providers=["CPUExecutionProvider"], disabled_optimizers=SLOW_FUSIONS
        )
        self.inputs = {graph_input.name for graph_input in self.session.get_inputs()}
        self.config, self.device, self.dtype = config, torch.device("cpu"), torch.float32

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **_: Any) -> dict[str, torch.Tensor]:
        """`last_hidden_state`, B x T x width. Anything else that the tokenizer gives has its default value."""
        import torch

        arrays = {"input_ids": input_ids.numpy(), "attention_mask": attention_mask.numpy()}
        (states_BTH,) = self.session.run(None, {name: arrays[name] for name in self.inputs})
        return {"last_hidden_state": torch.from_numpy(states_BTH)}


def _export(spec: EncoderSpec, path: Path) -> None:
    import torch

    class States(torch.nn.Module):
        """The transformer's last hidden states alone: without its pooler."""

        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    save_graph(States(_transformer(spec, spec.load("cpu")).model), path, "last_hidden_state")


def save_graph(module: torch.nn.Module, path: Path, output: str) -> None:
    """Write the graph of a module that gives one output of `input_ids` and `attention_mask` (B x T, int64; both are free).

    Its numbers go into `path` + ".data": a protobuf file ends at 2 GB.
    """
    import onnx
    import torch

    ids_BT = torch.full((3, 7), 1)
    mask_BT = torch.ones_like(ids_BT)
    mask_BT[1, 5:] = 0  # with padding: a model may look for it, and skip its mask where there is none
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module.eval(),
            (ids_BT, mask_BT),
            dynamo=True,
            opset_version=OPSET,
            input_names=["input_ids", "attention_mask"],
            output_names=[output],
            dynamic_shapes=(free, free),
            verbose=False,
        )
    assert program is not None, "torch.onnx.export with dynamo=True returns a program"
    program.save(str(path), external_data=True)
    graph = onnx.load(path, load_external_data=False)
    for node in graph.graph.node:  # stack traces, with the paths of this machine
        del node.metadata_props[:]
    onnx.save(graph, path)


def _largest_difference(spec: EncoderSpec, graph: Path) -> float:
    """Between the unit vectors of PyTorch and of ONNX Runtime."""
    expected = encode(spec.load("cpu"), SAMPLES, prompt=spec.prompt_before())
    vectors = encode(load_onnx(spec, graph), SAMPLES, prompt=spec.prompt_before())
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    return float((np.abs(vectors - expected) / np.maximum(lengths, 1e-12)).max())


def _transformer(spec: EncoderSpec, model: SentenceTransformer) -> Any:
    """The Transformer module that comes first in an encoder."""
    if reason := no_graph(model):
        raise _unable(spec, reason)
    return model[0]


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


def _unable(spec: EncoderSpec, reason: str) -> InputError:
    return InputError(
        f"encoder {spec.name!r}: ONNX Runtime cannot run it: {reason:.300}; use the torch backend for this encoder"
    )


def missing_package(*packages: str) -> str:
    """The first of the packages that is not installed; "" where all are."""
    for package in packages:
        try:
            __import__(package)
        except ImportError:
            return package
    return ""


def _require(*packages: str) -> None:
    if missing := missing_package(*packages):
        raise InputError(
            f"the onnx backend needs the package {missing}, which is not installed; "
            "`pip install 'distilbench[onnx]'`, or use the torch backend"
        )
