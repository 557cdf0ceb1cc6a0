"""Latency: a busy machine does not decide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from distilbench.encoders.encoder import EncoderSpec, token_ids
from distilbench.evaluation import cost
from distilbench.evaluation.cost import (
    REFERENCE_WIDTH,
    calm_reference_s,
    read_texts,
    reference_run,
    time_encoder,
)

TEXTS = ["One sentence.", "Another one, of more words than the first.", "A third."] * 30


@pytest.fixture
def model(encoder_folder: Path) -> SentenceTransformer:
    return EncoderSpec(str(encoder_folder)).load()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], float]], None]:
    """`clock(slow)`: a sentence takes 2 ms and the reference 1 ms, times `slow(n)` at the n-th reading of the clock."""

    def tell(slow: Callable[[int], float]) -> None:
        now, readings = [0.0], [0]

        def take(ms: float) -> None:
            now[0] += ms / 1000 * slow(readings[0])
            readings[0] += 1

        def read(model: Any, batch: Any, prompt: str) -> None:
            take(2.0 * len(batch))

        monkeypatch.setattr(cost, "read_texts", read)
        monkeypatch.setattr(cost, "reference_run", lambda: lambda: take(1.0))
        fake = SimpleNamespace(thread_time=lambda: now[0], perf_counter=lambda: now[0])
        monkeypatch.setattr(cost, "time", fake)

    return tell


@pytest.mark.parametrize(
    "slow", [lambda n: 1.0, lambda n: 3.0, lambda n: 1.0 + n / 40, lambda n: 1.0 if n < 80 else 5.0]
)
def test_what_slows_both_changes_nothing(
    clock: Callable[[Callable[[int], float]], None], model: SentenceTransformer, slow: Callable[[int], float]
) -> None:
    clock(slow)
    took = time_encoder(model, None, TEXTS, reference_s=0.001)
    assert took.batched_ms == pytest.approx(2.0, rel=0.05)
    assert took.p50_ms == pytest.approx(2.0, rel=0.1) and took.p95_ms >= took.p50_ms
    assert (took.timed_batched, took.timed_single) == (5 * 90, 5 * 64)


def test_no_texts(model: SentenceTransformer) -> None:
    with pytest.raises(ValueError, match="no sentences"):
        time_encoder(model, None, [], 0.001)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_the_reference_is_real_and_threads_are_put_back(two_threads: None) -> None:
    out = reference_run()()
    assert isinstance(out, torch.Tensor) and out.shape[1] == REFERENCE_WIDTH
    assert calm_reference_s() > 0 and torch.get_num_threads() == 2


def test_what_is_read(model: SentenceTransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch in one pass, padded to its longest, in the order given, the prompt before every sentence."""
    passes: list[tuple[int, ...]] = []
    model.register_forward_pre_hook(lambda _, given: passes.append(tuple(given[0]["input_ids"].shape)))
    ids = token_ids(model, TEXTS[:3], "how do ")
    found = read_texts(model, TEXTS[:3], "how do ")
    assert passes == [(3, max(map(len, ids)))] and found.shape[0] == 3
    seen = list[str]()
    monkeypatch.setattr(cost, "read_texts", lambda model, batch, prompt: seen.extend([prompt, *batch]))
    time_encoder(model, "how do ", TEXTS[:2], reference_s=0.001)
    assert seen[:3] == ["how do ", *TEXTS[:2]]
