"""Every loss on another device than the CPU, on any machine: tensors have no content, and two devices in one operation fail.

What a method makes when it is built is put on that device by the test.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from distilbench.methods.crd import CRD
from distilbench.methods.parts.encoder_method import TRAINING_TOKENS
from tests.methods.test_every_method import TRAINED

DEVICE = "meta"
"""A build of torch for CPUs alone has no kernels for "cuda", not even without content."""
LOSSES = [(case, n) for case, (_, _, phases) in TRAINED.items() for n in range(len(phases))]


def moved(value: Any) -> Any:
    """The value with its tensors on the GPU."""
    if isinstance(value, torch.Tensor):
        return value.to(DEVICE)
    if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
        return type(value)([moved(item) for item in value])
    return value


@pytest.fixture
def replaced_parameters() -> Any:
    """A module that moves gets new parameters: one with content cannot become one without."""
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    yield
    torch.__future__.set_overwrite_module_params_on_conversion(False)


@pytest.mark.parametrize(("case", "number"), LOSSES)
def test_a_loss_mixes_no_devices(
    case: str,
    number: int,
    build: Callable[..., Any],
    replaced_parameters: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(TRAINING_TOKENS, DEVICE, TRAINING_TOKENS["cuda"])
    monkeypatch.setattr(
        CRD, "_drawn", lambda _, index, limit, count: np.random.default_rng(0).integers(limit, size=count)
    )
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())  # it knows no such device
    name, params, _ = TRAINED[case]
    method = build(name, **params)
    phases = method.phases()
    for phase in phases[: number + 1]:
        phase.begin()
        phase.start()
    method.train()
    with FakeTensorMode(allow_non_fake_inputs=True):
        method.to(DEVICE)
        for module in method.modules():
            for attribute, value in list(vars(module).items()):
                setattr(module, attribute, DEVICE if attribute == "device" else moved(value))
        phase, index_B = phases[number], np.arange(phases[number].batch_size)
        if phase.shape is not None and phase.shape(index_B) is not None:  # a GPU replays it: it looks at no value
            replayed = phase.loss(torch.from_numpy(index_B).to(DEVICE))
            assert replayed.device.type == DEVICE and replayed.shape == ()
        try:
            loss = phase.loss(index_B)
        except DataDependentOutputException:  # it looks at a value, and came so far
            return
    assert loss.device.type == DEVICE and loss.shape == ()
