"""Steps of one phase on a GPU, each a CUDA graph that is captured once for a shape of batch and replayed from then on.

A step of a small encoder is some 250 launches, which take Python ten times as long as the GPU. A graph is one launch.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distilbench.training.clipping import clip_gradients

WARM_STEPS = 3
"""Steps before the first capture: they make the optimiser's state and load the libraries' kernels."""
KEPT = 64
"""Steps whose losses stay on the device until they are read: a look every step would wait for each."""


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the rate of all groups, in place where it is a tensor, which a GPU's graphs read."""
    for group in optimizer.param_groups:
        group["lr"] = group["lr"].fill_(lr) if isinstance(group["lr"], Tensor) else lr


class Replay:
    """Takes the steps of a phase whose loss reads examples by a tensor of numbers on the device.

    Nothing is read back at a step: loss and gradient norm stay on the device until `drain`. From the first step on whose
    loss or gradient is not finite, the parameters stand still, so that they are those before it.
    """

    def __init__(
        self,
        loss: Callable[[Tensor], Tensor],
        optimizer: torch.optim.Optimizer,
        parameters: Sequence[torch.nn.Parameter],
        clip: float,
        device: torch.device,
    ) -> None:
        self._loss, self._optimizer, self._parameters = loss, optimizer, parameters
        self._clip, self._device = clip or math.inf, device
        self._history_K2 = torch.zeros(KEPT, 2, device=device)
        self._place = torch.zeros(1, dtype=torch.int64, device=device)
        self._stopped = torch.zeros((), device=device)
        self._epoch: tuple[NDArray[np.int64] | None, Tensor] = (None, torch.empty(0))
        self._index_B = torch.empty(0, dtype=torch.int64, device=device)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._captures = device.type == "cuda"
        self._made = self.pending = 0
        if self._captures:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._pool = torch.cuda.graph_pool_handle()

    def step(self, epoch: NDArray[np.int64], position: int, shape: int, lr: float) -> None:
        """Take a step on batch `position` of an epoch's batches, which are of this shape."""
        if not self._captures:
            self._step(epoch, position, shape, lr)
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            self._step(epoch, position, shape, lr)

    def _step(self, epoch: NDArray[np.int64], position: int, shape: int, lr: float) -> None:
        if self._epoch[0] is not epoch:
            self._epoch = (epoch, torch.from_numpy(epoch).to(self._device))
            self._index_B = self._index_B if len(self._index_B) else self._epoch[1][0].clone()
        self._index_B.copy_(self._epoch[1][position])
        set_learning_rate(self._optimizer, lr)
        self._made += 1
        self.pending += 1
        if not self._captures or self._made <= WARM_STEPS:
            self._body()
            return
        graph = self._graphs.get(shape) or self._capture(shape)
        if graph is None:
            self._body()
        else:
            graph.replay()

    def _capture(self, shape: int) -> torch.cuda.CUDAGraph | None:
        graph = torch.cuda.CUDAGraph()
        self._optimizer.zero_grad(set_to_none=True)
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                self._body()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self._captures = False  # something in the loss waits for the device: it is trained step by step
            warnings.warn(f"steps are not replayed as CUDA graphs: {' '.join(str(error).split())[:300]}", stacklevel=2)
            torch.cuda.synchronize(self._device)
            # Until its state is another one the generator takes itself to be in that capture, and draws no number.
            generator = torch.cuda.default_generators[torch.cuda.current_device()]
            generator.graphsafe_set_state(generator.clone_state())
            self._optimizer.zero_grad(set_to_none=True)
            return None
        self._graphs[shape] = graph
        return graph

    def _body(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._loss(self._index_B)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = clip_gradients(self._parameters, self._clip)
        both_2 = torch.stack([loss.detach().float(), norm.float()])
        self._stopped.copy_(torch.maximum(self._stopped, 1 - both_2.isfinite().all().float()))
        self._optimizer.found_inf = self._stopped  # type: ignore[attr-defined]  # a fused AdamW makes no step then
        self._optimizer.step()
        self._history_K2.index_copy_(0, self._place, both_2[None])
        self._place.add_(1)

    @property
    def full(self) -> bool:
        """Whether the next step has no place before `drain`."""
        return self.pending == KEPT

    def drain(self) -> list[tuple[float, float]]:
        """Wait for the device; loss and gradient norm of each step since the last call."""
        if not self.pending:
            return []
        if self._device.type == "cuda":
            self._stream.synchronize()
        values = self._history_K2[: self.pending].tolist()
        self._place.zero_()
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        self.pending = 0
        return [(loss, norm) for loss, norm in values]
