"""A MarianMT pair that has learnt five sentences."""

from __future__ import annotations

import pytest
from small_models import ROUND_TRIPS, make_marian

from distilbench.encoders.encoder import EncoderSpec
from distilbench.prepare.augment.back_translation import INSTALL, BackTranslation


@pytest.fixture(scope="session")
def marian(tmp_path_factory: pytest.TempPathFactory) -> BackTranslation:
    pytest.importorskip("sentencepiece", reason=f"sentencepiece is not installed; expected {INSTALL}")
    folder = tmp_path_factory.mktemp("marian")
    make_marian(folder / "there", list(ROUND_TRIPS), [there for there, _ in ROUND_TRIPS.values()])
    make_marian(folder / "back", *zip(*ROUND_TRIPS.values(), strict=True))
    return BackTranslation(*(EncoderSpec(str(folder / name)) for name in ("there", "back")))
