"""Small real models: masked language models of three families, and a MarianMT pair that has learnt five sentences."""

from __future__ import annotations

import pytest
from small_models import ROUND_TRIPS, make_marian, make_masked_language_model

from distilbench.encoders.encoder import EncoderSpec
from distilbench.prepare.augment.translation import Marian


@pytest.fixture(scope="session", params=["bert", "distilbert", "roberta"])
def masked_language_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> EncoderSpec:
    family: str = request.param
    folder = tmp_path_factory.mktemp(family)
    make_masked_language_model(folder, family)
    return EncoderSpec(str(folder))


@pytest.fixture(scope="session")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Marian:
    pytest.importorskip("sentencepiece", reason=f"sentencepiece is not installed; expected {Marian.install}")
    folder = tmp_path_factory.mktemp("marian")
    make_marian(folder / "there", list(ROUND_TRIPS), [there for there, _ in ROUND_TRIPS.values()])
    make_marian(folder / "back", *zip(*ROUND_TRIPS.values(), strict=True))
    return Marian(*(EncoderSpec(str(folder / name)) for name in ("there", "back")))
