"""Search from a query's text to its documents (benchmarks/end_to_end.py)."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import numpy as np
import pytest
from samples import in_memory

from distilbench.evaluation.faiss_codes import Code

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import end_to_end

RANDOM = np.random.default_rng(0)
DOCUMENTS_ND = RANDOM.standard_normal((500, 32)).astype(np.float32)
QUERIES_QD = DOCUMENTS_ND[:20] + 0.1 * RANDOM.standard_normal((20, 32)).astype(np.float32)
TEXTS = [f"query {number}" for number in range(len(QUERIES_QD))]


@pytest.fixture(autouse=True)
def vectors_of_texts(monkeypatch) -> None:
    monkeypatch.setattr(
        end_to_end, "read_texts", lambda model, texts, prompt: QUERIES_QD[[TEXTS.index(text) for text in texts]]
    )


@pytest.mark.parametrize("kind", ["float32", "int8", "int4"])
def test_it_finds_what_the_cosine_with_every_decoded_vector_finds(kind) -> None:
    code = None if kind == "float32" else Code.calibrate(kind, DOCUMENTS_ND)
    searcher = end_to_end.over("mine", None, "", code, in_memory(DOCUMENTS_ND))
    decoded_ND = DOCUMENTS_ND if code is None else code.decode(code.encode(DOCUMENTS_ND))
    decoded_ND = decoded_ND / np.linalg.norm(decoded_ND, axis=1, keepdims=True)
    cosine_QN = QUERIES_QD @ decoded_ND.T
    wanted_QR = np.argsort(-cosine_QN, axis=1)[:, : end_to_end.RANKS]
    found_QR = searcher.search(TEXTS)
    shared = [len(set(found) & set(wanted)) for found, wanted in zip(found_QR, wanted_QR, strict=True)]
    assert np.mean(shared) >= 0.95 * end_to_end.RANKS
    assert (found_QR[:, 0] == np.arange(20)).all()
    assert searcher.megabytes == 500 * {"float32": 128, "int8": 32, "int4": 16}[kind] / 1e6


def test_an_index_outlives_the_code_that_it_was_made_with() -> None:
    searcher = end_to_end.over("mine", None, "", Code.calibrate("opq8", DOCUMENTS_ND), in_memory(DOCUMENTS_ND))
    gc.collect()
    held = np.empty((64, 1024))  # where the code's maps were
    held.fill(np.inf)
    vectors_QRD = searcher.index.search_and_reconstruct(QUERIES_QD, end_to_end.RANKS)[2]
    assert np.linalg.norm(vectors_QRD, axis=2).max() < 2


def test_the_table_is_beside_the_first_row() -> None:
    searchers = [end_to_end.over(name, None, "", None, in_memory(DOCUMENTS_ND)) for name in ("same", "same")]
    times = end_to_end.taking_turns(searchers, TEXTS, rounds=2)
    assert len(times) == 2, "two encoders of one name are two"
    for own in times:
        assert {kind: value > 0 for kind, value in own.items()} == {"single_ms": True, "batched_ms": True}
    rows = [
        {"encoder": "teacher", "mrr@10": 80.0, "index_mb": 3.0, "single_ms": 6.0, "batched_ms": 4.0},
        {"encoder": "student", "mrr@10": 76.0, "index_mb": 0.5, "single_ms": 2.0, "batched_ms": 0.5},
    ]
    *_, line = end_to_end.table(rows).splitlines()
    assert [cell.strip() for cell in line.strip("|").split("|")] == (
        ["student", "76.00", "95.0 %", "0.5", "2.00", "3.0", "0.50", "8.0"]
    )
