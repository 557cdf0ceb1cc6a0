"""The layers of any transformer that is a chain of alike layers: finding them, and keeping some; and its embeddings, which
can stand for the layers that are left out before the first.

BERT, RoBERTa, ELECTRA and MPNet keep them as `encoder.layer`, DistilBERT as `transformer.layer`, ModernBERT and decoders
such as Qwen3 as `layers`; all of them are a `ModuleList` as long as the configuration says.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from distilbench.errors import InputError


class LayerList:
    """Where a model keeps its layers; `layers` are all of them, in their order."""

    def __init__(self, model: nn.Module, what: str) -> None:
        count = int(getattr(model.config, "num_hidden_layers", None) or 0)
        name = _list_name(model, count)
        if name is None:
            raise InputError(
                f"{what}: the encoder is a {type(model).__name__}, whose layers cannot be told apart; expected one list of "
                f"layers with the same parameters, as BERT, MPNet, DistilBERT, ModernBERT and Qwen3 have"
            )
        parent, _, self._attribute = name.rpartition(".")
        self._parent = model.get_submodule(parent)
        config: Any = model.config
        self.config = config
        self.layers: list[nn.Module] = list(getattr(self._parent, self._attribute))
        self._settings = {  # of each layer, such as `layer_types`
            name: value
            for name, value in config.to_dict().items()
            if "layer" in name and isinstance(value, list | tuple) and len(value) == count
        }

    def keep(self, indices: Sequence[int]) -> None:
        """Have the model run the layers at `indices` alone, also by its configuration, so that it loads as it was saved; it
        may be called again, for other layers."""
        layers = [self._first(indices[0]), *(self.layers[i] for i in indices[1:])]
        for name, values in self._settings.items():
            setattr(self.config, name, [values[i] for i in indices])
        for new, layer in enumerate(layers):
            for part in layer.modules():
                if isinstance(getattr(part, "layer_idx", None), int):
                    part.layer_idx = new  # type: ignore[assignment]
        self.config.num_hidden_layers = len(indices)
        setattr(self._parent, self._attribute, nn.ModuleList(layers))

    def _first(self, index: int) -> nn.Module:
        """Layer `index` as the first one of a chain, with the same parameters.

        ModernBERT normalises the input of each layer but the first, whose input is normalised by the embeddings. A first
        layer with that norm would lose it when the model is saved and loaded.
        """
        layer, model = self.layers[index], self.layers[0]
        absent = [name for name, part in model.named_children() if isinstance(part, nn.Identity)]
        if not absent or all(isinstance(getattr(layer, name), nn.Identity) for name in absent):
            return layer
        layer = copy.copy(layer)
        layer._modules = dict(layer._modules)
        for name in absent:
            setattr(layer, name, nn.Identity())
        return layer


def _list_name(model: nn.Module, count: int) -> str | None:
    """The outermost list of `count` layers with the same parameters; None where there is none, or more than one."""
    lists: list[tuple[int, str, nn.ModuleList]] = []
    for name, part in model.named_modules():
        if isinstance(part, nn.ModuleList) and len(part) == count and len({type(layer) for layer in part}) == 1:
            lists.append((name.count("."), name, part))
    outermost = [(name, part) for depth, name, part in lists if depth == min(depth for depth, _, _ in lists)]
    if len(outermost) != 1:
        return None
    [(name, layers)] = outermost
    return name if all(_alike(layers[0], layer) for layer in layers) else None


def _alike(first: nn.Module, layer: nn.Module) -> bool:
    """Whether two layers have parameters of the same names and shapes, but for a part that the first one goes without."""
    absent = tuple(f"{name}." for name, part in first.named_children() if isinstance(part, nn.Identity))
    shapes = [{n: p.shape for n, p in one.state_dict().items()} for one in (first, layer)]
    return shapes[0] == {n: s for n, s in shapes[1].items() if not (absent and n.startswith(absent))}


class TokenStates(NamedTuple):
    """Mean states of tokens after some layers, U x D; and of the tokens that sentences have, the mean and the deviation."""

    states_UD: NDArray[np.float32]
    mean_D: NDArray[np.float32]
    deviation_D: NDArray[np.float32]


class InputEmbeddings:
    """What a model's first layer reads: a vector of each token, normalised after those of its place and segment are added.

    A layer from the middle of a model has only ever read states of the layer before. Where each token's vector is its mean
    state there, the layer reads what it is used to, but for the context. Axes: U tokens, D width.
    """

    def __init__(self, table: nn.Embedding, norm: nn.LayerNorm, others: Sequence[nn.Embedding]) -> None:
        self.table, self.norm, self.others = table, norm, others
        self.parts = nn.ModuleList([table, norm, *others])

    @staticmethod
    def of(model: nn.Module) -> InputEmbeddings | None:
        """The embeddings of a model; None where they are not normalised, as those of Qwen3, or of another width than the
        states."""
        table: Any = model.get_input_embeddings()  # type: ignore[operator]
        name = next(name for name, part in model.named_modules() if part is table)
        parent = model.get_submodule(name.rpartition(".")[0])
        parts = [] if parent is model else list(parent.children())
        norms = [part for part in parts if isinstance(part, nn.LayerNorm)]
        others = [part for part in parts if isinstance(part, nn.Embedding) and part is not table]
        width: Any = model.config.hidden_size  # type: ignore[union-attr]
        if len(norms) != 1 or not table.embedding_dim == norms[0].weight.numel() == width:
            return None
        return InputEmbeddings(table, norms[0], others)

    def stand_for(self, tokens_U: NDArray[np.int64], states: TokenStates) -> None:
        """Give these tokens the vectors that are normalised to about their states; places and segments add nothing."""
        mean_D = states.mean_D if self.norm.bias is not None else np.zeros_like(states.mean_D)
        scale_D = np.where(states.deviation_D == 0, 1, states.deviation_D)
        with torch.no_grad():
            for other in self.others:
                other.weight.zero_()
            self.norm.weight.copy_(torch.from_numpy(scale_D))
            if self.norm.bias is not None:
                self.norm.bias.copy_(torch.from_numpy(mean_D))
            vectors_UD = torch.from_numpy((states.states_UD - mean_D) / scale_D)
            self.table.weight[torch.from_numpy(tokens_U)] = vectors_UD.to(self.table.weight.device)
