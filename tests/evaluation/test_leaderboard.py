"""The parts of the leaderboard that need no sweep: projections, parameter counts, row lookup."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from distilbench.data.corpus import CorpusBuilder
from distilbench.encoder import EncoderSpec
from distilbench.evaluation.leaderboard import count_parameters, evaluation_rows, from_rows, random_projection


def test_random_projection_is_orthonormal_and_seeded() -> None:
    basis = random_projection(48, 10, seed=3)
    assert basis.shape == (48, 10)
    assert basis.T @ basis == pytest.approx(np.eye(10), abs=1e-6)
    assert np.array_equal(basis, random_projection(48, 10, seed=3))
    assert not np.array_equal(basis, random_projection(48, 10, seed=4))


def test_parameters_are_counted_from_the_file_headers(encoder_folder: Path) -> None:
    model = EncoderSpec(str(encoder_folder)).load()
    assert count_parameters(encoder_folder) == sum(p.numel() for p in model.parameters())


def test_rows_are_looked_up_whatever_the_order() -> None:
    builder = CorpusBuilder("test")
    builder.train_on(["not evaluated"])
    builder.add_sts("STSB", "", "test", ["a", "b"], ["c", "a"], [1, 2])
    builder.add_retrieval("r", "dev", ["q"], ["d", "a"], [[1]])
    corpus = builder.build()
    rows = evaluation_rows(corpus)
    assert [corpus.sentences[i] for i in rows] == ["a", "b", "c", "q", "d"]
    vectors = np.arange(len(rows), dtype=np.float32)[:, None]
    assert from_rows(rows, vectors)(rows[[4, 0, 0]])[:, 0].tolist() == [4, 0, 0]
