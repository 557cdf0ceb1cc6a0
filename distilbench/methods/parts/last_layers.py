"""Pooling of the last layers (DSE, section 3.4), out of sentence-transformers' own modules.

A module of our own would do it in a few lines, but since version 6 sentence-transformers loads none without
`trust_remote_code=True`. Made of its own modules, an exported student is loaded by `SentenceTransformer(folder)` with
neither that nor this package.
"""

from __future__ import annotations

import torch
from sentence_transformers.base.modules.dense import Dense
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sentence_transformer.modules import Pooling, WeightedLayerPooling
from torch import nn

from distilbench.errors import InputError

_KEPT = "cls_token_embeddings"
"""What `Pooling` in mode ("cls", "mean") puts before the mean: here the layers pooled so far."""


def last_layers_pooling(transformer: Transformer, layers: int) -> list[nn.Module]:
    """Modules that follow `transformer` and put [mean of layer -layers, ..., mean of the last] in `sentence_embedding`.

    Each mean is over the tokens without CLS and padding. SEP is kept, as in the paper, which leaves out CLS alone, and in
    the released code. A tokenizer without a CLS token loses nothing. B x (layers * D), nothing in it is trained.
    """
    config, width = transformer.model.config, int(transformer.get_embedding_dimension())
    available = int(config.num_hidden_layers)
    if layers > available:
        raise InputError(
            f"pooled_layers is {layers}, but the student has {available} layers; expected at most {available}"
        )
    config.output_hidden_states = True  # kept in the exported config.json
    modules: list[nn.Module] = []
    if transformer.tokenizer.cls_token is not None:
        modules.append(MultiVectorMask([transformer.tokenizer.cls_token], skiplist_tasks=["query", "document"]))
    for i, layer in enumerate(range(available - layers + 1, available + 1)):
        if i:
            modules.append(_renamed(i * width))
        modules.append(_only_layer(layer, available, width))
        # The module's own width is its number of modes times this.
        modules.append(Pooling((i + 1) * width // 2, ("cls", "mean")) if i else Pooling(width, "mean"))
    for module in modules:
        module.requires_grad_(False)
    return modules


def _only_layer(layer: int, available: int, width: int) -> WeightedLayerPooling:
    """Takes the hidden states of one layer: weight 1 for it and 0 for those above, which is exact."""
    weights = torch.zeros(available + 1 - layer)
    weights[0] = 1
    return WeightedLayerPooling(width, available, layer, nn.Parameter(weights))


def _renamed(width: int) -> Dense:
    """Hands `sentence_embedding` on under the name that the next pooling puts first, by an identity matrix."""
    return Dense(width, width, False, nn.Identity(), init_weight=torch.eye(width), module_output_name=_KEPT)
