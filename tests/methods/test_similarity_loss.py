"""Similarity matching: the squared difference of the cosines of a batch, alone and as a term."""

from __future__ import annotations

import pytest
import torch

from distilbench.methods.parts.similarity_loss import SimilarityTermParams, similarity_loss, with_similarities


def test_is_the_mean_over_all_pairs() -> None:
    student, target = torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    assert similarity_loss(student, target).item() == pytest.approx(2 / 4)  # 0 instead of 1, in both orders
    assert similarity_loss(target, 5 * target).item() == pytest.approx(0, abs=1e-12)


def test_is_a_term_at_every_width_where_it_has_a_weight() -> None:
    torch.manual_seed(0)
    student, target, loss = torch.randn(6, 4), torch.randn(6, 4), torch.tensor(1.5)
    assert with_similarities(SimilarityTermParams(), loss, student, target, [4]) is loss
    both = [similarity_loss(student[:, :w], target[:, :w]) for w in (4, 2)]
    nested = with_similarities(SimilarityTermParams(similarities=3.0), loss, student, target, [4, 2])
    assert nested.item() == pytest.approx(1.5 + 3 * (both[0] + both[1]).item() / 2)
