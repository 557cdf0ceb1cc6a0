"""Phases: each with its own optimiser, examples, batches and learning rate, and interrupted anywhere without a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_learner import FIRST, SECOND, Toy, Untrained

from distilbench.training.loop import Trainer, epoch_batches

TOTAL = FIRST + SECOND


def batches(toy: Toy, name: str) -> list[list[int]]:
    return [what for kind, what in toy.events if kind == name]


def state_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    """Parameters, and the optimiser's state of each."""
    state = {}
    for name, parameter in trainer.method.named_parameters():
        state[name] = parameter.detach().clone()
        for key, value in trainer.optimizers[0].state.get(parameter, {}).items():
            state[f"{name}/{key}"] = value.clone()
    return state


def test_phases_follow_each_other_each_with_its_own_batches() -> None:
    toy = Toy()
    trainer = Trainer(toy, seed=3, budget=1000)
    assert (trainer.total_steps, trainer.starts) == (TOTAL, [0, FIRST, TOTAL])
    trainer.train_until(TOTAL + 5)  # at most to the end
    assert trainer.step == TOTAL and not toy.training
    assert [kind for kind, _ in toy.events] == ["begin", *["one"] * FIRST, "begin", *["two"] * SECOND]
    assert [what for kind, what in toy.events if kind == "begin"] == ["one", "two"]
    wanted = [epoch_batches(24, 8, [3, 0, epoch]).tolist() for epoch in range(3)]  # seed, phase, epoch
    assert batches(toy, "one") == [*wanted[0], *wanted[1], wanted[2][0]]
    assert batches(toy, "two") == epoch_batches(11, 2, [3, 1, 0]).tolist()
    drawn = np.concatenate(batches(toy, "one")[:3])
    assert sorted(drawn) == list(range(24)) and wanted[0] != wanted[1]


@pytest.mark.parametrize(("warmup", "decay"), [(0.0, True), (0.4, True), (0.4, False), (0.0, False)])
def test_the_learning_rate_starts_again_in_every_phase(warmup: float, decay: bool) -> None:
    toy = Toy(warmup=warmup, decay=decay)
    trainer = Trainer(toy, 0, 1000)
    used = []
    for step in range(TOTAL):
        trainer.train_until(step + 1)
        used.append(trainer.optimizers[0].param_groups[0]["lr"])
    assert used == [trainer.learning_rate(step) for step in range(TOTAL)]
    for lr, rates in ((0.01, used[:FIRST]), (0.05, used[FIRST:])):
        warm = -(-int(1000 * warmup) * len(rates) // 1000)
        assert rates[:warm] == pytest.approx([lr * (i + 1) / warm for i in range(warm)])
        assert max(rates) == pytest.approx(lr)
        if decay:
            rest = len(rates) - warm
            assert rates[warm:] == pytest.approx([lr * (rest - i) / rest for i in range(rest)])
        else:
            assert set(rates[warm:]) == {lr}


@pytest.mark.parametrize(
    ("budget", "steps"),
    [(1000, [60, 20]), (80, [60, 20]), (79, [59, 19]), (40, [30, 10]), (8, [6, 2]), (2, [1, 1])],
)
def test_a_budget_shortens_the_phases_in_proportion(budget: int, steps: list[int]) -> None:
    trainer = Trainer(Toy(first=60, second=20), 0, budget)
    assert [phase.steps for phase in trainer.phases] == steps
    assert trainer.total_steps == sum(steps) <= budget
    trainer.train_until(trainer.total_steps)
    last = trainer.phases[-1]
    assert trainer.learning_rate(trainer.total_steps - 1) == pytest.approx(last.lr / last.steps)  # decays to the end


@pytest.mark.parametrize("params", [{}, {"precision": "bf16", "warmup": 0.3}], ids=["fp32", "bf16"])
@pytest.mark.parametrize("killed", range(1, TOTAL + 1))  # before, at and after the boundary, and at the end
def test_interrupted_anywhere_it_is_bit_for_bit_the_same(tmp_path: Path, killed: int, params: dict[str, Any]) -> None:
    whole = Trainer(Toy(**params), 5, 1000)
    losses = [whole.train_until(step + 1) for step in range(TOTAL)]
    first = Trainer(Toy(**params), 5, 1000)
    first.train_until(killed)
    first.save(tmp_path, rung=2)
    torch.manual_seed(123)
    np.random.seed(123)
    second = Trainer(Toy(**params), 5, 1000)
    assert second.resume(tmp_path) == 2 and second.step == killed
    assert [second.train_until(step + 1) for step in range(killed, TOTAL)] == losses[killed:]
    ours, wanted = state_of(second), state_of(whole)
    assert ours.keys() == wanted.keys()
    assert all(torch.equal(ours[name], wanted[name]) for name in wanted)
    assert isinstance(second.method, Toy) and isinstance(whole.method, Toy)
    trained = [event for event in second.method.events if event[0] != "begin"]
    assert trained == [event for event in whole.method.events if event[0] != "begin"][killed:]


@pytest.mark.parametrize(
    ("killed", "begun"),
    [
        (FIRST - 1, ["one"]),
        (FIRST, ["one"]),  # what is evaluated there is the end of the first phase, as without interruption
        (FIRST + 1, ["two"]),
        (TOTAL, ["two"]),
    ],
)
def test_a_resumed_phase_begins_with_its_parameters_restored(tmp_path: Path, killed: int, begun: list[str]) -> None:
    first = Trainer(Toy(), 0, 1000)
    first.train_until(killed)
    first.save(tmp_path, rung=1)
    toy = Toy()
    weight_at_begin = []
    real = toy.begin
    toy.begin = lambda name: lambda: (real(name)(), weight_at_begin.append(toy.first.weight.detach().clone()))
    second = Trainer(toy, 0, 1000)
    assert toy.events == []
    second.resume(tmp_path)
    assert [what for _, what in toy.events] == begun
    assert torch.equal(weight_at_begin[0], first.method.get_parameter("first.weight"))
    second.train_until(killed + 1)
    entered = [what for kind, what in toy.events if kind == "begin"]
    assert entered == (["one", "two"] if killed == FIRST else begun)


def test_without_phases_nothing_is_trained_and_a_checkpoint_is_kept(tmp_path: Path) -> None:
    trainer = Trainer(Untrained(), 0, 1000)
    assert trainer.total_steps == 0
    assert np.isnan(trainer.train_until(1)) and trainer.step == 0
    trainer.save(tmp_path, 1)
    again = Trainer(Untrained(), 0, 1000)
    assert again.resume(tmp_path) == 1 and again.step == 0
    again.save(tmp_path, 2)
