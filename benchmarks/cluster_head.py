"""The cluster head that an exported MCR2 student carries: clusters of new sentences at inference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from torch import nn

from distilbench.methods.mcr2 import CLUSTER_HEAD


@dataclass(frozen=True)
class ClusterHead:
    """The head of the student in `folder`: `layer` gives the K cluster logits of the states of its trunk."""

    folder: Path
    layer: nn.Linear
    after: int
    """Modules of the student that follow the trunk."""

    @property
    def clusters(self) -> int:
        """K."""
        return self.layer.out_features

    def states(self, sentences: Sequence[str], prompt: str | None = None) -> NDArray[np.float32]:
        """What the head reads of each sentence, N x D.

        `prompt` comes before every sentence; None is the student's own default.
        """
        model = SentenceTransformer(str(self.folder), device="cpu")
        trunk = SentenceTransformer(modules=list(model)[: -self.after], prompts=model.prompts, device="cpu")
        trunk.max_seq_length, trunk.default_prompt_name = model.max_seq_length, model.default_prompt_name
        return trunk.encode(list(sentences), prompt=prompt, show_progress_bar=False)

    def assign(self, states_ND: NDArray[np.float32]) -> NDArray[np.int64]:
        """The cluster (0 to K - 1) of each row."""
        with torch.inference_mode():
            return self.layer(torch.from_numpy(states_ND)).argmax(dim=-1).numpy()


def load_cluster_head(folder: Path) -> ClusterHead | None:
    """The head of an exported student; None where it has none."""
    if not (folder / CLUSTER_HEAD).is_file():
        return None
    tensors = load_file(folder / CLUSTER_HEAD)
    clusters, width = tensors["weight"].shape
    after, layer = int(tensors.pop("after")), nn.Linear(width, clusters)
    layer.load_state_dict(tensors)
    return ClusterHead(folder, layer, after)
