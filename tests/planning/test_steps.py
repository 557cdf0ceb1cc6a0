"""The steps of each phase, planned from the corpus, beside those that the method itself says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from distilbench.methods import get_method, method_names
from distilbench.planning.steps import phase_steps
from distilbench.prepare.prepared import load_prepared
from distilbench.training.length import Examples, PhaseSteps
from distilbench.training.phases import within_budget
from distilbench.trials.rung_training import build_method

COMMON: dict[str, Any] = {"batch_size": 8, "lr": 1e-3}
UNTRAINED = ("pca", "whitening", "random_projection")
PARAMS: dict[str, dict[str, Any]] = {
    "neighbours": {"output_dim": 8, "group": 4, "codebooks": 4, "steps": 50, "codebook_steps": 30},
    "mcr2": {"output_dim": 4, "lambda": 1.0, "clusters": 2, "steps": 70},
    "mcr2_distil": {
        "output_dim": 4,
        "lambda": 1.0,
        "clusters": 2,
        "steps": 70,
        "distil_epochs": 1.5,
        "distil_batch_size": 16,
    },
    "hpd": {"output_dim": 4, "epochs": 2, "ft_epochs": 1.5, "ft_batch_size": 16},
    "ibkd": {"output_dim": 32, "epochs": 0.5, "ft_epochs": 1, "ft_batch_size": 8, "labelled": "pairs"},
    "mse": {"output_dim": 32, "epochs": 3},
    "crd": {"output_dim": 32, "epochs": 1},
    "contrastive": {"output_dim": 32, "epochs": 2},
    "matryoshka": {"output_dim": 32, "epochs": 2, "labelled": "pairs"},
}


@pytest.mark.parametrize("budget", [10**9, 25])
@pytest.mark.parametrize("method", sorted(PARAMS))
def test_as_the_method_says(method: str, budget: int, prepared_folder: Path) -> None:
    cls, given = get_method(method), {**COMMON, **PARAMS[method]}
    prepared = load_prepared(prepared_folder)
    made = build_method(method, given, prepared, 0, "cpu")
    says = [PhaseSteps(p.name, p.steps, p.batch_size) for p in within_budget(made.phases(), budget)]
    defaults = cls.params_type.model_validate(given).model_dump(by_alias=True)
    examples = Examples(len(prepared.train), 0, len(prepared.pairs_P2), len(prepared.triplets_T3))
    assert phase_steps(method, defaults, examples, budget) == says
    assert says


def test_every_method_is_held_against_its_word() -> None:
    assert {*PARAMS, *UNTRAINED, "dse"} == set(method_names())


def test_dse_reads_the_pairs_of_its_task_and_copies_count() -> None:
    params = {"batch_size": 10, "epochs": 2}
    assert phase_steps("dse", params, Examples(1, 2, 3, 4, task=100), 10**9) == [PhaseSteps("distil", 20, 10)]
    augmented = {**params, "augmentation": True}
    assert phase_steps("mse", augmented, Examples(100, 50, 0, 0), 10**9) == [PhaseSteps("distil", 30, 10)]
    assert phase_steps("mse", params, Examples(100, 50, 0, 0), 10**9) == [PhaseSteps("distil", 20, 10)]


def test_one_that_does_not_say_it_takes_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(get_method("mse"), "planned")
    assert phase_steps("mse", {"batch_size": 64}, Examples(1, 0, 0, 0), 360) == [PhaseSteps("", 360, 64)]


@pytest.mark.parametrize("method", UNTRAINED)
def test_one_that_is_not_trained_takes_no_step(method: str) -> None:
    assert phase_steps(method, {"output_dim": 8}, Examples(1, 0, 0, 0), 360) == []
