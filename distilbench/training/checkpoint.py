"""Checkpoints: trained parameters and AdamW's state in one safetensors file per rung; the last two are kept."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from distilbench.methods.method import Method
from distilbench.store import atomic_path

KEPT = 2
_NAME = re.compile(r"rung-(\d+)\.safetensors")


def _trained(method: Method) -> dict[str, torch.nn.Parameter]:
    return {name: p for name, p in method.named_parameters() if p.requires_grad}


def _rungs(folder: Path) -> list[tuple[int, Path]]:
    found = ((_NAME.fullmatch(path.name), path) for path in folder.glob("rung-*.safetensors"))
    return sorted(((int(match[1]), path) for match, path in found if match), reverse=True)


def save_checkpoint(folder: Path, rung: int, method: Method, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Write `rung-N.safetensors` whole, then delete all but the newest two."""
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in _trained(method).items():
        tensors[f"parameter/{name}"] = parameter.detach().cpu().contiguous()
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer/{key}/{name}"] = value.detach().cpu().contiguous()
    with atomic_path(folder / f"rung-{rung}.safetensors") as temporary:
        save_file(tensors, temporary, metadata={"step": str(step)})
    for _, old in _rungs(folder)[KEPT:]:
        old.unlink()


def load_checkpoint(folder: Path, method: Method, optimizer: torch.optim.Optimizer | None) -> tuple[int, int] | None:
    """Read the newest readable checkpoint into the method (and optimiser); (rung, step), or None when there is none."""
    for rung, path in _rungs(folder):
        try:
            with safe_open(path, framework="pt") as file:
                step = int(file.metadata()["step"])
                tensors = {key: file.get_tensor(key) for key in file.keys()}
        except (SafetensorError, OSError):
            continue  # damaged from outside: writing is atomic; the one before it is kept for this
        _restore(method, optimizer, tensors)
        return rung, step
    return None


def _restore(method: Method, optimizer: torch.optim.Optimizer | None, tensors: dict[str, torch.Tensor]) -> None:
    trained = _trained(method)
    with torch.no_grad():
        for name, parameter in trained.items():
            parameter.copy_(tensors[f"parameter/{name}"])
    if optimizer is None:
        return
    position = {id(p): i for i, p in enumerate(optimizer.param_groups[0]["params"])}
    state: dict[int, dict[str, Any]] = {}
    for name, parameter in trained.items():
        suffix = f"/{name}"
        kept = {
            key.removeprefix("optimizer/").removesuffix(suffix): tensor
            for key, tensor in tensors.items()
            if key.startswith("optimizer/") and key.endswith(suffix) and key.count("/") == 2
        }
        if kept:
            state[position[id(parameter)]] = kept
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
