"""The layers of any transformer that is a chain of alike layers: finding them, and keeping some.

BERT, RoBERTa, ELECTRA and MPNet keep them as `encoder.layer`, DistilBERT as `transformer.layer`, ModernBERT and decoders
such as Qwen3 as `layers`; all of them are a `ModuleList` as long as the configuration says.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

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
        """Have the model run the layers at `indices` alone, also by its configuration, so that it loads as it was saved.

        It may be called again, for other layers.
        """
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
