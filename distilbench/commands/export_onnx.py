"""A student as one ONNX graph, from token ids to the vector: what a server runs without PyTorch. Of a pair of encoders it is
the one of queries. Beside it is the same graph with int8 weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from distilbench.commands.export_router import query_folder
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import encode
from distilbench.encoders.onnx_graph import OUTPUT, no_graph, quantise_graph, save_graph, session_of, whole
from distilbench.errors import InputError
from distilbench.reporting.loading import GRAPH, INT8_GRAPH, TOKENIZER, OnnxInput

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

SAMPLES = (
    "",
    "a",
    "the dog runs",
    "one small red cat plays slowly under the big blue house " * 3,
    "how do i " * 400,
)
"""Sentences for every kind of batch: short ones padded together, a middle one, and one longer than any encoder's limit."""
LARGEST_DIFFERENCE = 1e-4
"""The largest difference of a component from PyTorch's vector, both scaled to the PyTorch vector's length of 1."""


def write_onnx(folder: Path, name: str) -> OnnxInput:
    """Write `onnx/model.onnx` and `onnx/model_int8.onnx` into a sentence-transformers folder, and how to feed them.

    `name` is what messages call it.

    `input_ids` and `attention_mask` (int64, B x T) become `sentence_embedding` (float32, B x d), d the width that the
    folder's model gives. They are run by ONNX Runtime, with tokenizers alone, on short, long and empty sentences.
    """
    model, inner = _query_encoder(EncoderSpec(str(folder)).load())
    if reason := no_graph(model):
        raise _unable(name, reason)
    if not (folder / inner / TOKENIZER).is_file():
        raise _unable(name, f"it has no {TOKENIZER}, which the package tokenizers reads")
    (folder / GRAPH).parent.mkdir(parents=True, exist_ok=True)
    with _refused(name):
        save_graph(whole(model), folder / GRAPH)
        onnx_input = _input(folder, model, f"{inner}{TOKENIZER}")
        onnx_vectors = run_onnx(folder, onnx_input, SAMPLES)
    expected = encode(model, SAMPLES, prompt=onnx_input.prompt)
    lengths = np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1e-12)
    difference = float((np.abs(onnx_vectors - expected) / lengths).max())
    if not difference < LARGEST_DIFFERENCE:
        raise _unable(name, f"its vectors differ from PyTorch's by {difference:.1e}")
    with _refused(name):
        quantise_graph(folder / GRAPH, folder / INT8_GRAPH)
        int8_vectors = run_onnx(folder, onnx_input, SAMPLES, INT8_GRAPH)
    int8_lengths = np.linalg.norm(int8_vectors, axis=1, keepdims=True)
    cosines = (expected / lengths * int8_vectors / np.maximum(int8_lengths, 1e-12)).sum(axis=1)
    return onnx_input._replace(int8_cosine=float(cosines.min()))


def run_onnx(folder: Path, onnx_input: OnnxInput, sentences: Sequence[str], graph: str = GRAPH) -> NDArray[np.float32]:
    """Vectors of sentences by ONNX Runtime, N x d: what `run_code` writes out."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / onnx_input.tokenizer))
    tokenizer.enable_truncation(onnx_input.max_tokens)
    tokenizer.enable_padding(pad_id=onnx_input.pad_id, pad_token=onnx_input.pad_token)
    batch = tokenizer.encode_batch([onnx_input.prompt + s for s in sentences])
    ids_BT, mask_BT = np.array([e.ids for e in batch]), np.array([e.attention_mask for e in batch])
    (vectors_Bd,) = session_of(str(folder / graph)).run([OUTPUT], {"input_ids": ids_BT, "attention_mask": mask_BT})
    return vectors_Bd


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
    other, query, document = (
        model.prompts.get(name or "", "") for name in (model.default_prompt_name, "query", "document")
    )
    prompt, by_role = (other, None) if query == document else (query, document)
    return OnnxInput(
        prompt, longest, int(tokenizer.pad_token_id or 0), str(tokenizer.pad_token or "[PAD]"), by_role, file
    )


@contextmanager
def _refused(name: str) -> Iterator[None]:
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # exporter, tokenizer and runtime raise many kinds
        raise _unable(name, (str(error).splitlines() or [type(error).__name__])[0]) from error


def _unable(name: str, reason: str) -> InputError:
    return InputError(f"--onnx: {name}: no graph that ONNX Runtime can run: {reason:.300}; leave --onnx out")
