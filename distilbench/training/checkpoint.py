"""Checkpoints: trained parameters and the optimisers' state in one safetensors file per rung; the last two are kept."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from distilbench.storage.files import atomic_path
from distilbench.training.phases import Learner

KEPT = 2
_NAME = re.compile(r"rung-(\d+)\.safetensors")
_SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)")


def _trained(method: Learner) -> dict[str, torch.nn.Parameter]:
    return {name: p for name, p in method.named_parameters() if p.requires_grad}


def _rungs(folder: Path) -> list[tuple[int, Path]]:
    matches = ((_NAME.fullmatch(path.name), path) for path in folder.glob("rung-*.safetensors"))
    return sorted(((int(match[1]), path) for match, path in matches if match), reverse=True)


@dataclass(frozen=True)
class Checkpoint:
    """One that was read: its rung, what the trainer kept in it, and the optimiser's tensors by parameter."""

    rung: int
    state: dict[str, Any]
    optimizer_state: dict[int, dict[str, torch.Tensor]]
    """`id` of a parameter of the method -> the state that its optimiser has of it."""

    def restore_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Give an optimiser over (some of) the method's parameters the state that it had."""
        parameters = [q for group in optimizer.param_groups for q in group["params"]]
        states: dict[int, dict[str, Any]] = dict(self.optimizer_state)
        if isinstance(optimizer, torch.optim.SparseAdam):  # it counts in plain numbers, and float32's powers are others
            states = {key: {**of_row, "step": of_row["step"].item()} for key, of_row in self.optimizer_state.items()}
        state = {i: states[id(p)] for i, p in enumerate(parameters) if id(p) in states}
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def save_checkpoint(
    folder: Path, rung: int, method: Learner, optimizers: Sequence[torch.optim.Optimizer], state: dict[str, Any]
) -> None:
    """Write `rung-N.safetensors` whole, then delete all but the newest two. `state` is JSON-able."""
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in _trained(method).items():
        tensors[f"parameter/{name}"] = parameter.detach().cpu().contiguous()
        for optimizer in optimizers:
            for key, value in optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer/{key}/{name}"] = torch.as_tensor(value).detach().cpu().contiguous()
    _write(folder / f"rung-{rung}.safetensors", tensors, {"state": json.dumps(state)})
    for _, old in _rungs(folder)[KEPT:]:
        old.unlink(missing_ok=True)


def _write(path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    with atomic_path(path) as temporary:
        try:
            save_file(tensors, temporary, metadata=metadata)
        except SafetensorError as error:  # the system's errors come as text: "... (os error 28)"
            match = _SYSTEM_ERROR.search(str(error))
            number = int(match[1]) if match else errno.EIO
            raise OSError(number, os.strerror(number), str(temporary)) from None


def save_parameters(path: Path, method: Learner) -> None:
    """Write the trained parameters alone, without an optimiser's state."""
    _write(path, {name: p.detach().cpu().contiguous() for name, p in _trained(method).items()}, {})


def load_parameters(path: Path, method: Learner) -> None:
    """Give a method the parameters that `save_parameters` wrote."""
    try:
        with safe_open(path, framework="pt") as file, torch.no_grad():
            for name, parameter in _trained(method).items():
                parameter.copy_(file.get_tensor(name))
    except SafetensorError as error:
        raise OSError(errno.EIO, str(error), str(path)) from None


def load_checkpoint(folder: Path, method: Learner) -> Checkpoint | None:
    """Read the newest undamaged checkpoint into the method; None when there is none."""
    for rung, path in _rungs(folder):
        try:
            with safe_open(path, framework="pt") as file:
                state = json.loads(file.metadata()["state"])
                tensors = {key: file.get_tensor(key) for key in file.keys()}
        except SafetensorError:
            continue  # damaged from outside: writing is atomic; the one before it is kept for this
        trained = _trained(method)
        with torch.no_grad():
            for name, parameter in trained.items():
                parameter.copy_(tensors[f"parameter/{name}"])
        optimizer_state: dict[int, dict[str, torch.Tensor]] = {}
        for key, tensor in tensors.items():
            kind, _, rest = key.partition("/")
            if kind == "optimizer":
                what, _, name = rest.partition("/")
                optimizer_state.setdefault(id(trained[name]), {})[what] = tensor
        return Checkpoint(rung, state, optimizer_state)
    return None
