"""What an encoder costs: its size in memory and on disk, the size of a vector, and how fast it reads sentences.

Speed is on the wall clock and from text to vector, tokenising included: what a service pays. (`latency` times
the students of a search, beside a reference and in the thread's own time.) So nothing else should run meanwhile.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from distilbench.encoders.encoder import EncoderSpec, encode, encode_ids, prompt_of, reads_tokens, token_ids
from distilbench.errors import InputError
from distilbench.threads import torch_threads

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

SENTENCES, SEED = 512, 0
"""Sentences that are read at most, drawn with this seed, in the order drawn."""
BATCH = 32
LEAST_SINGLE, LEAST_BATCHES = 20, 3
"""Runs that are timed even where they take longer than allowed: a 95th percentile needs 20."""
WARM_UP = 3
"""Runs of each batch size that are not timed."""

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
    """As in `Cost`."""

    parameters: int
    parameters_without_embeddings: int
    bytes_on_disk: int


class Cost(NamedTuple):
    """`..._1` is one sentence at a time, `..._32` is 32 at a time, each batch padded to its longest sentence."""

    parameters: int
    """The parameters of the model as it is loaded, a pooler that it does not use included; shared ones are counted once."""
    parameters_without_embeddings: int
    """Without look-up tables (`nn.Embedding`, `nn.EmbeddingBag`): tokens, positions, segments."""
    bytes_on_disk: int
    """The bytes of the files that loading needs (`needed_files`)."""
    bytes_per_vector: int
    """In float32."""
    sentences_per_second_1: float
    sentences_per_second_32: float
    p50_ms: float
    """Median time of one sentence on its own."""
    p95_ms: float
    device: str
    """"cpu", or "cuda", on which the model runs in bfloat16 autocast."""
    threads: int
    """The threads of torch; the tokenizer works on one."""
    timed_1: int
    """Sentences that were timed one at a time."""
    timed_32: int
    """Sentences that were timed in batches."""


def encoder_cost(
    spec: EncoderSpec,
    model: SentenceTransformer,
    sentences: Sequence[str],
    *,
    threads: int,
    device: str,
    seconds: float = 10.0,
) -> Cost:
    """The cost of `spec`, which is loaded as `model` on `device`, reading a fixed sample of the sentences.

    One sentence at a time and batches of 32 are timed for about `seconds` each, or until the sample is read: at least
    `LEAST_SINGLE` sentences and `LEAST_BATCHES` batches, for which few sentences are read again.

    Raises:
        ValueError: no sentences, `threads` below 1, `seconds` below 0 or not a number, or the model is on another device.
        InputError: the encoder's folder is unusable, or a hub encoder is not in the cache.
    """
    if not len(sentences):
        raise ValueError("no sentences, expected at least one to time")
    if threads < 1:
        raise ValueError(f"threads is {threads}, expected at least 1")
    if not seconds >= 0:
        raise ValueError(f"seconds is {seconds}, expected at least 0")
    if model.device.type != torch.device(device).type:
        raise ValueError(f"the model is on {model.device.type}, expected {device}")
    size = encoder_size(spec, model)
    chosen = np.random.default_rng(SEED).choice(len(sentences), min(SENTENCES, len(sentences)), replace=False)
    read, prompt = [sentences[int(i)] for i in chosen], prompt_of(model, spec.prompt_before())
    with on_threads(threads):
        width = read_texts(model, read[:1], prompt).shape[1]
        single = _timed(model, read, prompt, 1, LEAST_SINGLE, seconds)
        batches = _timed(model, read, prompt, BATCH, LEAST_BATCHES, seconds)
    p50, p95 = 1000 * np.percentile(single, [50, 95])
    return Cost(
        **size._asdict(),
        bytes_per_vector=4 * width,
        sentences_per_second_1=len(single) / sum(single),
        sentences_per_second_32=BATCH * len(batches) / sum(batches),
        p50_ms=float(p50),
        p95_ms=float(p95),
        device=torch.device(device).type,
        threads=threads,
        timed_1=len(single),
        timed_32=BATCH * len(batches),
    )


def encoder_size(spec: EncoderSpec, model: SentenceTransformer) -> Size:
    """How large the encoder is that is loaded as `model`.

    Raises:
        InputError: its folder is unusable, or a hub encoder is not in the cache.
    """
    count = sum(p.numel() for p in model.parameters())
    files = needed_files(spec.folder() or _cached(spec), model.tokenizer)
    return Size(count, count - embedding_parameters(model), sum(path.stat().st_size for path in files))


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

    Raises:
        InputError: there are no weights, or an index names a file that is not there.
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


def read_texts(model: SentenceTransformer, batch: Sequence[str], prompt: str) -> NDArray[np.float32]:
    """Vectors of the sentences, all in one padded batch."""
    if not reads_tokens(model):
        return encode(model, batch, prompt=prompt)
    ids = token_ids(model, batch, prompt)
    return encode_ids(model, ids, len(ids) * max(len(row) for row in ids))


def _timed(
    model: SentenceTransformer, sentences: Sequence[str], prompt: str, size: int, least: int, seconds: float
) -> list[float]:
    """Seconds of each run over the next `size` sentences, the first again after the last.

    It ends when all are read or `seconds` are over, but not before `least` runs.
    """
    most, took = max(least, math.ceil(len(sentences) / size)), list[float]()
    following = itertools.cycle(sentences)
    for _ in range(WARM_UP):
        read_texts(model, [sentences[i % len(sentences)] for i in range(size)], prompt)
    while len(took) < least or (len(took) < most and sum(took) < seconds):
        batch = list(itertools.islice(following, size))
        _finish(model)
        began = time.perf_counter()
        read_texts(model, batch, prompt)
        _finish(model)
        took.append(time.perf_counter() - began)
    return took


def _finish(model: SentenceTransformer) -> None:
    """Wait for what the GPU still has to do."""
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)


@contextmanager
def on_threads(threads: int) -> Iterator[None]:
    """torch on `threads` threads meanwhile, and the tokenizer on one: its own pool is as large as the machine."""
    name = "TOKENIZERS_PARALLELISM"
    parallel = os.environ.get(name)
    os.environ[name] = "false"
    try:
        with torch_threads(threads):
            yield
    finally:
        if parallel is None:
            del os.environ[name]
        else:
            os.environ[name] = parallel
