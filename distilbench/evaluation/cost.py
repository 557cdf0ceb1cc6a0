"""What an encoder costs to keep and to embed with: its size on disk, its parameters, its latency (`evaluation.latency`).

Each shape is measured once on a machine: encoders whose files have the same shapes have the same cost, whatever trained them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from distilbench.encoders.encoder import EncoderSpec
from distilbench.errors import InputError
from distilbench.evaluation import latency
from distilbench.records import EncoderCost
from distilbench.storage.files import file_sha256, fingerprint, write_json
from distilbench.storage.store import ArtifactStore

FILE = "cost.json"
STEP_VERSION = 3
WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""Where a module's weights are, in the order that loading prefers; an index names the files of its parts."""
NO_CONFIGURATION = "data_config.json"
"""What some older encoders were trained on."""


class Size(NamedTuple):
    """Parameters without look-up tables, and the bytes of the files that loading needs."""

    parameters_without_embeddings: int
    bytes_on_disk: int


class CostBench:
    """Measures encoders on the same sentences, on one thread of the CPU; what the store has is not measured again."""

    def __init__(self, sentences: Sequence[str], store: ArtifactStore) -> None:
        """Take a sample of `sentences`, evenly spread over them."""
        chosen = np.linspace(0, len(sentences) - 1, min(latency.SENTENCES, len(sentences))).astype(int)
        self.texts, self.store = [sentences[i] for i in chosen], store
        self.machine = latency.this_processor()
        parts = {"machine": self.machine, "step_version": STEP_VERSION}

        def make(folder: Path, missing: list[str]) -> None:
            write_json(folder / FILE, {"seconds": latency.calm_reference_s()})

        calm = store.build("reference", parts, [FILE], make)
        self.reference_s = float(json.loads((calm / FILE).read_text())["seconds"])

    def cost(self, spec: EncoderSpec, shape: Any = None) -> EncoderCost:
        """Measure an encoder. `shape` decides its cost; None: its files do."""
        parts = {
            "machine": self.machine,
            "texts": fingerprint(self.texts),
            "prompt": spec.prompt_before() or "",
            "encoder": spec.identity() if shape is None else shape,
            "step_version": STEP_VERSION,
        }

        def make(folder: Path, missing: list[str]) -> None:
            model = spec.load("cpu").eval()
            timing = latency.time_encoder(model, spec.prompt_before(), self.texts, self.reference_s)
            cost = EncoderCost(
                **encoder_size(spec, model)._asdict(),
                sentences_per_second_1=1000 / timing.p50_ms,
                sentences_per_second_32=1000 / timing.batched_ms,
                p50_ms=timing.p50_ms,
                p95_ms=timing.p95_ms,
                threads=1,
                device="cpu",
                timed_1=timing.timed_single,
                timed_32=timing.timed_batched,
            )
            write_json(folder / FILE, cost.model_dump(mode="json"))

        built = self.store.build("cost", parts, [FILE], make)
        return EncoderCost.model_validate_json((built / FILE).read_bytes())


def encoder_size(spec: EncoderSpec, model: SentenceTransformer) -> Size:
    """How large the encoder is that is loaded as `model`."""
    count = sum(p.numel() for p in model.parameters())
    files = needed_files(spec.folder() or _cached(spec), model.tokenizer)
    return Size(count - embedding_parameters(model), sum(path.stat().st_size for path in files))


def embedding_parameters(model: torch.nn.Module) -> int:
    """Parameters of look-up tables; one that several modules share is counted once."""
    tables = {m.weight for m in model.modules() if isinstance(m, torch.nn.Embedding | torch.nn.EmbeddingBag)}
    return sum(p.numel() for p in tables)


def needed_files(folder: Path, tokenizer: Any) -> list[Path]:
    """The files of an encoder folder that sentence-transformers needs to load it with torch, sorted.

    Counted are, in the folder itself and in those of its modules: the configurations, the weights in one format
    (safetensors where there are), and the tokenizer: `tokenizer.json`, or where there is none the vocabulary files that
    `tokenizer` knows of. Not counted is the rest: README, .git, exports (onnx/, openvino/), weights in other formats, a
    student's quantisers and pair head.
    """
    listed = folder / "modules.json"
    modules = json.loads(listed.read_text()) if listed.exists() else []
    inner = [folder / m["path"] for m in modules if m["path"]]
    folders = {folder, *inner, *(p for f in inner for p in f.rglob("*") if p.is_dir())}  # a router's are deeper
    files, weights = set[Path](), set[Path]()
    for place in folders:
        files.update(p for p in place.glob("*config*.json") if p.name != NO_CONFIGURATION)
        names = ["modules.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"]
        whole = (place / "tokenizer.json").exists()
        names += ["tokenizer.json"] if whole else getattr(tokenizer, "vocab_files_names", {}).values()
        files.update(p for name in names if (p := place / name).is_file())
        weights |= _weights(place)
    if not weights:
        raise InputError(f"encoder {str(folder)!r}: no weights in it; expected one of {', '.join(WEIGHTS)}")
    return sorted(files | weights)


def _weights(place: Path) -> set[Path]:
    """The files of the preferred weights of one module; none where it has none."""
    first = next((p for name in WEIGHTS if (p := place / name).is_file()), None)
    if first is None:
        return set()
    parts = (
        {place / name for name in json.loads(first.read_text())["weight_map"].values()}
        if first.suffix == ".json"
        else set[Path]()
    )
    if missing := sorted(p.name for p in parts if not p.is_file()):
        raise InputError(f"{first}: names {missing[0]}, which is not there")
    return {first, *parts}


def _cached(spec: EncoderSpec) -> Path:
    """Where the hub's cache keeps the encoder, which is there once it is loaded."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(spec.name, revision=spec.revision, local_files_only=True))
    except LocalEntryNotFoundError:
        raise InputError(f"encoder {spec.name!r}: not in the hub's cache; expected it there once loaded") from None


def shape_of(folder: Path) -> dict[str, Any]:
    """What decides the cost of a saved encoder: its files, of weights the shapes and types alone."""
    shape: dict[str, Any] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = str(path.relative_to(folder))
        if path.suffix == ".safetensors":
            shape[name] = _tensors(path)
        elif path.name == "tokenizer.json":
            shape[name] = file_sha256(path)
        elif path.suffix == ".json":
            shape[name] = path.stat().st_size
    return shape


def _tensors(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    return {name: [value["dtype"], value["shape"]] for name, value in header.items() if name != "__metadata__"}
