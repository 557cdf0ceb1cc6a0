"""Latency: what is timed, how often, on how many threads, and that nothing is left changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from distilbench.methods.parts.encoder_method import EncoderMethod
from distilbench.prepare.prepared import Prepared, load_prepared
from distilbench.trials import latency as module
from distilbench.trials.latency import encoder_latency, encoding_latency, head_latency, latency_rows, teacher_latency
from distilbench.trials.rung_training import build_method

pytestmark = pytest.mark.slow

MSE: dict[str, Any] = {"output_dim": 32, "lr": 0.003, "batch_size": 16}


@pytest.fixture(scope="module")
def prepared(prepared_folder: Path) -> Prepared:
    return load_prepared(prepared_folder)


@pytest.fixture(scope="module")
def sentences(prepared_folder: Path) -> list[str]:
    return (prepared_folder / "sentences.txt").read_text().split("\n")


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[float]], None]:
    """`clock(seconds)`: the timed runs take these seconds, one after the other."""

    def tell(seconds: list[float]) -> None:
        ticks = iter([tick for length in seconds for tick in (0.0, length)])
        monkeypatch.setattr(module, "time", SimpleNamespace(thread_time=lambda: next(ticks)))

    return tell


def test_rows_are_the_dev_sets_own(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    every = np.unique(np.concatenate([side for s in prepared.dev for side in (s.left_P, s.right_P)]))
    np.testing.assert_array_equal(latency_rows(prepared), every)
    monkeypatch.setattr(module, "SENTENCES", 7)
    few = latency_rows(prepared)
    assert len(set(few.tolist())) == 7 and {few[0], few[-1]} == {every[0], every[-1]}
    assert set(few.tolist()) <= set(every.tolist())


def test_an_encoder_is_timed_on_one_thread_after_a_warm_up(
    prepared: Prepared, two_threads: None, clock: Callable[[list[float]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    method = build_method("mse", MSE, prepared, 0, "cpu")
    method.train()
    runs = []
    encode = EncoderMethod.encode

    def seen(self: EncoderMethod, rows: Any) -> Any:
        runs.append((torch.get_num_threads(), len(rows)))
        return encode(self, rows)

    monkeypatch.setattr(EncoderMethod, "encode", seen)
    clock([0.4, 0.1, 0.2])
    count = len(latency_rows(prepared))
    assert encoding_latency(method, prepared) == pytest.approx(200 / count)  # the median, in ms
    assert runs == [(1, count)] * 4
    assert torch.get_num_threads() == 2 and method.training


def test_threads_are_restored_when_it_fails(
    prepared: Prepared, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = build_method("mse", MSE, prepared, 0, "cpu")

    def broken(self: EncoderMethod, rows: Any) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(EncoderMethod, "encode", broken)
    with pytest.raises(RuntimeError, match="out of memory"):
        encoder_latency(method, prepared)
    assert torch.get_num_threads() == 2


def test_vectors_kept_by_a_method_are_not_what_is_timed(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    """DSE on a frozen student overrides `encode` with a look-up."""
    method = build_method("mse", MSE, prepared, 0, "cpu")
    monkeypatch.setattr(type(method), "encode", lambda self, rows: pytest.fail("looked up"), raising=False)
    assert encoder_latency(method, prepared) > 0


def test_a_head_takes_what_the_teacher_takes_and_its_own(
    prepared: Prepared, two_threads: None, clock: Callable[[list[float]], None]
) -> None:
    method = build_method("pca", {"output_dim": 8}, prepared, 0, "cpu")
    count = len(latency_rows(prepared))
    clock([0.3, 0.1, 0.2])
    assert encoding_latency(method, prepared, teacher_ms=5.0) == pytest.approx(5.0 + 200 / count)
    clock([0.1] * 3)
    assert head_latency(method, prepared, 0.0) == pytest.approx(100 / count)
    with pytest.raises(ValueError, match="its latency needs the teacher's"):
        encoding_latency(method, prepared)


def test_the_teacher_reads_the_same_sentences_with_its_prompt(
    prepared: Prepared, sentences: list[str], two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    encode_ids = module.encode_ids

    def seen(model: Any, ids: Any, budget: int) -> Any:
        runs.append((torch.get_num_threads(), ids, encode_ids(model, ids, budget)))
        return runs[-1][-1]

    monkeypatch.setattr(module, "encode_ids", seen)
    rows = latency_rows(prepared)
    assert teacher_latency(prepared, sentences) > 0
    assert [threads for threads, _, _ in runs] == [1] * 4 and torch.get_num_threads() == 2
    np.testing.assert_allclose(runs[0][2], prepared.vectors.take(rows), atol=2e-3)  # stored in float16
    plain = [len(ids) for ids in runs[0][1]]
    runs.clear()
    prompted = replace(prepared, teacher=replace(prepared.teacher, prompt="how do "))
    teacher_latency(prompted, sentences)
    assert [len(ids) for ids in runs[0][1]] == [length + 2 for length in plain]


def test_time_that_others_take_is_not_counted(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    method = build_method("mse", MSE, prepared, 0, "cpu")
    encode = EncoderMethod.encode

    def waits(self: EncoderMethod, rows: Any) -> Any:
        time.sleep(0.5)
        return encode(self, rows)

    monkeypatch.setattr(EncoderMethod, "encode", waits)
    assert encoder_latency(method, prepared) * len(latency_rows(prepared)) < 400


def test_more_layers_take_longer(prepared: Prepared) -> None:
    deep, shallow = (replace(prepared, student=f"layers:{layers}") for layers in ("0,1,2,3", "0"))
    times = [encoder_latency(build_method("mse", MSE, p, 0, "cpu"), p) for p in (deep, shallow)]
    assert times[0] > times[1] > 0
