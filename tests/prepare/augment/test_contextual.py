"""Words replaced by a masked language model's, each family of models as transformers has it now."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
from small_models import SENTENCES, make_masked_language_model
from transformers import AutoTokenizer

from distilbench.errors import InputError
from distilbench.prepare.augment import contextual as module
from distilbench.prepare.augment.contextual import ROLE, Contextual
from distilbench.prepare.augment.pretrained import Pretrained

SPACED = "two dogs run through the field a man is playing the guitar on a stage"
"""Words that are single pieces."""


def test_a_share_of_the_words_is_replaced(masked_language_model: Pretrained) -> None:
    tokens = len(AutoTokenizer.from_pretrained(masked_language_model.source).tokenize(SPACED))
    words = SPACED.split()
    for share in (0.1, 0.3):
        load = Contextual(masked_language_model, share).load()
        for seed in range(4):
            copy = load([SPACED], seed)[0].split()
            assert len(copy) == len(words)
            assert 0 < sum(a != b for a, b in zip(words, copy, strict=True)) <= math.ceil(share * tokens)


def test_batches_change_nothing(masked_language_model: Pretrained, monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding is not read, whatever lengths are beside each other."""
    sentences = [*SENTENCES, "Dogs run.", *(" ".join(SENTENCES[:n]) for n in (2, 3)), "a"]
    copies = Contextual(masked_language_model).load()
    together = copies(sentences, 0)
    assert [copies([sentence], 0)[0] for sentence in sentences] == together
    monkeypatch.setitem(module.TOKENS_PER_BATCH, "cpu", 70)
    assert copies(sentences, 0) == together


def test_a_sentence_longer_than_the_models_positions_keeps_its_end(masked_language_model: Pretrained) -> None:
    sentence = "two dogs run " * 40 + "on a stage"
    for seed in range(3):
        copy = Contextual(masked_language_model).load()([sentence], seed)[0]
        assert copy.endswith("run on a stage") and copy != sentence


def test_the_mask_is_what_is_predicted(masked_language_model: Pretrained) -> None:
    """One of the likeliest that the model itself writes there, with the words around it as they are."""
    import torch
    from transformers import pipeline

    fill = pipeline("fill-mask", model=masked_language_model.source, top_k=8, device=torch.device("cpu"))
    copies = Contextual(masked_language_model, share=0.01, top_k=8).load()
    seen = 0
    for seed in range(8):
        words, copy = SPACED.split(), copies([SPACED], seed)[0].split()
        for place in [i for i, (a, b) in enumerate(zip(words, copy, strict=True)) if a != b]:
            masked = " ".join([*words[:place], fill.tokenizer.mask_token, *words[place + 1 :]])
            assert copy[place] in [likely["token_str"].strip() for likely in fill(masked)]
            seen += 1
    assert seen


def test_a_copy_with_an_unknown_token_is_none(tmp_path: Path) -> None:
    make_masked_language_model(tmp_path, "bert")
    copies = Contextual(Pretrained(str(tmp_path), ROLE)).load()
    assert copies(["two dogs run through the 漢 field", "two dogs run"], 0)[0] == ""


def test_a_model_of_another_family(tmp_path: Path) -> None:
    make_masked_language_model(tmp_path, "bert")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "t5"}))
    wrong = Contextual(Pretrained(str(tmp_path), ROLE))
    with pytest.raises(
        InputError, match=r"^augmentation contextual: .* is of type 't5'; expected .* bert, distilbert,"
    ):
        wrong.check()


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    make_masked_language_model(tmp_path, "bert")
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).unlink(missing_ok=True)
    with pytest.raises(InputError, match="tokenizer"):
        Contextual(Pretrained(str(tmp_path), ROLE)).load()


def test_two_folders_of_one_name_are_two_models(tmp_path: Path) -> None:
    """nlpaug keeps models by the last part of their path."""

    (tmp_path / "a" / "model").mkdir(parents=True)
    (tmp_path / "b" / "model").mkdir(parents=True)
    make_masked_language_model(tmp_path / "a" / "model", "bert")
    make_masked_language_model(tmp_path / "b" / "model", "distilbert")
    first, second = (Contextual(Pretrained(str(tmp_path / name / "model"), ROLE)).load()(SENTENCES, 0) for name in "ab")
    assert first != second


class TestPretrained:
    def test_identity_is_of_the_content(self, tmp_path: Path) -> None:
        make_masked_language_model(tmp_path, "bert")
        told = Pretrained(str(tmp_path), ROLE).identity()
        assert {"config.json", "model.safetensors"} <= set(told)
        moved = Path(shutil.copytree(tmp_path, tmp_path.with_name("moved")))
        (moved / "README.md").write_text("a card")
        (moved / ".cache").mkdir()
        (moved / ".cache" / "lock").touch()
        assert Pretrained(str(moved), ROLE).identity() == told
        (moved / "vocab.txt").write_text("x")
        assert Pretrained(str(moved), ROLE).identity() != told

    def test_a_relative_folder_is_made_absolute(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "model").mkdir()
        monkeypatch.chdir(tmp_path)
        assert Pretrained("model", ROLE).absolute() == Pretrained(str(tmp_path / "model"), ROLE)
        assert Pretrained("owner/name", ROLE).absolute() == Pretrained("owner/name", ROLE)

    @pytest.mark.parametrize("name", ["", "no-such", "./no/such", "/no/such", "~/no-such", "a/b/c"])
    def test_neither_folder_nor_hub_id(self, name: str) -> None:
        with pytest.raises(InputError, match=r"^augmentation contextual: no folder .* expected .* hub id"):
            Pretrained(name, ROLE).identity()

    def test_hub_not_reached(self) -> None:
        with pytest.raises(InputError, match=r"no folder 'no-such/model', and not to be had from the hub"):
            Contextual(Pretrained("no-such/model", ROLE)).check()

    def test_no_config_no_weights(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"no config\.json in"):
            Pretrained(str(tmp_path), ROLE).identity()
        (tmp_path / "config.json").write_text("[")
        with pytest.raises(InputError, match=r"no weights in .*; expected one of model\.safetensors"):
            Pretrained(str(tmp_path), ROLE).identity()
        (tmp_path / "model.safetensors").touch()
        with pytest.raises(InputError, match=r"config\.json: not a JSON object"):
            Pretrained(str(tmp_path), ROLE).config()
