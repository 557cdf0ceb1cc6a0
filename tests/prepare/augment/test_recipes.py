"""From what a user writes to operations."""

from __future__ import annotations

from pathlib import Path

import pytest

from distilbench.encoders.encoder import EncoderSpec
from distilbench.errors import InputError
from distilbench.prepare.augment import operations
from distilbench.prepare.augment.translation import FastTranslate, Marian
from distilbench.prepare.augment.words import Contextual, Delete, Swap, Synonym


@pytest.mark.parametrize(
    ("names", "made"),
    [
        ((), []),
        (("swap", "delete", "swap"), [Swap(), Delete()]),
        (("hpd",), [Synonym(), FastTranslate()]),
        (
            ("back-translation", "hpd", "contextual@a/b"),
            [FastTranslate(), Synonym(), Contextual(model=EncoderSpec("a/b"))],
        ),
    ],
)
def test_each_name_and_recipe_once_in_order(names: tuple[str, ...], made: list[object]) -> None:
    assert operations(names) == made


def test_models_are_named_for_any_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mlm").mkdir()
    monkeypatch.chdir(tmp_path)
    assert operations(["contextual@mlm"]) == [Contextual(model=EncoderSpec(str(tmp_path / "mlm")))]
    translated = operations(["back-translation"], ("owner/there", "owner/back"))
    assert translated == [Marian(EncoderSpec("owner/there"), EncoderSpec("owner/back"))]


@pytest.mark.parametrize("name", ["shuffle", "swap@model"])
def test_unknown_name(name: str) -> None:
    with pytest.raises(
        InputError, match=rf"{name}.*synonym, swap, delete, contextual, back-translation.*hpd \(synonym"
    ):
        operations(["swap", name])


def test_contextual_asks_for_its_model() -> None:
    with pytest.raises(InputError, match="contextual@MODEL"):
        operations(["contextual"])
