"""From what a user writes to operations."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from distilbench.errors import InputError
from distilbench.prepare.augment import operations, parse_operations
from distilbench.prepare.augment.apertium import Apertium
from distilbench.prepare.augment.back_translation import BackTranslation
from distilbench.prepare.augment.contextual import ROLE, Contextual
from distilbench.prepare.augment.fast_translate import FastTranslate
from distilbench.prepare.augment.marian import Marian
from distilbench.prepare.augment.pretrained import Pretrained
from distilbench.prepare.augment.random_words import Delete, Swap
from distilbench.prepare.augment.synonym import Synonym
from distilbench.prepare.augment.translation_engine import ROLE as TRANSLATION
from distilbench.settings.augment import AugmentSettings


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        (" swap , delete,", ("swap", "delete")),
        ("swap,synonym,swap", ("swap", "synonym")),
        ("hpd", ("synonym", "back-translation")),
        ("back-translation,hpd,contextual", ("back-translation", "synonym", "contextual")),
    ],
)
def test_parse(text: str, names: tuple[str, ...]) -> None:
    assert parse_operations(text) == names


def test_unknown_name() -> None:
    wanted = (
        r"^augmentation 'shuffle': expected one of synonym, swap, delete, contextual, back-translation, "
        r"or the recipe hpd \(synonym, back-translation\)$"
    )
    with pytest.raises(InputError, match=wanted):
        parse_operations("swap,shuffle")
    with pytest.raises(InputError, match=wanted):
        operations(AugmentSettings(operations=("shuffle",)))


def test_settings_reach_the_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mlm").mkdir()
    monkeypatch.chdir(tmp_path)
    chosen = operations(
        AugmentSettings(
            operations=("swap", "delete", "hpd", "contextual"),
            share=0.2,
            contextual_model="mlm",
            translation="marian",
            marian=("owner/there", "owner/back"),
            beams=5,
        )
    )
    assert chosen == [
        Swap(0.2),
        Delete(0.2),
        Synonym(0.2),
        BackTranslation(Marian(Pretrained("owner/there", TRANSLATION), Pretrained("owner/back", TRANSLATION), 5)),
        Contextual(Pretrained(str(tmp_path / "mlm"), ROLE), 0.2),
    ]


@pytest.mark.parametrize("wrong", [{"share": 0}, {"share": 1.1}, {"beams": 0}, {"translation": "babel"}, {"x": 1}])
def test_settings_out_of_range(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        AugmentSettings(**wrong)  # type: ignore[arg-type]


def test_what_an_operation_needs_is_asked_for() -> None:
    with pytest.raises(InputError, match=r"^augmentation contextual: no model; expected contextual_model"):
        operations(AugmentSettings(operations=("contextual",)))
    with pytest.raises(InputError, match=r"^augmentation back-translation: no MarianMT models; expected marian"):
        operations(AugmentSettings(operations=("hpd",), translation="marian"))


def only(monkeypatch: pytest.MonkeyPatch, *installed: type) -> None:
    def missing(self: object) -> None:
        raise InputError("not installed")

    for engine in (FastTranslate, Apertium):
        monkeypatch.setattr(engine, "check", (lambda self: None) if engine in installed else missing)


def test_auto_is_the_first_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = AugmentSettings(operations=("back-translation",))
    only(monkeypatch, FastTranslate, Apertium)
    assert operations(settings) == [BackTranslation(FastTranslate())]
    only(monkeypatch, Apertium)
    assert operations(settings) == [BackTranslation(Apertium())]
    both = settings.model_copy(update={"marian": ("owner/there", "owner/back")})
    assert isinstance(operations(both)[0].engine, Marian)  # type: ignore[attr-defined]
    only(monkeypatch)
    with pytest.raises(InputError, match="no translation engine is installed") as told:
        operations(settings)
    for command in (FastTranslate.install, Apertium.install, Marian.install):
        assert f"`{command}`" in str(told.value)


def test_a_chosen_engine_is_described_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch)
    chosen = operations(AugmentSettings(operations=("back-translation",), translation="apertium"))
    assert chosen == [BackTranslation(Apertium())]
    with pytest.raises(InputError):
        chosen[0].check()
