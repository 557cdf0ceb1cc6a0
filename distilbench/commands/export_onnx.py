"""A student as one ONNX graph, from token ids to the vector: what a server runs without PyTorch. Of a pair of encoders it is
the one of queries.

sentence-transformers' own `backend="onnx"` takes a graph of the transformer alone, and optimum-onnx 0.1.0 to load it, which
cannot be installed beside transformers 5; so the graph is the whole of the student, and is run as `run_code` says.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distilbench.commands.export_router import query_folder
from distilbench.encoders.encoder import EncoderSpec, encode
from distilbench.errors import InputError
from distilbench.reporting.loading import literal

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

PACKAGES = ("onnxruntime", "onnxscript", "onnx")
OPSET = 23
"""The first with an Attention operator."""
SAMPLES = (
    "",
    "a",
    "the dog runs",
    "one small red cat plays slowly under the big blue house " * 3,
    "how do i " * 400,
)
"""Sentences for every kind of batch: short ones padded together, a middle one, and one longer than any encoder's limit."""
GRAPH = Path("onnx") / "model.onnx"
OUTPUT = "sentence_embedding"
TOKENIZER = "tokenizer.json"

LARGEST_DIFFERENCE = 1e-4
"""The largest difference of a component from PyTorch's vector, both scaled to the PyTorch vector's length of 1."""


class OnnxInput(NamedTuple):
    """The way of a sentence to token ids: the prompt before it, the most tokens, and what pads a batch."""

    prompt: str
    max_tokens: int
    pad_id: int
    pad_token: str
    document_prompt: str | None = None
    """The text before a document, where `prompt` is before a query; None: all text is read alike, or queries alone."""
    tokenizer: str = TOKENIZER
    """Its file, in the folder."""


def check_onnx() -> None:
    """Check that the packages of the extra `onnx` are there."""
    for package in PACKAGES:
        try:
            __import__(package)
        except ImportError:
            raise InputError(
                f"--onnx: the package {package} is not installed; `pip install 'distilbench[onnx]'`, or leave --onnx out"
            ) from None


def write_onnx(folder: Path, name: str) -> OnnxInput:
    """Write `onnx/model.onnx` into a sentence-transformers folder, and how to feed it; `name` is what messages call it.

    `input_ids` and `attention_mask` (int64, B x T) become `sentence_embedding` (float32, B x d), d the width that the
    folder's model gives. It is run by ONNX Runtime, with tokenizers alone, on short, long and empty sentences.
    """
    model, inner = _query_encoder(EncoderSpec(str(folder)).load())
    if reason := no_graph(model):
        raise _unable(name, reason)
    if not (folder / inner / TOKENIZER).is_file():
        raise _unable(name, f"it has no {TOKENIZER}, which the package tokenizers reads")
    (folder / GRAPH).parent.mkdir(parents=True, exist_ok=True)
    try:
        save_graph(_whole(model), folder / GRAPH)
        onnx_input = _input(folder, model, f"{inner}{TOKENIZER}")
        onnx_vectors = run_onnx(folder, onnx_input, SAMPLES)
    except OSError:
        raise
    except Exception as error:  # exporter, tokenizer and runtime raise many kinds
        raise _unable(name, (str(error).splitlines() or [type(error).__name__])[0]) from error
    expected = encode(model, SAMPLES)
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    difference = float((np.abs(onnx_vectors - expected) / np.maximum(lengths, 1e-12)).max())
    if not difference < LARGEST_DIFFERENCE:
        raise _unable(name, f"its vectors differ from PyTorch's by {difference:.1e}")
    return onnx_input


def run_onnx(folder: Path, onnx_input: OnnxInput, sentences: Sequence[str]) -> NDArray[np.float32]:
    """Vectors of sentences by ONNX Runtime, N x d: what `run_code` writes out."""
    import onnxruntime
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / onnx_input.tokenizer))
    tokenizer.enable_truncation(onnx_input.max_tokens)
    tokenizer.enable_padding(pad_id=onnx_input.pad_id, pad_token=onnx_input.pad_token)
    batch = tokenizer.encode_batch([onnx_input.prompt + s for s in sentences])
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(str(folder / GRAPH), options, providers=["CPUExecutionProvider"])
    ids_BT, mask_BT = np.array([e.ids for e in batch]), np.array([e.attention_mask for e in batch])
    (vectors_Bd,) = session.run([OUTPUT], {"input_ids": ids_BT, "attention_mask": mask_BT})
    return vectors_Bd


def run_code(onnx_input: OnnxInput) -> str:
    """Python that embeds sentences with the graph, in the folder of the model."""
    texts = '["One sentence.", "Another one."]'
    prompt, document = onnx_input.prompt, onnx_input.document_prompt
    if prompt:
        texts = f"[{literal(prompt)} + s for s in {texts}]"
    before = literal(document) if document else "nothing"
    roles = [] if document is None else [f"# Of queries; before a document comes {before}."]
    return "\n".join(
        [
            *roles,
            "import numpy as np, onnxruntime",
            "from tokenizers import Tokenizer",
            f'tokenizer = Tokenizer.from_file("{onnx_input.tokenizer}")',
            f"tokenizer.enable_truncation({onnx_input.max_tokens})",
            f"tokenizer.enable_padding(pad_id={onnx_input.pad_id}, pad_token={literal(onnx_input.pad_token)})",
            f'session = onnxruntime.InferenceSession("{GRAPH.as_posix()}", providers=["CPUExecutionProvider"])',
            f"batch = tokenizer.encode_batch({texts})",
            "ids, mask = np.array([e.ids for e in batch]), np.array([e.attention_mask for e in batch])",
            f'(vectors,) = session.run(["{OUTPUT}"], {{"input_ids": ids, "attention_mask": mask}})',
        ]
    )


def _whole(model: SentenceTransformer) -> torch.nn.Module:
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


def _query_encoder(model: SentenceTransformer) -> tuple[SentenceTransformer, str]:
    """The query route of a pair of encoders, whose `encode` is `encode_query`, and its folder with a slash; another model as
    it is."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router

    router = model[0]
    if not isinstance(router, Router):
        return model, ""
    modules, before = list(router.sub_modules["query"]), model.prompts.get("query") or ""
    prompts = {"query": before, "document": before}
    own = SentenceTransformer(
        modules=modules,
        prompts=prompts,
        default_prompt_name="query" if before else None,
        truncate_dim=model.truncate_dim,
        device="cpu",
    )
    return own.eval(), f"{query_folder(modules[0])}/"


def _input(folder: Path, model: SentenceTransformer, file: str) -> OnnxInput:
    tokenizer: Any = model.tokenizer
    tokenizer_config = json.loads((folder / file).read_text(encoding="utf-8"))
    longest = int(model.max_seq_length or (tokenizer_config.get("truncation") or {}).get("max_length") or 512)
    prompt, query, document = (
        model.prompts.get(name or "", "") for name in (model.default_prompt_name, "query", "document")
    )
    by_role = document if query != document and prompt == query else None
    return OnnxInput(
        prompt, longest, int(tokenizer.pad_token_id or 0), str(tokenizer.pad_token or "[PAD]"), by_role, file
    )


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
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
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


def _unable(name: str, reason: str) -> InputError:
    return InputError(f"--onnx: {name}: no graph that ONNX Runtime can run: {reason:.300}; leave --onnx out")
