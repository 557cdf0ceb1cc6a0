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


def save_cluster_head(folder: Path, logits: nn.Linear, after: int) -> None:
    """Write the layer into a student's folder; it reads what the student is before its last modules, `after` of them."""
    tensors = {name: p.detach().cpu().contiguous() for name, p in logits.named_parameters()}
    save_file({**tensors, "after": torch.tensor(after)}, folder / FILE)


@dataclass(frozen=True)
class ClusterHead:
    """The head of the student in `folder`: `layer` gives the K cluster logits of the states of its trunk."""

    folder: Path
    layer: nn.Linear
    after: int

    @property
    def clusters(self) -> int:
        """K."""
        return self.layer.out_features

    def states(self, sentences: Sequence[str], prompt: str | None = None) -> NDArray[np.float32]:
        """What the head reads of each sentence, N x D.

        `prompt` comes before every sentence; None is the student's own default.
        """
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(self.folder), device="cpu")
        trunk = SentenceTransformer(modules=list(model)[: -self.after], prompts=model.prompts, device="cpu")
        trunk.max_seq_length, trunk.default_prompt_name = model.max_seq_length, model.default_prompt_name
        return trunk.encode(list(sentences), prompt=prompt, show_progress_bar=False)

    def assign(self, states_ND: NDArray[np.float32]) -> NDArray[np.int64]:
        """The cluster (0 to K - 1) of each row."""
        with torch.inference_mode():
            return self.layer(torch.from_numpy(states_ND)).argmax(dim=-1).numpy()


def load_cluster_head(folder: Path) -> ClusterHead:
    """The head that `save_cluster_head` wrote."""
    try:
        tensors = load_file(folder / FILE)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{folder / FILE}: no cluster head ({error}); expected a student exported by mcr2") from None
    clusters, width = tensors["weight"].shape
    after, layer = int(tensors.pop("after")), nn.Linear(width, clusters)
    layer.load_state_dict(tensors)
    return ClusterHead(folder, layer, after)


def assign_sentences(folder: Path, sentences: Sequence[str]) -> NDArray[np.int64]:
    """The cluster (0 to K - 1) of each sentence, by the student in `folder`."""
    head = load_cluster_head(folder)
    return head.assign(head.states(sentences))
