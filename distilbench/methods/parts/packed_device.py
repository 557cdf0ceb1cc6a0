"""A batch read without padding on a GPU, from token ids that lie there: all shapes depend on the number of tokens alone.

So a step can be replayed as a CUDA graph (training/replay.py). The tokens of a batch are filled up to one of few numbers;
what fills them is one more sentence, which no other sees and whose states are dropped.

Axes: B sentences, T tokens of all of them and what fills them, D width, H heads, W width of a head.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface

from distilbench.methods.parts.losses import full_precision
from distilbench.methods.parts.packed import attention_of, first_position
from distilbench.prepare.tokens import Tokens

ATTENTION = "sentences_end_to_end_by_varlen"
LEAST_STEP = 256
"""Numbers of tokens are multiples of this, and from 4,096 tokens on of an eighth to a sixteenth of them."""


def filled_tokens(count: int) -> int:
    """The number of tokens that a batch of `count` is filled up to, so that few different ones come."""
    step = max(LEAST_STEP, 2 ** (count.bit_length() - 1) // 8)
    return -(-count // step) * step


class DeviceTokens:
    """The token ids of all sentences on a device, and the student's states of any of them."""

    def __init__(self, tokens: Tokens, pad: int, device: str) -> None:
        self.pad, self.longest = pad, int(np.diff(tokens.offsets).max(initial=1))
        self.ids = torch.from_numpy(np.array(tokens.ids)).to(device)
        self.offsets = torch.from_numpy(np.array(tokens.offsets)).to(device)

    def means(self, student: SentenceTransformer, rows_B: Tensor, tokens: int, with_embeddings: bool = False) -> Tensor:
        """The mean-pooled last states of sentences, B x D, filled up to so many `tokens`.

        Before them, side by side, come those of the embedding layer where they are asked for.
        """
        model, count = student[0].model, len(rows_B)
        start_B = self.offsets[rows_B]
        length_B = self.offsets[rows_B + 1] - start_B
        end_B = length_B.cumsum(0)
        place_T = torch.arange(tokens, device=rows_B.device)
        sentence_T = torch.searchsorted(end_B, place_T, right=True)  # B: the one that fills
        none = start_B.new_zeros(1)
        begin_F = torch.cat([none, end_B])
        real_T = sentence_T < count
        position_T = torch.where(real_T, place_T - begin_F[sentence_T], 0)
        source_T = torch.where(real_T, torch.cat([start_B, none])[sentence_T] + position_T, 0)
        id_T = torch.where(real_T, self.ids[source_T].long(), self.pad)
        bounds_F = torch.cat([begin_F, none + tokens]).int()
        longest = max(self.longest, LEAST_STEP, tokens // 8)  # or the sentence of padding that fills the batch
        with attention_of(model, ATTENTION):
            states = model(
                input_ids=id_T[None],
                position_ids=position_T[None] + first_position(model),
                output_hidden_states=with_embeddings,
                sentence_bounds=(bounds_F, longest),
            )
        # A product with the shares of tokens in means, in float32: a sum by index is in another order each time.
        share_BT = (sentence_T == torch.arange(count, device=rows_B.device)[:, None]) / length_B[:, None]
        wanted = [*([states.hidden_states[0]] if with_embeddings else []), states.last_hidden_state]
        with full_precision(share_BT):
            return torch.cat([share_BT @ state_1TD[0].float() for state_1TD in wanted], dim=-1)


def _varlen_attention(  # noqa: PLR0913 - as transformers calls it
    module: nn.Module,
    query_1HTW: Tensor,
    key_1HTW: Tensor,
    value_1HTW: Tensor,
    attention_mask: Tensor | None,
    *,
    sentence_bounds: tuple[Tensor, int],
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention within each sentence, 1 x T x H x W; on a CPU by a mask, which tests compare with."""
    bounds_F, longest = sentence_bounds
    width = query_1HTW.shape[-1]
    if scaling is not None and not math.isclose(scaling, width**-0.5):
        query_1HTW = query_1HTW * (scaling * width**0.5)  # the kernel divides by the root of the width
    if query_1HTW.is_cuda:
        from torch.nn.attention.varlen import varlen_attn

        q_THW, k_THW, v_THW = (t[0].transpose(0, 1).contiguous() for t in (query_1HTW, key_1HTW, value_1HTW))
        out_THW = cast(Tensor, varlen_attn(q_THW, k_THW, v_THW, bounds_F, bounds_F, longest, longest))
        return out_THW[None], None
    sentence_T = torch.searchsorted(bounds_F[1:], torch.arange(query_1HTW.shape[2]), right=True)
    mask_TT = sentence_T == sentence_T[:, None]
    out_1HTW = functional.scaled_dot_product_attention(query_1HTW, key_1HTW, value_1HTW, attn_mask=mask_TT)
    return out_1HTW.transpose(1, 2), None


AttentionInterface.register(ATTENTION, _varlen_attention)
