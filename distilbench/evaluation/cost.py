"""What an encoder costs to keep and to embed with: its size on disk, its parameters, its latency.

Each shape is measured once on a machine: encoders whose files have the same shapes have the same cost, whatever trained them.

Latency is from text to vector on one thread, and a busy machine does not decide. A fixed sample of sentences is read in
batches of 32 in their order, and one at a time. After each batch a reference is timed: what else the machine does slows both,
and their ratio stays. Of an encoder with layers it is the same numbers through the same products. A static one multiplies
nothing: its time goes to words and to rows of a table, which a busy machine slows less, so its reference looks such up.

The median ratio of the rounds, times what the reference takes on this machine when nothing disturbs it, is the latency.
Rounds are repeated until the ratio is known to 5 %, or told how well it is known. What counts is the thread's own time, not
that on the wall. A static encoder has met the words before, as it has in use (`encoders.words`).
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import statistics
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import nn

from distilbench.encoders.encoder import WEIGHTS, EncoderSpec
from distilbench.encoders.encoding import encode, encode_ids, prompt_of, reads_tokens, token_ids, word_reader
from distilbench.encoders.onnx_graph import Int8Encoder
from distilbench.errors import InputError
from distilbench.machine import torch_threads
from distilbench.records import EncoderCost
from distilbench.storage.files import file_sha256, fingerprint, write_json
from distilbench.storage.store import ArtifactStore

FILE = "cost.json"
STEP_VERSION = 5
NO_CONFIGURATION = "data_config.json"
"""What some older encoders were trained on."""
WEIGHT_SUFFIXES = (".safetensors", ".bin")
BATCH = 32
SENTENCES, SINGLES = 128, 32
"""Sentences that are read in batches, and one at a time."""
LEAST_ROUNDS, ENOUGH_S = 3, 5.0
"""Rounds that there are always, and seconds after which no further one begins."""
KNOWN_TO = 0.05
"""Once the ratio is known so well, no further round begins."""
OF_MEDIAN = 2.46
"""Half of the 95 % interval of a median, in standard errors of the mean: 1.96 sqrt(pi / 2)."""
REFERENCE_WIDTH, REFERENCE_TOKENS = 384, 128
LOOKED_UP, KNOWN_WORDS, TABLE_ROWS = 400, 5_000, 30_000
"""Words of a run of the other reference, among how many, and rows of its table."""
CALM, IN_A_ROW = 300, 30
"""Runs of each reference, of which the fastest is its time on a calm machine: a second. Of 40 in a row all may be slow."""
EVERY = 8
"""Single sentences between two runs of the reference."""


class CostBench:
    """Measures encoders on the same sentences, on one thread of the CPU; what the store has is not measured again."""

    def __init__(self, sentences: Sequence[str], store: ArtifactStore) -> None:
        """Take a sample of `sentences`, evenly spread over them."""
        chosen = np.linspace(0, len(sentences) - 1, min(SENTENCES, len(sentences))).astype(int)
        self.texts, self.store = [sentences[i] for i in chosen], store
        self.machine = this_processor()
        parts = {"machine": self.machine, "step_version": STEP_VERSION}

        def make(folder: Path, missing: list[str]) -> None:
            write_json(folder / FILE, calm_references_s())

        calm = store.build("reference", parts, [FILE], make)
        self.reference_s: dict[str, float] = json.loads((calm / FILE).read_text())

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
            times = time_encoder(model, spec.prompt_before(), self.texts, self.reference_s[reference_of(model)])
            write_json(folder / FILE, {**encoder_size(spec, model), **times, "threads": 1, "device": "cpu"})

        built = self.store.build("cost", parts, [FILE], make)
        return EncoderCost.model_validate_json((built / FILE).read_bytes())


def encoder_size(spec: EncoderSpec, model: SentenceTransformer) -> dict[str, int]:
    """The sizes of an `EncoderCost`, of the encoder that is loaded as `model`: the hub's cache has it, where it is in no
    folder."""
    from huggingface_hub import snapshot_download

    count = sum(p.numel() for p in model.parameters())
    folder = spec.folder() or Path(snapshot_download(spec.name, revision=spec.revision, local_files_only=True))
    files, graph = needed_files(folder, model.tokenizer), 0
    if isinstance(model.forward, Int8Encoder):
        files, graph = [path for path in files if path.suffix not in WEIGHT_SUFFIXES], len(model.forward.graph)
    on_disk = graph + sum(path.stat().st_size for path in files)
    return {"parameters_without_embeddings": count - embedding_parameters(model), "bytes_on_disk": on_disk}


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
    if first is None or first.suffix != ".json":
        return {first} if first else set()
    return {first, *(place / name for name in json.loads(first.read_text())["weight_map"].values())}


def shape_of(folder: Path) -> dict[str, Any]:
    """What decides the cost of a saved encoder: its files, of weights the shapes and types alone."""
    shape: dict[str, Any] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = str(path.relative_to(folder))
        if path.suffix == ".safetensors":
            with safe_open(path, "np") as file:
                tensors = {key: file.get_slice(key) for key in file.keys()}
                shape[name] = {key: [tensor.get_dtype(), tensor.get_shape()] for key, tensor in tensors.items()}
        elif path.name == "tokenizer.json":
            shape[name] = file_sha256(path)
        elif path.suffix == ".json":
            shape[name] = path.stat().st_size
    return shape


@functools.cache
def this_processor() -> dict[str, str]:
    """What latencies are of: the processor and the version of torch."""
    name = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = (line.partition(":") for line in cpuinfo.read_text().splitlines())
        name = next((value.strip() for key, _, value in lines if key.strip() == "model name"), "")
    return {"processor": name or sysconfig.get_platform(), "torch": torch.__version__}


def reference_run() -> Callable[[], object]:
    """What is timed beside an encoder: the same numbers through the same layer, every time."""
    generator = torch.Generator().manual_seed(0)
    weight_DD = torch.randn((REFERENCE_WIDTH, REFERENCE_WIDTH), generator=generator) / REFERENCE_WIDTH**0.5
    x_TD = torch.randn((REFERENCE_TOKENS, REFERENCE_WIDTH), generator=generator)

    def run() -> object:
        with torch.inference_mode():
            y_TD = x_TD
            for _ in range(6):  # as many products as a layer of a transformer has
                y_TD = nn.functional.gelu(y_TD @ weight_DD)
                y_TD = nn.functional.layer_norm(y_TD, (REFERENCE_WIDTH,))
            return torch.softmax(y_TD @ y_TD.T, dim=-1) @ y_TD

    return run


def reference_lookups() -> Callable[[], object]:
    """What is timed beside a static encoder: the same words, and other rows of a table every time."""
    generator = torch.Generator().manual_seed(0)
    table_VD = torch.randn((TABLE_ROWS, REFERENCE_WIDTH), generator=generator)
    rows = itertools.cycle([torch.randint(TABLE_ROWS, (LOOKED_UP,), generator=generator) for _ in range(8)])
    begin = torch.arange(0, LOOKED_UP, LOOKED_UP // BATCH)
    text = " ".join(f"word{7919 * i % KNOWN_WORDS}" for i in range(LOOKED_UP))
    number = {f"word{i}": i for i in range(KNOWN_WORDS)}

    def run() -> object:
        _ = np.fromiter(map(number.__getitem__, text.split(" ")), dtype=np.int64, count=LOOKED_UP)
        with torch.inference_mode():
            return nn.functional.embedding_bag(next(rows), table_VD, begin)

    return run


REFERENCES = {"products": reference_run, "lookups": reference_lookups}


def reference_of(model: SentenceTransformer) -> str:
    """The name of the reference that an encoder is timed beside."""
    return "lookups" if isinstance(model[0], StaticEmbedding) else "products"


def calm_references_s() -> dict[str, float]:
    """Seconds of a run of each reference while nothing disturbs it: the fastest of `CALM`."""
    runs = {name: made() for name, made in REFERENCES.items()}
    with on_threads(1):
        turns = [
            {name: min(_seconds(run) for _ in range(IN_A_ROW)) for name, run in runs.items()}
            for _ in range(CALM // IN_A_ROW)
        ]
    return {name: min(turn[name] for turn in turns) for name in runs}


def time_encoder(
    model: SentenceTransformer, prompt: str | None, texts: Sequence[str], reference_s: float
) -> dict[str, float]:
    """The times of an `EncoderCost`, of an encoder that reads `texts` on the CPU.

    `reference_s` is what `calm_references_s` said on this machine.
    """
    if not texts:
        raise ValueError("no sentences, expected at least one to time")
    before, reference = prompt_of(model, prompt), REFERENCES[reference_of(model)]()
    batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
    singles = list(itertools.islice(itertools.cycle(texts), min(SINGLES, len(texts))))

    def read(batch: Sequence[str]) -> float:
        return _seconds(lambda: read_texts(model, batch, before))

    def tokenised(batch: Sequence[str]) -> float:
        return _seconds(lambda: tokenise(model, batch, before))

    def in_batches() -> NDArray[np.float64]:
        read_s, other_s, tokens_s = np.sum([(read(b), _seconds(reference), tokenised(b)) for b in batches], axis=0)
        return np.array([read_s / other_s, tokens_s / read_s])

    def one_by_one() -> NDArray[np.float64]:
        times, others = [], []
        for place, text in enumerate(singles):
            times.append(read([text]))
            if place % EVERY == 0:
                others.append(_seconds(reference))
        return np.percentile(times, (50, 95)) / statistics.fmean(others)

    with on_threads(1):
        for batch in batches[:2]:  # what only the first ones do
            read(batch)
        read(singles[:1])
        batched, alone = _repeated(in_batches), _repeated(one_by_one)
    p50, p95 = np.median(alone, axis=0) * reference_s
    return {
        "sentences_per_second_1": float(1 / p50),
        "sentences_per_second_32": len(texts) / (float(np.median(batched[:, 0])) * reference_s * len(batches)),
        "p50_ms": float(1000 * p50),
        "p95_ms": float(1000 * p95),
        "timed_1": len(singles) * len(alone),
        "timed_32": len(texts) * len(batched),
        "spread": max(_spread(batched[:, 0]), _spread(alone[:, 0])),
        "tokenising": min(1.0, float(np.median(batched[:, 1]))),
    }


def tokenise(model: SentenceTransformer, batch: Sequence[str], prompt: str) -> None:
    """Turn the sentences into token ids, as `read_texts` does before anything else."""
    reader = word_reader(model)
    if reader is not None:
        reader.ids([prompt + text for text in batch])
    elif reads_tokens(model):
        token_ids(model, batch, prompt)
    else:
        model.preprocess([prompt + text for text in batch])


def read_texts(model: SentenceTransformer, batch: Sequence[str], prompt: str) -> NDArray[np.float32]:
    """Embed the sentences, all in one padded batch."""
    if not reads_tokens(model):
        return encode(model, batch, prompt=prompt)
    ids = token_ids(model, batch, prompt)
    return encode_ids(model, ids, len(ids) * max(len(row) for row in ids))


@contextmanager
def on_threads(threads: int) -> Iterator[None]:
    """Run torch on `threads` threads, and the tokenizer on one: its own pool is as large as the machine."""
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


def _repeated(measure: Callable[[], NDArray[np.float64]]) -> NDArray[np.float64]:
    """What rounds of `measure` say, a row each, until the first number is known to `KNOWN_TO` or time is over."""
    began, found = time.perf_counter(), list[NDArray[np.float64]]()
    while True:
        found.append(measure())
        if len(found) >= LEAST_ROUNDS:
            rounds = np.array(found)
            if _spread(rounds[:, 0]) < KNOWN_TO or time.perf_counter() - began > ENOUGH_S:
                return rounds


def _spread(ratios: NDArray[np.float64]) -> float:
    """Half of the 95 % interval of the median, as a share of it."""
    return float(OF_MEDIAN * ratios.std(ddof=1) / len(ratios) ** 0.5 / np.median(ratios))


def _seconds(run: Callable[[], Any]) -> float:
    """The thread's own time."""
    began = time.thread_time()
    run()
    return time.thread_time() - began
