"""The training loop: any `Learner`, from any step to any later one, the same wherever it was interrupted.

Everything random is derived from (seed, step), so a resumed run draws the batches, noise and dropout of an
uninterrupted one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distilbench.training.checkpoint import load_checkpoint, save_checkpoint
from distilbench.training.clipping import clip_gradients
from distilbench.training.params import TrainedParams
from distilbench.training.phases import Learner, within_budget
from distilbench.training.replay import Replay, set_learning_rate


class Diverged(Exception):
    """The loss or a gradient is not finite; the message says at which step."""


def epoch_batches(examples: int, batch_size: int, seed: list[int]) -> NDArray[np.int64]:
    """The batches of one epoch in a seeded order, one a row (examples that fill no whole batch are left to other epochs)."""
    order = np.random.default_rng(seed).permutation(examples)
    return order[: examples // batch_size * batch_size].reshape(-1, batch_size)


def decay_groups(parameters: Sequence[torch.nn.Parameter], params: TrainedParams) -> list[dict[str, Any]]:
    """AdamW's groups: all parameters, or matrices and, without weight decay, the vectors (biases, scales of LayerNorm)."""
    if params.decay_all:
        return [{"params": list(parameters), "weight_decay": params.weight_decay}]
    matrices = [q for q in parameters if q.ndim > 1]
    vectors = [q for q in parameters if q.ndim <= 1]
    groups = [(matrices, params.weight_decay), (vectors, 0.0)]
    return [{"params": group, "weight_decay": decay} for group, decay in groups if group]


class Trainer:
    """A method with its optimiser at a step. `budget` is the most steps that it may take, its phases in proportion."""

    def __init__(self, method: Learner, seed: int, budget: int) -> None:
        self.method, self.seed, self.step = method, seed, 0
        self.params: TrainedParams = method.params
        self.phases = within_budget(method.phases(), budget)
        self.starts = np.cumsum([0, *(phase.steps for phase in self.phases)]).tolist()
        self.total_steps = int(self.starts[-1])
        self.device = torch.device(method.device).type
        self.phase = -1
        self._epoch: tuple[list[int], NDArray[np.int64]] = ([], np.empty((0, 0), dtype=np.int64))
        self._losses = (0.0, 0)
        self._recent: list[float] = []
        self.replay: Replay | None = None

    def _phase_of(self, step: int) -> int:
        return int(np.searchsorted(self.starts, step, side="right")) - 1

    def _enter(self, number: int, *, first: bool) -> None:
        """Begin phase `number` with a fresh optimiser; `first` is False where training is resumed within it."""
        self.phase = number
        phase, p = self.phases[number], self.params
        phase.begin()
        if first:
            phase.start()
        modules = [self.method] if phase.trained is None else phase.trained
        self.parameters = [q for module in modules for q in module.parameters() if q.requires_grad]
        rows = {id(q) for q in self.method.row_parameters()}
        self.optimizers: list[torch.optim.Optimizer] = []
        on_gpu = self.device == "cuda"
        if dense := [q for q in self.parameters if id(q) not in rows]:
            lr = torch.tensor(phase.lr, device=dense[0].device) if on_gpu else phase.lr
            groups = decay_groups(dense, p)
            self.optimizers.append(torch.optim.AdamW(groups, lr=lr, betas=p.betas, fused=True, capturable=on_gpu))
        if sparse := [q for q in self.parameters if id(q) in rows]:
            self.optimizers.append(torch.optim.SparseAdam(sparse, lr=phase.lr, betas=p.betas))
        self.bf16 = on_gpu if p.precision == "auto" else p.precision == "bf16"
        self.replay = None
        if phase.shape is not None and not sparse and self._can_replay():
            self.replay = Replay(self._loss, self.optimizers[0], self.parameters, p.clip, self.parameters[0].device)

    def _can_replay(self) -> bool:
        """Whether this is a GPU in bfloat16: the attention of sentences end to end knows no other precision."""
        return self.device == "cuda" and self.bf16

    def enter_start(self) -> bool:
        """Enter the only phase, so that the parameters are its start; whether there is one, and no step is made yet."""
        if self.step or self.total_steps == 0 or len(self.phases) > 1:
            return False
        if self.phase < 0:
            self._enter(0, first=True)
        return True

    def learning_rate(self, step: int) -> float:
        """Linear warm-up from 0, then constant, or a linear decay to 0, in each phase."""
        number = self._phase_of(step)
        p, phase, step = self.params, self.phases[number], step - self.starts[number]
        warm = math.ceil(p.warmup * phase.steps)
        if step < warm:
            return phase.lr * (step + 1) / warm
        if not p.decay:
            return phase.lr
        return phase.lr * (phase.steps - step) / max(1, phase.steps - warm)

    def _place(self, step: int) -> tuple[NDArray[np.int64], int]:
        """The batches of the epoch that `step` is in, and its place among them."""
        phase = self.phases[self.phase]
        examples = max(phase.batch_size, phase.examples)
        epoch, position = divmod(step - self.starts[self.phase], examples // phase.batch_size)
        seed = [self.seed, self.phase, epoch]
        if self._epoch[0] != seed:
            self._epoch = (seed, epoch_batches(examples, phase.batch_size, seed))
        return self._epoch[1], position

    def train_until(self, step: int, pause: Callable[[], bool] = lambda: False) -> float:
        """Train to `step` (at most `total_steps`), or until `pause()`, which is asked after every step; gives the mean loss.

        `Diverged`: a loss or gradient is not finite; parameters are as before that step.
        """
        self._recent, first = [], self.step
        self.method.train()
        try:
            while self.step < min(step, self.total_steps) and not (self.step > first and pause()):
                self._train_step()
            self._settle()
        finally:
            self.method.eval()
        return float(np.mean(self._recent)) if self._recent else math.nan

    @property
    def in_last_phase(self) -> bool:
        """Whether the last phase has begun, so that the method has its final form; always without a phase."""
        return not self.phases or self.phase == len(self.phases) - 1

    @property
    def mean_loss(self) -> float | None:
        """The mean loss since `take_loss`, interruptions notwithstanding; None without a step."""
        total, count = self._losses
        return total / count if count else None

    def take_loss(self) -> float:
        """The mean loss since this was last called, NaN without a step."""
        mean = self.mean_loss
        self._losses = (0.0, 0)
        return math.nan if mean is None else mean

    def _train_step(self) -> None:
        if self.phase != self._phase_of(self.step):
            self._settle()
            self._enter(self._phase_of(self.step), first=True)
        self._seed(np.random.SeedSequence([self.seed, self.step]).generate_state(1)[0].item())
        epoch, position = self._place(self.step)
        choose = self.phases[self.phase].shape
        shape = choose(epoch[position]) if self.replay is not None and choose is not None else None
        if self.replay is None or shape is None:
            self._settle()
            self._note(self.step, *self._eager_step(epoch[position]))
        else:
            if self.replay.full:
                self._settle()
            self.replay.step(epoch, position, shape, self.learning_rate(self.step))
        self.step += 1

    def _seed(self, number: int) -> None:
        """Seed this device alone: `torch.manual_seed` also notes the call's stack for kinds of device that are not there."""
        torch.default_generator.manual_seed(number)
        if self.device == "cuda":
            torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(number)

    def _loss(self, index_B: Any) -> Tensor:
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.bf16):
            return self.phases[self.phase].loss(index_B)

    def _eager_step(self, index_B: NDArray[np.int64]) -> tuple[float, float]:
        """Loss and gradient norm of a step, which is not made where they are not finite."""
        for optimizer in self.optimizers:
            set_learning_rate(optimizer, self.learning_rate(self.step))
        loss = self._loss(index_B)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = clip_gradients(self.parameters, self.params.clip or math.inf).item()
        value = loss.item()
        if math.isfinite(value) and math.isfinite(norm):
            for optimizer in self.optimizers:
                optimizer.step()
        return value, norm

    def _settle(self) -> None:
        """Wait for the steps that a GPU has not reported yet, and note their losses."""
        if self.replay is not None:
            first = self.step - self.replay.pending
            for number, (loss, norm) in enumerate(self.replay.drain(), first):
                self._note(number, loss, norm)

    def _note(self, step: int, loss: float, norm: float) -> None:
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self.step = step
            raise Diverged(f"loss {loss:.6g}, gradient norm {norm:.6g} at step {step}")
        self._recent.append(loss)
        # One by one: neither what `pause` saves nor where it ends the call alters the sum.
        self._losses = (self._losses[0] + loss, self._losses[1] + 1)

    def save(self, folder: Path, rung: int) -> None:
        """Write a checkpoint, keeping the one before it until the new one is whole."""
        self._settle()
        optimizers = self.optimizers if self.phases else []
        state = {"step": self.step, "phase": self.phase, "losses": self._losses}
        save_checkpoint(folder, rung, self.method, optimizers, state)

    def resume(self, folder: Path) -> int:
        """Continue from the newest whole checkpoint in `folder`; its rung, or 0 when there is none."""
        checkpoint = load_checkpoint(folder, self.method)
        if checkpoint is None:
            return 0
        self.step = checkpoint.state["step"]
        self._losses = tuple(checkpoint.state["losses"])
        if self.phases:  # its own phase, also at that phase's end: the next one begins when it is trained
            self._enter(checkpoint.state["phase"], first=False)
            for optimizer in self.optimizers:
                checkpoint.restore_optimizer(optimizer)
        self.method.eval()
        return checkpoint.rung
