"""The Python that loads a student as it was scored: for the terminal, and for a model card."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from distilbench.codes import FAISS_PEER
from distilbench.encoders.onnx_graph import OUTPUT, SLOWER
from distilbench.records import AS_IT_CAME, ON_VECTORS, ScoreRecord

FITTED = (FAISS_PEER, "pca", "random_projection", "whitening")
"""Methods whose layer after the teacher, or whose code, is computed at once, without training."""

UNPACK = """import torch
from safetensors.torch import load_file, save_file
stored = load_file({file})
if "packed" in stored:  # a table of 4 bits: it is written anew once with 8, which sentence-transformers reads
    rows, packed = len(stored["weights"]), stored["packed"]
    halves = torch.stack([packed & 15, packed >> 4], dim=-1).flatten()
    codes = halves[: len(halves) // rows * rows].view(rows, -1).to(torch.int8) - 8
    save_file({{"embeddings": codes, "weights": stored["weights"]}}, {file})"""

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
    width = f", truncate_dim={record.dim}" if cut else ""
    embed = ['vectors = model.encode(["One sentence.", "Another one."])']
    given = record.start == ON_VECTORS or gives_documents(record)
    if record.prompts or record.documents:
        embed = [
            'queries = model.encode_query(["How do I reset my password?"])',
            'vectors = model.encode_document(["One document.", "Another one."])',
        ]
    if given:
        layers = f"SentenceTransformer({literal(f'{model}/documents/teacher')})" if record.documents else "model"
        after = f'{layers}({{"sentence_embedding": given}})["sentence_embedding"].detach()'
        after = "given" if record.documents == record.teacher else after
        embed = [
            *embed[:-1],
            'given = torch.from_numpy(np.load("vectors.npy").astype("float32"))  # the teacher\'s, a row for each text',
            f"vectors = {after}.numpy()" + (f"[:, :{record.dim}]" if record.documents else ""),
        ]
    lines = ["import numpy as np", "import torch"] if given else []
    lines.append("from sentence_transformers import SentenceTransformer")
    if record.hyperparameters.get("table") == "int4" and not record.documents:
        lines = [*unpack_code(model).splitlines(), *lines]
    lines += [f"model = SentenceTransformer({literal(model)}{width})", *embed]
    if record.quantisation != "float32":
        file = literal(f"{quantiser}/quantisation-{record.quantisation}.faiss")
        lines = ["import faiss", *([] if given else ["import numpy as np"]), *lines]
        lines.append(f"code = faiss.read_index({file})")
        lines.append("codes = code.sa_encode(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))")
    return "\n".join(lines)


def unpack_code(model: str) -> str:
    """Python that makes a student's table in int4 one in int8."""
    return UNPACK.format(file=literal(f"{model}/model.safetensors"))


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
            f"# {INT8_GRAPH} has int8 weights, the fastest on a processor with VNNI; of five sentences the lowest cosine",
            f"# to the vectors in float32 is {onnx_input.int8_cosine:.4f}.",
            f'cpu, slow = ["CPUExecutionProvider"], {json.dumps(SLOWER)}',
            f'session = onnxruntime.InferenceSession("{GRAPH}", providers=cpu, disabled_optimizers=slow)',
            f"batch = tokenizer.encode_batch({texts})",
            "ids, mask = np.array([e.ids for e in batch]), np.array([e.attention_mask for e in batch])",
            f'(vectors,) = session.run(["{OUTPUT}"], {{"input_ids": ids, "attention_mask": mask}})',
        ]
    )
