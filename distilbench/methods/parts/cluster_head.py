"""The cluster head of an MCR2 student, saved beside it: clusters of new sentences at inference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from distilbench.errors import InputError

FILE = "cluster_head.safetensors"
AFTER_TRUNK = 2
"""Modules of the exported student that follow the layers which the cluster head reads: features and unit norm."""


def save_cluster_head(folder: Path, logits: nn.Linear) -> None:
    """Write the K x D weight and the K biases into a student's folder."""
    save_file({"weight": logits.weight.detach().cpu().contiguous(), "bias": logits.bias.detach().cpu()}, folder / FILE)


@dataclass(frozen=True)
class ClusterHead:
    """The head of the student in `folder`: weight K x D on the states of its trunk, and K biases."""

    folder: Path
    weight_KD: torch.Tensor
    bias_K: torch.Tensor

    @property
    def clusters(self) -> int:
        """K."""
        return len(self.bias_K)

    def states(self, sentences: Sequence[str], prompt: str | None = None) -> NDArray[np.float32]:
        """What the head reads of each sentence, N x D: the student up to its last two modules.

        `prompt` comes before every sentence; None is the student's own default.
        """
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(self.folder), device="cpu")
        trunk = SentenceTransformer(modules=list(model)[:-AFTER_TRUNK], prompts=model.prompts, device="cpu")
        trunk.max_seq_length, trunk.default_prompt_name = model.max_seq_length, model.default_prompt_name
        return trunk.encode(list(sentences), prompt=prompt, show_progress_bar=False)

    def assign(self, states_ND: NDArray[np.float32]) -> NDArray[np.int64]:
        """The cluster (0 to K - 1) of each row."""
        return (torch.from_numpy(states_ND) @ self.weight_KD.T + self.bias_K).argmax(dim=-1).numpy()


def load_cluster_head(folder: Path) -> ClusterHead:
    """The head that `save_cluster_head` wrote."""
    try:
        tensors = load_file(folder / FILE)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{folder / FILE}: no cluster head ({error}); expected a student exported by mcr2") from None
    return ClusterHead(folder, tensors["weight"], tensors["bias"])


def assign_sentences(folder: Path, sentences: Sequence[str]) -> NDArray[np.int64]:
    """The cluster (0 to K - 1) of each sentence, by the student in `folder`."""
    head = load_cluster_head(folder)
    return head.assign(head.states(sentences))
