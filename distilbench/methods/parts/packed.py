"""A batch read without padding: its sentences one after the other, each token through the same layers as in a padded batch.

What treats a token alone (linear layers, LayerNorm, GELU) runs over all tokens at once. On a CPU attention runs over the
sentences of one length at a time, without a mask: on one thread a step over 64 real sentences takes 0.75 to 0.78 times as
long as in padded parts of similar length. packed_device.py does it on a GPU. transformers calls the function for
attention that is registered here.

Axes: B sentences, T tokens of all of them, D width, H heads, W width of a head, n sentences of one length L.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface

from distilbench.methods.parts.losses import full_precision

PACKED_TOKENS = 2048
"""Tokens of one forward pass. More are no faster."""

ATTENTION = "sentences_end_to_end"
FIRST_POSITION_0 = {"bert", "distilbert", "electra"}
FIRST_POSITION_AFTER_PADDING = {"roberta", "xlm-roberta", "camembert"}
"""Model types of transformers whose attention can be replaced, by the number of a sentence's first position."""


def can_pack(student: SentenceTransformer) -> bool:
    """Whether `student` is an encoder of a known architecture with mean pooling, and no dropout acts.

    Dropout draws other numbers for other shapes, so that a training with it would not be reproduced.
    """
    if student.training or len(student) != 2:
        return False
    pooling, config = student[1], getattr(getattr(student[0], "model", None), "config", None)
    if not isinstance(pooling, Pooling) or tuple(np.atleast_1d(pooling.pooling_mode)) != ("mean",):
        return False
    known_type = getattr(config, "model_type", "") in FIRST_POSITION_0 | FIRST_POSITION_AFTER_PADDING
    return known_type and not getattr(config, "is_decoder", False)


def first_position(model: nn.Module) -> int:
    """The number of a sentence's first position in a model that `can_pack` knows."""
    config: Any = model.config
    return 0 if config.model_type in FIRST_POSITION_0 else int(config.pad_token_id) + 1


def filled_parts(lengths: NDArray[np.int64], budget: int) -> list[NDArray[np.int64]]:
    """Positions in parts of at most `budget` tokens, or of one sentence, each sorted by length."""
    order = np.argsort(lengths, kind="stable")
    ends = np.cumsum(lengths[order])
    parts, start = [], 0
    while start < len(order):
        used = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, used + budget, side="right")))
        parts.append(order[start:stop])
        start = stop
    return parts


def packed(ids: Sequence[NDArray[np.int32]]) -> dict[str, Tensor]:
    """`input_ids` and `position_ids` (from 0), 1 x T, and the `lengths` of the sentences, which must not fall."""
    lengths = np.array([len(row) for row in ids], dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    positions_T = np.arange(lengths.sum()) - np.repeat(starts, lengths)
    return {
        "input_ids": torch.from_numpy(np.concatenate(ids).astype(np.int64))[None],
        "position_ids": torch.from_numpy(positions_T)[None],
        "lengths": torch.from_numpy(lengths),
    }


def packed_means(student: SentenceTransformer, part: dict[str, Tensor]) -> Tensor:
    """The mean-pooled states of the sentences in `packed`, B x D, as a padded batch gives them."""
    model = student[0].model
    first = first_position(model)
    length_G, count_G = (t.tolist() for t in torch.unique_consecutive(part["lengths"], return_counts=True))
    groups = list(zip(count_G, length_G, strict=True))
    with attention_of(model, ATTENTION):
        states_1TD = model(
            input_ids=part["input_ids"], position_ids=part["position_ids"] + first, sentences_of_one_length=groups
        ).last_hidden_state
    return torch.cat([states_nLD.mean(dim=1) for states_nLD in _by_length(states_1TD[0], groups)])


@contextmanager
def attention_of(model: nn.Module, name: str) -> Iterator[None]:
    """Have a transformer call the registered attention `name`."""
    config: Any = model.config
    before = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = before


def _by_length(all_T: Tensor, groups: list[tuple[int, int]]) -> list[Tensor]:
    """Views n x L x ... of T x ..."""
    parts = torch.split(all_T, [n * length for n, length in groups])
    return [torch.unflatten(part, 0, group) for part, group in zip(parts, groups, strict=True)]


def _packed_attention(  # noqa: PLR0913 - as transformers calls it
    module: nn.Module,
    query_1HTW: Tensor,
    key_1HTW: Tensor,
    value_1HTW: Tensor,
    attention_mask: Tensor | None,
    *,
    sentences_of_one_length: list[tuple[int, int]],
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention within each sentence, 1 x T x H x W, in float32.

    In bfloat16 torch 2.13 takes five times as long for its gradient on a CPU.
    """
    whole = (t[0].float().transpose(0, 1) for t in (query_1HTW, key_1HTW, value_1HTW))
    views = (_by_length(t_THW, sentences_of_one_length) for t_THW in whole)
    outs = []
    with full_precision(query_1HTW):
        for group in zip(*views, strict=True):
            q_nHLW, k_nHLW, v_nHLW = (t_nLHW.transpose(1, 2) for t_nLHW in group)
            outs.append(functional.scaled_dot_product_attention(q_nHLW, k_nHLW, v_nHLW, scale=scaling))
    return torch.cat([out_nHLW.transpose(1, 2).flatten(0, 1) for out_nHLW in outs])[None], None


AttentionInterface.register(ATTENTION, _packed_attention)
