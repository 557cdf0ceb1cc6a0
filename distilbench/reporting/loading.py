"""The Python that loads a student as it was scored: for the terminal, and for a model card."""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2

from distilbench.codes import FAISS_PEER
from distilbench.encoders.onnx_graph import OUTPUT, SLOWER
from distilbench.records import AS_IT_CAME, ON_VECTORS, ScoreRecord
from distilbench.reporting.markdown import template_environment

FITTED = (FAISS_PEER, "pca", "random_projection", "whitening")
"""Methods whose layer after the teacher, or whose code, is computed at once, without training."""

GRAPH, INT8_GRAPH = "onnx/model.onnx", "onnx/model_int8.onnx"
TOKENIZER = "tokenizer.json"


def literal(text: str) -> str:
    """The text as a Python string: every escape that JSON writes is one in Python too."""
    return json.dumps(text, ensure_ascii=False)


def is_nested(record: ScoreRecord) -> bool:
    """Whether the row's vectors are the first numbers of the model's, as those of a Matryoshka student may be."""
    whole = record.hyperparameters.get("output_dim", record.dim)
    return isinstance(whole, int) and record.dim < whole


def quantiser_folder(model: Path, record: ScoreRecord) -> Path:
    """Where the row's quantiser is: in the model's folder, or in that of the row's width, where it was scored at several."""
    of_width = model / f"d{record.dim}"
    return of_width if of_width.is_dir() else model


def can_be_built(record: ScoreRecord) -> bool:
    """Whether `export` can make the row's model from what its run was prepared from: the teacher, or a fitted layer on it."""
    no_encoder = record.start == ON_VECTORS and record.method in ("teacher", FAISS_PEER)
    return record.start != AS_IT_CAME and not no_encoder and bool(record.dim) and record.method in ("teacher", *FITTED)


def gives_documents(record: ScoreRecord) -> bool:
    """Whether the documents of a pair are vectors that were given, of which the encoder is not here."""
    return bool(record.documents) and record.source.endswith(".parquet")


def export_command(record: ScoreRecord, anchor: str, runs: Sequence[Path] = ()) -> str:
    """The `distilbench export` that writes this row, DIR left to the reader; "" where it cannot be exported.

    `runs`: the folders that it is found in, else it is in `runs/` of the working folder.
    """
    if not record.model and not can_be_built(record):
        return ""
    folders = [str(run) for run in runs] or [f"runs/{record.run}"]
    return shlex.join(["distilbench", "export", *folders, "--student", anchor, "--to", "DIR"])


def load_code(record: ScoreRecord, model: str, quantiser: str, *, cut: bool) -> str:
    """Python that embeds sentences, and where the row is quantised codes them with what is in `quantiser`.

    An encoder that reads queries and documents differently is asked for both; the codes are those of the documents. Those of
    a pair may be vectors that were given: then `model` has the layers that follow them in `documents/`.

    `cut`: the model gives more numbers than the row has; False where its folder says to cut them.
    """
    given = record.start == ON_VECTORS or gives_documents(record)
    return _code("load.py.j2", record=record, model=model, quantiser=quantiser, cut=cut, given=given)


def unpack_code(model: str) -> str:
    """Python that makes a student's table in int4 one in int8."""
    return _code("unpack.py.j2", model=model)


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
    int8_cosine: float = 1.0
    """The lowest cosine of the vectors with int8 weights to those with float32, of some sentences."""


def run_code(onnx_input: OnnxInput) -> str:
    """Python that embeds sentences with the graph, in the folder of the model."""
    graphs = {"graph": GRAPH, "int8_graph": INT8_GRAPH, "output": OUTPUT, "slower": SLOWER}
    return _code("run_onnx.py.j2", input=onnx_input, **graphs)


def _code(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(values).rstrip()


@functools.cache
def _environment() -> jinja2.Environment:
    environment = template_environment(autoescape=False, keep_trailing_newline=True)
    environment.filters["literal"] = literal
    return environment
