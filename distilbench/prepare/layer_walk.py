"""Pooled states of many choices of an encoder's layers, each layer after the same layers computed once.

The choices are a tree: those that begin with the same layers share the states up to where they part. The model itself
says what each layer is given beside the states (masks, positions, MPNet's relative position bias): its forward pass runs
once with stubs in the place of the layers, which note that, and its end (a decoder's last norm) once more for each choice.
Axes: B batch, T tokens, D width.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from distilbench.encoders.layers import LayerList
from distilbench.errors import InputError

TOLERANCE = 1e-4
"""By how much the chain of all layers may differ from the encoder itself, relative to its largest number."""

Choice = tuple[int, ...]
"""Rising layer numbers."""


def evaluations(choices: Iterable[Choice]) -> int:
    """How many times a layer is run for these choices, prefixes shared."""
    return len({choice[:stop] for choice in choices for stop in range(1, len(choice) + 1)})


class _Tape(threading.local):
    """What the stubs note and return, of each thread."""

    def __init__(self) -> None:
        self.layer_inputs: dict[int, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self.start: Tensor | None = None
        self.end: Tensor | None = None


class _Stub(nn.Module):
    """Stands for one layer: notes what it is given and passes the states on, or the end's states where there are any."""

    def __init__(self, index: int, layer: nn.Module, tape: _Tape, wrapped: bool) -> None:
        super().__init__()
        self._index, self._tape, self._wrapped = index, tape, wrapped
        self._layer = (layer,)  # in a tuple, so that it is no submodule

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_layer"][0], name)  # such as ModernBERT's `attention_type`

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """The states as the layer would return them."""
        tape = self._tape
        tape.layer_inputs[self._index] = args, kwargs
        if tape.start is None:
            tape.start = hidden_states
        states = hidden_states if tape.end is None else tape.end
        return (states,) if self._wrapped else states


class LayerWalk:
    """The encoder of `model` (transformer and pooling), open for any choice of its layers, which are replaced for good."""

    def __init__(self, model: SentenceTransformer, what: str) -> None:
        self.transformer, self.pooling = model[0], model[1]
        self.device, self.pad = model.device.type, int(model.tokenizer.pad_token_id or 0)
        self.layer_list = LayerList(self.transformer.model, what)
        self.transformer.model.config.use_cache = False  # a decoder's layers would append to what they have kept before
        ids_BT = torch.ones((1, 4), dtype=torch.long, device=model.device)
        probe = {"input_ids": ids_BT, "attention_mask": torch.ones_like(ids_BT)}
        self._wrapped, whole = self._read(probe)
        self._tape = _Tape()
        stubs = [_Stub(i, layer, self._tape, self._wrapped) for i, layer in enumerate(self.layer_list.layers)]
        self._first = [self.layer_list.first(i) for i in range(len(stubs))]
        self.layer_list.put(stubs)
        all_layers = tuple(range(self.count))
        try:
            off = float(np.abs(self.pooled(probe, [all_layers])[all_layers] - whole).max())
        except (TypeError, ValueError, IndexError, RuntimeError):
            off = np.inf
        if off > TOLERANCE * max(1.0, float(np.abs(whole).max())):
            raise InputError(
                f"{what}: a {type(self.transformer.model).__name__} does not run its layers one after the other, so they "
                f"cannot be ranked; expected them by number, such as layers:0,2"
            )

    @property
    def count(self) -> int:
        """Layers to choose from."""
        return len(self.layer_list.layers)

    @property
    def width(self) -> int:
        """Numbers of a pooled state."""
        return int(self.pooling.get_embedding_dimension())

    def _read(self, probe: dict[str, Tensor]) -> tuple[bool, NDArray[Any]]:
        """Whether a layer returns a tuple that begins with the states; and the whole encoder's pooled states."""
        gave_tuple: list[bool] = []
        hook = self.layer_list.layers[0].register_forward_hook(
            lambda *hook_args: gave_tuple.append(isinstance(hook_args[2], tuple))
        )
        with torch.inference_mode():
            whole = self.pooling(self.transformer(dict(probe)))["sentence_embedding"].float().cpu().numpy()
        hook.remove()
        return gave_tuple[0], whole

    def pooled(self, features: dict[str, Tensor], choices: Sequence[Choice]) -> dict[Choice, NDArray[Any]]:
        """Pooled states of each choice for a padded batch, B x D float32."""
        tape = self._tape
        tape.layer_inputs, tape.start, tape.end = {}, None, None
        with torch.inference_mode():
            plain_BTD = self.transformer(dict(features))["token_embeddings"]
            layer_inputs, start_BTD = dict(tape.layer_inputs), tape.start
            assert start_BTD is not None
            plainly = plain_BTD is start_BTD or torch.equal(plain_BTD, start_BTD)
            return dict(self._walk(features, layer_inputs, (), start_BTD, sorted(choices), plainly))

    def _walk(
        self,
        features: dict[str, Tensor],
        layer_inputs: dict[int, tuple[tuple[Any, ...], dict[str, Any]]],
        prefix: Choice,
        states_BTD: Tensor,
        choices: Sequence[Choice],
        plainly: bool,
    ) -> Iterator[tuple[Choice, NDArray[Any]]]:
        depth = len(prefix)
        if prefix in choices:
            yield prefix, self._end(features, states_BTD, plainly)
        for index in sorted({choice[depth] for choice in choices if len(choice) > depth}):
            below = [choice for choice in choices if len(choice) > depth and choice[depth] == index]
            args, kwargs = layer_inputs[index]
            layer = self.layer_list.layers[index] if prefix else self._first[index]
            output = layer(states_BTD, *args, **kwargs)
            next_BTD = output[0] if self._wrapped else output
            yield from self._walk(features, layer_inputs, (*prefix, index), next_BTD, below, plainly)

    def _end(self, features: dict[str, Tensor], states_BTD: Tensor, plainly: bool) -> NDArray[Any]:
        if not plainly:
            self._tape.end = states_BTD
            states_BTD = self.transformer(dict(features))["token_embeddings"]
            self._tape.end = None
        pooled_BD = self.pooling({**features, "token_embeddings": states_BTD})["sentence_embedding"]
        return pooled_BD.float().cpu().numpy()
