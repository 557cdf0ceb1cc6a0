"""The cluster head of an MCR2 student, saved beside it: clusters of new sentences at inference."""

from __future__ import annotations

from collections.abc import Sequence
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


def assign_sentences(folder: Path, sentences: Sequence[str]) -> NDArray[np.int64]:
    """The cluster (0 to K - 1) of each sentence, by the student in `folder`.

    Raises:
        InputError: the folder has no readable cluster head.
    """
    try:
        kept = load_file(folder / FILE)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{folder / FILE}: no cluster head ({error}); expected a student exported by mcr2") from None
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    trunk = SentenceTransformer(modules=list(model)[:-AFTER_TRUNK], prompts=model.prompts, device="cpu")
    trunk.max_seq_length, trunk.default_prompt_name = model.max_seq_length, model.default_prompt_name
    hidden_ND = torch.from_numpy(trunk.encode(list(sentences)))
    return (hidden_ND @ kept["weight"].T + kept["bias"]).argmax(dim=-1).numpy()
