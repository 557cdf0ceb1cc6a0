"""From what a user writes to operations."""

from __future__ import annotations

from pathlib import Path

import pytest

from distilbench.encoders.encoder import EncoderSpec
from distilbench.errors import InputError
from distilbench.prepare.augment import operations
from distilbench.prepare.augment.back_translation import BackTranslation
from distilbench.prepare.augment.synonym import Synonym


@pytest.mark.parametrize(
    ("names", "made"),
    [
        ((), []),
        (("synonym", "synonym"), [Synonym()]),
        (("hpd",), [Synonym(), BackTranslation()]),
        (("back-translation", "hpd"), [BackTranslation(), Synonym()]),
    ],
)
def test_each_name_and_recipe_once_in_order(names: tuple[str, ...], made: list[object]) -> None:
    assert operations(names) == made


def test_models_are_named_for_any_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    translated = operations(["back-translation@there+owner/back"])
    assert translated == [BackTranslation(EncoderSpec(str(tmp_path / "there")), EncoderSpec("owner/back"))]


@pytest.mark.parametrize("name", ["shuffle", "synonym@model"])
def test_unknown_name(name: str) -> None:
    with pytest.raises(InputError, match=rf"{name}.*synonym, back-translation.*hpd \(synonym"):
        operations(["synonym", name])
