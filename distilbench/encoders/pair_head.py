"""What scores a pair of embeddings: the head of DSE, its label loss, and an exported student that scores sentence pairs.

Outputs C of a pair task: 1 for regression (the score scaled to [0, 1]), 1 for a binary task (the logit of class 1 minus
that of class 0), 3 logits for three classes. The paper has two outputs for a binary task; cross-entropy depends on their
difference alone, and the released code learns that difference too.

Axes: B pairs, d embedding, C outputs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from distilbench.data.corpus import PairTask
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import encode
from distilbench.errors import InputError
from distilbench.storage.files import atomic_path, write_json

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Kind = Literal["regression", "binary", "three-class"]
HeadKind = Literal["concat", "dot"]

OUTPUTS: dict[Kind, int] = {"regression": 1, "binary": 1, "three-class": 3}

WEIGHTS, DESCRIPTION = "pair_head.safetensors", "pair_head.json"
PAIRS = 4096
"""Scored at once: 4 x d floats each."""


class PairHead(nn.Module):
    """f(u, v), B x C: `concat` w^T ReLU(W [u, v, u*v, |u-v|]) (DSE, equation 3, with biases, as in the released code).

    `dot` is a (u . v) / d + b with a and b learned for each output, a 1 and b 0 at first: the released code's dot product
    and one layer over it. Its three classes are bands of one scale, so it cannot tell any three apart; `concat` can.
    """

    def __init__(self, kind: HeadKind, width: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.kind, self.width, self.hidden, self.outputs = kind, width, hidden, outputs
        if kind == "concat":
            self.inner = nn.Linear(4 * width, hidden)
            self.outer = nn.Linear(hidden, outputs)
        else:
            self.outer = nn.Linear(1, outputs)
            nn.init.ones_(self.outer.weight)
            nn.init.zeros_(self.outer.bias)

    def forward(self, u_Bd: Tensor, v_Bd: Tensor) -> Tensor:
        """Outputs of B pairs, B x C."""
        if self.kind == "dot":
            return self.outer((u_Bd * v_Bd).mean(dim=-1, keepdim=True))
        joined = torch.cat([u_Bd, v_Bd, u_Bd * v_Bd, (u_Bd - v_Bd).abs()], dim=-1)
        return self.outer(functional.relu(self.inner(joined)))


def unit_target(task: PairTask, target_P: NDArray[np.float64]) -> NDArray[np.float32]:
    """What outputs are compared with: gold scores brought from [low, high] to [0, 1]; classes keep their numbers."""
    if task.kind == "regression":
        return ((target_P - task.low) / (task.high - task.low)).astype(np.float32)
    return target_P.astype(np.float32)


def label_loss(output_BC: Tensor, target_B: Tensor, kind: Kind) -> Tensor:
    """Mean over the batch of the loss against the labels (DSE, section 3.5), `target_B` from `unit_target`.

    Squared error for regression, cross-entropy otherwise; with two classes that of (0, output), the same as of two
    outputs that differ by it.
    """
    if kind == "regression":
        return functional.mse_loss(output_BC.squeeze(-1), target_B)
    if kind == "binary":
        return functional.binary_cross_entropy_with_logits(output_BC.squeeze(-1), target_B)
    return functional.cross_entropy(output_BC, target_B.long())


def score_pairs(
    head: PairHead, e_Nd: Tensor, left_P: NDArray[np.int64], right_P: NDArray[np.int64]
) -> NDArray[np.float32]:
    """The head's outputs of P pairs, given by row numbers of N embeddings, P x C."""
    outs = [np.empty((0, head.outputs), dtype=np.float32)]
    with torch.inference_mode():
        for start in range(0, len(left_P), PAIRS):
            u, v = (torch.from_numpy(side[start : start + PAIRS]).to(e_Nd.device) for side in (left_P, right_P))
            outs.append(head(e_Nd[u], e_Nd[v]).float().cpu().numpy())
    return np.concatenate(outs)


def save_pair_head(folder: Path, head: PairHead, task: PairTask) -> None:
    """Write the head and what its outputs mean beside an exported student."""
    from safetensors.torch import save_file

    with atomic_path(folder / WEIGHTS) as temporary:
        save_file({name: p.detach().cpu().contiguous() for name, p in head.named_parameters()}, temporary)
    config = {"head": head.kind, "width": head.width, "hidden": head.hidden, "outputs": head.outputs}
    meaning = {"task": task.name, "kind": task.kind, "classes": task.classes, "low": task.low, "high": task.high}
    write_json(folder / DESCRIPTION, config | meaning)


@dataclass(frozen=True)
class PairScorer:
    """An exported student with its pair head; sentences are embedded once, pairs cost one application of the head."""

    model: SentenceTransformer
    head: PairHead
    task: str

    def embed(self, sentences: Sequence[str]) -> Tensor:
        """Embeddings, N x d, on the model's device."""
        return torch.from_numpy(encode(self.model, sentences)).to(self.model.device)

    def outputs(self, left: Sequence[str], right: Sequence[str]) -> NDArray[np.float32]:
        """The head's outputs of P pairs, P x C; each distinct sentence is embedded once."""
        row_of = {sentence: i for i, sentence in enumerate(dict.fromkeys([*left, *right]))}
        u_P, v_P = (np.array([row_of[s] for s in side], dtype=np.int64) for side in (left, right))
        return score_pairs(self.head, self.embed(list(row_of)), u_P, v_P)


def load_pair_scorer(folder: Path, device: str = "cpu") -> PairScorer:
    """A student that DSE exported, ready to score sentence pairs."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    for name in (DESCRIPTION, WEIGHTS):
        if not (folder / name).is_file():
            raise InputError(f"student {str(folder)!r}: no {name} in it; expected a student that dse exported")
    try:
        config: dict[str, Any] = json.loads((folder / DESCRIPTION).read_text())
        head = PairHead(config["head"], config["width"], config["hidden"], config["outputs"])
        head.load_state_dict(load_file(folder / WEIGHTS))
        task = str(config["task"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"student {str(folder)!r}: its pair head cannot be read: {reason:.200}") from None
    model = EncoderSpec(str(folder)).load(device)
    return PairScorer(model, head.to(device).eval(), task)
