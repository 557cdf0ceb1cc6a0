"""Methods built small on the prepared inputs, and a way to run them in double precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from distilbench.data.sentences import CorpusText
from distilbench.methods import get_method
from distilbench.methods.method import Method
from distilbench.prepare.prepared import Prepared, load_prepared
from distilbench.prepare.static_start import load_static_start, static_start_artifact
from distilbench.prepare.tokens import load_tokens, tokens_artifact
from distilbench.storage.store import ArtifactStore
from distilbench.trials.rung_training import build_method

TRAINED = {"lr": 0.003, "batch_size": 16}
FINE_TUNED = {"ft_batch_size": 8, "ft_epochs": 1.0, "ft_lr": 0.003}
HEAD = {"lambda": 50.0, "clusters": 4, "lr": 0.01, "batch_size": 16}
SMALL: dict[str, dict[str, Any]] = {
    "contrastive": {"output_dim": 8, **TRAINED, "batch_size": 8},
    "crd": {"output_dim": 32, **TRAINED, "negatives": 24, "critic_dim": 6},
    "hpd": {"output_dim": 8, **TRAINED, "epochs": 1.0},
    "ibkd": {"output_dim": 8, **TRAINED, "epochs": 0.5, **FINE_TUNED},
    "matryoshka": {"output_dim": 8, **TRAINED, "batch_size": 8},
    "mcr2": {"output_dim": 8, **HEAD},
    "mcr2_distil": {
        "output_dim": 8,
        **HEAD,
        "steps": 20,
        "distil_epochs": 1.0,
        "distil_batch_size": 16,
        "distil_lr": 0.01,
    },
    "mse": {"output_dim": 32, **TRAINED},
    "neighbours": {"output_dim": 8, "lr": 0.003, "batch_size": 16, "steps": 20},
    "pca": {"output_dim": 8},
    "random_projection": {"output_dim": 8},
    "whitening": {"output_dim": 8},
}
"""Of the random encoder, whose width is 32."""
PUBLISHED: dict[str, Any] = {
    "dropout": True,
    "freeze_embeddings": False,
    "decay_all": True,
    "projection_start": "random",
    "map_start": "random",
    "max_negative_share": 0.0,
    "norm": "raw",
    "normaliser": False,
    "directions": "teacher",
    "noise_kind": "factor",
    "centre": False,
    "group": 1,
}
"""What the papers do and the defaults do not: these tests compute it by hand, and train every part."""


@pytest.fixture(scope="session")
def prepared(prepared_folder: Path) -> Prepared:
    """What `prepared_folder` holds."""
    return load_prepared(prepared_folder)


@pytest.fixture(scope="session")
def sentences(prepared_folder: Path) -> list[str]:
    """The corpus rows."""
    return (prepared_folder / "sentences.txt").read_text().split("\n")


@pytest.fixture(scope="session")
def narrow(prepared: Prepared, narrow_encoder_folder: Path) -> Prepared:
    """The same with a student of its own, 16 wide beside the teacher's 32."""
    return replace(prepared, student=str(narrow_encoder_folder))


@pytest.fixture(scope="session")
def static(prepared: Prepared, sentences: list[str], tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """The same with a static student."""
    store = ArtifactStore(tmp_path_factory.mktemp("static"))
    start = static_start_artifact(prepared.teacher, store)
    tokens = load_tokens(
        tokens_artifact(CorpusText(sentences, "the small corpus"), prepared.teacher, store, static=start)
    )
    return replace(prepared, student="static", static=load_static_start(start), tokens=tokens)


@pytest.fixture(scope="session")
def build(prepared: Prepared) -> Callable[..., Any]:
    """`build(name, **params)`: a small method with some of its hyper-parameters; `on` are other prepared inputs."""

    def make(name: str, on: Prepared = prepared, seed: int = 0, **params: Any) -> Method:
        fields = get_method(name).params_type.model_fields if "lr" in SMALL[name] else {}
        published = {field: value for field, value in PUBLISHED.items() if field in fields}
        return build_method(name, {**published, **SMALL[name], **params}, on, seed, "cpu")

    return make


@pytest.fixture
def in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods cast to float32; with this, all their numbers stay in double precision. Call `double()` on what is built."""
    real = torch.from_numpy
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    monkeypatch.setattr(torch, "from_numpy", lambda a: real(a).double() if a.dtype == np.float32 else real(a))


@pytest.fixture(scope="session")
def many(prepared: Prepared) -> Prepared:
    """The same with its training sentences several times over: enough for 256 centroids."""
    return replace(prepared, train=np.tile(prepared.train, -(-600 // len(prepared.train))))
