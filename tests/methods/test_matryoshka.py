"""Matryoshka: the widths, and a loss that is their mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from distilbench.methods.matryoshka import Matryoshka
from distilbench.methods.parts.losses import info_nce


@pytest.mark.parametrize(
    ("output_dim", "halvings", "widths"),
    [
        (8, 1, (8, 4)),
        (8, 3, (8, 4, 2)),  # 1 is too narrow to rank by
        (50, 2, (50, 25, 12)),  # rounded down
        (256, 3, (256, 128, 64, 32)),
        (1, 3, (1,)),  # the embedding itself always counts
    ],
)
def test_widths(output_dim: int, halvings: int, widths: tuple[int, ...]) -> None:
    assert Matryoshka.widths_of({"output_dim": output_dim, "halvings": halvings}) == widths


def test_loss_is_the_mean_over_the_widths(build: Callable[..., Any]) -> None:
    method = build("matryoshka", halvings=2, tau=0.2).eval()
    index = np.array([4, 0, 9])
    anchor, *others = (torch.from_numpy(method.embed(rows)) for rows in method.prepared.triplets_T3[index].T)
    losses = [info_nce(anchor[:, :w], torch.cat(others)[:, :w], 0.2).item() for w in (8, 4, 2)]
    assert np.ptp(losses) > 0.01
    assert method.loss(index).item() == pytest.approx(np.mean(losses), rel=1e-4)
    whole = build("contrastive", tau=0.2).eval()
    assert whole.loss(index).item() == pytest.approx(losses[0], rel=1e-4)


def test_no_whitening(build: Callable[..., Any]) -> None:
    """It would mix the trained first numbers with the others."""
    with pytest.raises(ValidationError, match="whiten_from"):
        build("matryoshka", whiten_from=16)


def test_a_table_tells_the_width_that_was_trained() -> None:
    assert Matryoshka.variant({"output_dim": 8, "halvings": 2}) == "of 8"
    assert Matryoshka.variant({"output_dim": 8, "halvings": 2, "labelled": "pairs"}) == "pairs, of 8"
