"""The training loop: any `Method`, from any step to any later one, the same wherever it was interrupted.

Everything random is derived from (seed, step), so a resumed run draws the batches, noise and dropout of an
uninterrupted one.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from distilbench.methods.method import Method
from distilbench.training.checkpoint import load_checkpoint, save_checkpoint

SORTED_BATCHES = 16
"""Batches per chunk that is sorted by length: padding falls to a few percent, and a batch stays a near-random draw."""


class Diverged(Exception):
    """The loss or a gradient is not finite; the message says at which step."""


def epoch_batches(
    examples: int, batch_size: int, lengths: NDArray[np.int64] | None, seed: int, epoch: int
) -> list[NDArray[np.int64]]:
    """The batches of one epoch, all of `batch_size` (the rest is left to other epochs), in a seeded order."""
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(examples)[: examples // batch_size * batch_size]
    if lengths is None:
        return list(order.reshape(-1, batch_size))
    chunk = SORTED_BATCHES * batch_size
    parts = [order[i : i + chunk] for i in range(0, len(order), chunk)]
    batches = [b for part in parts for b in part[np.argsort(lengths[part], kind="stable")].reshape(-1, batch_size)]
    return [batches[i] for i in rng.permutation(len(batches))]


class Trainer:
    """A method with its optimiser at a step. `total_steps` fixes the learning-rate schedule."""

    def __init__(self, method: Method, seed: int, total_steps: int) -> None:
        self.method, self.seed, self.total_steps, self.step = method, seed, total_steps, 0
        self.parameters = [p for p in method.parameters() if p.requires_grad]
        p = method.params
        device = self.parameters[0].device.type
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=p.lr, betas=p.betas, weight_decay=p.weight_decay, fused=True
        )
        self.device = device
        self._lengths = method.lengths()
        self._batches: tuple[int, list[NDArray[np.int64]]] = (-1, [])

    def learning_rate(self, step: int) -> float:
        """Linear warm-up, then constant or linear decay to 0."""
        p = self.method.params
        warm = math.ceil(p.warmup * self.total_steps)
        if step < warm:
            return p.lr * (step + 1) / warm
        return p.lr * (self.total_steps - step) / max(1, self.total_steps - warm) if p.decay else p.lr

    def _batch(self, step: int) -> NDArray[np.int64]:
        p = self.method.params
        epoch, position = divmod(step, self.method.examples // p.batch_size)
        if self._batches[0] != epoch:
            batches = epoch_batches(self.method.examples, p.batch_size, self._lengths, self.seed, epoch)
            self._batches = (epoch, batches)
        return self._batches[1][position]

    def train_until(self, step: int) -> float:
        """Train to `step` (at most `total_steps`); the mean loss over the steps taken.

        Raises:
            Diverged: a loss or gradient is not finite; parameters are as before that step.
        """
        losses = []
        self.method.train()
        while self.step < min(step, self.total_steps):
            torch.manual_seed(np.random.SeedSequence([self.seed, self.step]).generate_state(1)[0].item())
            for group in self.optimizer.param_groups:
                group["lr"] = self.learning_rate(self.step)
            with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.device == "cuda"):
                loss = self.method.loss(self._batch(self.step))
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.method.params.clip)
            losses.append(loss.item())
            if not (math.isfinite(losses[-1]) and math.isfinite(norm.item())):
                raise Diverged(f"loss {losses[-1]:.6g}, gradient norm {norm.item():.6g} at step {self.step}")
            self.optimizer.step()
            self.step += 1
        self.method.eval()
        return float(np.mean(losses)) if losses else math.nan

    def save(self, folder: Path, rung: int) -> None:
        """Write a checkpoint, keeping the one before it until the new one is whole."""
        save_checkpoint(folder, rung, self.method, self.optimizer, self.step)

    def resume(self, folder: Path) -> int:
        """Continue from the newest whole checkpoint in `folder`; its rung, or 0 when there is none."""
        found = load_checkpoint(folder, self.method, self.optimizer)
        if found is None:
            return 0
        rung, self.step = found
        self.method.eval()
        return rung
