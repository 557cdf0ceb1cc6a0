"""How long an encoder takes to embed a sentence, from text to vector on one thread, so that a busy machine does not decide.

A fixed sample of sentences is read in batches of 32 in their order, and one at a time; the tokenizer counts. After each batch
a reference is timed, the same numbers through the same products: what else the machine does slows both, and their ratio
stays. The median ratio of repeated rounds, times what the reference takes on this machine when nothing disturbs it, is the
latency. What counts is the thread's own time, not that on the wall. A static encoder has met the words before, as it has in
use (`encoders.words`).
"""

from __future__ import annotations

import functools
import itertools
import os
import statistics
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from distilbench.encoders.encoder import encode, encode_ids, prompt_of, reads_tokens, token_ids
from distilbench.threads import torch_threads

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

BATCH = 32
SENTENCES, SINGLES = 256, 64
"""Sentences that are read in batches, and one at a time."""
ROUNDS, LEAST_ROUNDS = 5, 3
ENOUGH_S = 20.0
"""Seconds after which no round begins, once there are `LEAST_ROUNDS`."""
REFERENCE_WIDTH, REFERENCE_TOKENS = 384, 128
CALM = 40
"""Runs of the reference, of which the fastest is its time on a calm machine."""
EVERY = 8
"""Single sentences between two runs of the reference."""


class Timing(NamedTuple):
    """Milliseconds of a sentence: `batched_ms` in batches, `p50_ms` and `p95_ms` on its own; how many were timed."""

    batched_ms: float
    p50_ms: float
    p95_ms: float
    timed_batched: int
    timed_single: int


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


def calm_reference_s() -> float:
    """Seconds of a run of the reference while nothing disturbs it: the fastest of `CALM`."""
    run = reference_run()
    with on_threads(1):
        return min(_seconds(run) for _ in range(CALM))


def time_encoder(model: SentenceTransformer, prompt: str | None, texts: Sequence[str], reference_s: float) -> Timing:
    """Time an encoder on the CPU, reading `texts`.

    `reference_s` is what `calm_reference_s` said on this machine.
    """
    if not texts:
        raise ValueError("no sentences, expected at least one to time")
    before, reference = prompt_of(model, prompt), reference_run()
    batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
    singles = list(itertools.islice(itertools.cycle(texts), min(SINGLES, len(texts))))

    def read(batch: Sequence[str]) -> float:
        return _seconds(lambda: read_texts(model, batch, before))

    batched, alone = [], []
    with on_threads(1):
        for batch in batches[:2]:  # what only the first ones do
            read(batch)
        read(singles[:1])
        for _ in _rounds():
            spent = [(read(batch), _seconds(reference)) for batch in batches]
            batched.append(sum(encoder for encoder, _ in spent) / sum(other for _, other in spent))
        for _ in _rounds():
            times, others = [], []
            for place, text in enumerate(singles):
                times.append(read([text]))
                if place % EVERY == 0:
                    others.append(_seconds(reference))
            beside = statistics.fmean(others)
            alone.append([seconds / beside for seconds in times])
    p50, p95 = (statistics.median(float(np.percentile(ratios, q)) for ratios in alone) for q in (50, 95))
    each = len(batches) / len(texts)
    return Timing(
        1000 * statistics.median(batched) * reference_s * each,
        1000 * p50 * reference_s,
        1000 * p95 * reference_s,
        len(texts) * len(batched),
        len(singles) * len(alone),
    )


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


def _rounds() -> Iterator[int]:
    began = time.perf_counter()
    for number in range(ROUNDS):
        if number >= LEAST_ROUNDS and time.perf_counter() - began > ENOUGH_S:
            return
        yield number


def _seconds(run: Callable[[], Any]) -> float:
    """The thread's own time."""
    began = time.thread_time()
    run()
    return time.thread_time() - began
