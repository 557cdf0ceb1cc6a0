"""How long a student takes to embed a sentence: milliseconds from its token ids, in batches, on one thread.

Measured on a fixed sample of the dev sentences, on the device that the method is on; the sentences are sorted by length and
read in batches of up to `TOKENS_PER_BATCH` padded tokens, teacher and student alike. Tokenising is not counted: it is the
same for a student that is made of the teacher's layers, and small beside the encoder.

On a CPU the thread's own time counts, not that on the wall, since trials run side by side: while others had the two cores of
a machine, 16 runs with all-MiniLM-L6-v2 took 5.8 to 24.9 ms a sentence on the wall and 4.6 to 6.1 of the thread's (alone 4.7
to 5.1 of both).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

from distilbench.encoders.encoder import TOKENS_PER_BATCH, default_device, encode_ids, prompt_of, token_ids
from distilbench.methods.method import Method
from distilbench.methods.parts.encoder_method import EncoderMethod
from distilbench.prepare.prepared import Prepared

SENTENCES = 256
REPEATS = 3
"""Timed runs, of which the median is taken, after one that is not timed."""


def encoding_latency(method: Method, prepared: Prepared, teacher_ms: float | None = None) -> float:
    """ms to embed one sentence with the method as it is now; `teacher_ms` is what `teacher_latency` said.

    Raises:
        ValueError: the method is a head on the teacher, and `teacher_ms` is None.
    """
    if isinstance(method, EncoderMethod):
        return encoder_latency(method, prepared)
    if teacher_ms is None:
        raise ValueError(f"{method.title} reads the teacher's embeddings: its latency needs the teacher's")
    return head_latency(method, prepared, teacher_ms)


def encoder_latency(method: EncoderMethod, prepared: Prepared) -> float:
    """ms for one sentence, from token ids through student, pooling and projection; whitening after them is not counted."""
    rows = latency_rows(prepared)
    # The base class's own: a method on a frozen student (DSE) keeps what the student gave, and would only be looked up.
    return _ms_each(lambda: EncoderMethod.encode(method, rows), len(rows), method.device)


def head_latency(method: Method, prepared: Prepared, teacher_ms: float) -> float:
    """ms for one sentence: the teacher's, and the head's on its embeddings (reading them from disk included)."""
    rows = latency_rows(prepared)
    return teacher_ms + _ms_each(lambda: method.embed(rows), len(rows), method.device)


def teacher_latency(prepared: Prepared, sentences: Sequence[str]) -> float:
    """ms for one sentence of the teacher itself, which is loaded for it; `sentences` are the corpus's, by row.

    Raises:
        InputError: the teacher cannot be loaded.
    """
    device = default_device()
    model = prepared.teacher.load(device)
    read = [sentences[int(row)] for row in latency_rows(prepared)]
    ids = token_ids(model, read, prompt_of(model, prepared.teacher.prompt_before()))
    return _ms_each(lambda: encode_ids(model, ids, TOKENS_PER_BATCH[device]), len(ids), device)


def latency_rows(prepared: Prepared) -> NDArray[np.int64]:
    """The rows that are timed: all distinct ones of the dev sets, or `SENTENCES` of them, evenly spread."""
    rows = prepared.selection.rows
    return rows[np.linspace(0, len(rows) - 1, min(SENTENCES, len(rows))).astype(np.int64)]


def _ms_each(run: Callable[[], object], count: int, device: str) -> float:
    """Median milliseconds of a run, for each of the `count` sentences in it."""
    now = time.thread_time if torch.device(device).type == "cpu" else time.perf_counter
    seconds = []
    with _one_thread():
        run()
        for _ in range(REPEATS):
            began = now()
            run()
            seconds.append(now() - began)
    return 1000 * statistics.median(seconds) / count


@contextmanager
def _one_thread() -> Iterator[None]:
    """torch on one thread meanwhile."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
