"""Embeddings that stand for skipped layers: the states are those of the encoder, and a student reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from architectures import make_architecture

from distilbench.data.corpus import Corpus
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.requirements import Requirements
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.layers import InputEmbeddings, LayerList, TokenStates
from distilbench.encoders.student import load_student
from distilbench.prepare import skipped_layers
from distilbench.prepare.skipped_layers import ALONE, load_skipped_layers, mean_states, skipped_layers_artifact
from distilbench.prepare.tokens import load_tokens, tokens_artifact
from distilbench.storage.store import ArtifactStore


@pytest.fixture(scope="module")
def corpus(data_folder: Path) -> Corpus:
    return folder_corpus(data_folder, Limits(), Requirements())


def test_the_states_are_means_over_sentences_and_the_token_alone(encoder_folder: Path) -> None:
    model = EncoderSpec(str(encoder_folder)).load("cpu")
    layers = LayerList(model[0].model, "it").layers
    sentences = [np.array(ids, dtype=np.int32) for ids in model.tokenizer(["one man is", "is one is"])["input_ids"]]
    before, *_, after = sentences[0].tolist()
    token, never = int(sentences[0][3]), int(sentences[0][1]) + 1
    assert not any(never in ids for ids in sentences)

    def after_two(ids: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            return model[0].model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states[2][0]

    found = mean_states(model, layers[:2], sentences, np.array([token, never]))
    alone = [after_two([before, one, after])[1] for one in (token, never)]
    seen = [after_two(ids.tolist())[place] for ids in sentences for place in np.flatnonzero(ids == token).tolist()]
    assert len(seen) == 3
    expected = (ALONE * alone[0] + sum(seen)) / (ALONE + 3)
    np.testing.assert_allclose(found[1].states_UD, torch.stack([expected, alone[1]]).numpy(), atol=1e-5)


@pytest.mark.parametrize("kind", ["bert", "distilbert", "mpnet", "modernbert"])
def test_a_layer_from_the_middle_reads_about_what_it_read(
    corpus: Corpus, encoder_folder: Path, tmp_path: Path, kind: str
) -> None:
    teacher = EncoderSpec(str(make_architecture(kind, encoder_folder, tmp_path / kind)))
    store = ArtifactStore(tmp_path / "store")
    tokens = tokens_artifact(corpus.text, teacher, store)
    folder = skipped_layers_artifact("layers:2,3", teacher, "mean", tokens, corpus.train, store)
    assert folder is not None
    states, ids = load_skipped_layers(folder), load_tokens(tokens)[int(corpus.train[0])].tolist()

    def read(skipped: TokenStates | None) -> np.ndarray:
        """The distance of what layer 2 reads from the tokens' mean states after the layers 0 and 1."""
        model = load_student("layers:2,3", teacher, "cpu", skipped=skipped)
        seen: list[torch.Tensor] = []
        first = LayerList(model[0].model, "it").layers[0]
        first.register_forward_pre_hook(lambda _, given, named: seen.append(given[0]), with_kwargs=True)
        with torch.inference_mode():
            model[0].model(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long))
        return np.linalg.norm(seen[0][0].numpy() - states.states_UD[ids], axis=1).mean()

    assert read(states) < 0.5 * read(None)
    saved = load_student("layers:2,3", teacher, "cpu", skipped=states)
    saved.save(str(tmp_path / "student"), create_model_card=False)
    again = EncoderSpec(str(tmp_path / "student")).load("cpu")
    np.testing.assert_array_equal(saved.encode(["one man is"]), again.encode(["one man is"]))


def test_students_that_need_none_have_none(corpus: Corpus, encoder_folder: Path, tmp_path: Path, monkeypatch) -> None:
    store, teacher = ArtifactStore(tmp_path / "store"), EncoderSpec(str(encoder_folder))
    qwen3 = EncoderSpec(str(make_architecture("qwen3", encoder_folder, tmp_path / "qwen3")))
    monkeypatch.setattr(skipped_layers, "mean_states", lambda *_: pytest.fail("nothing is to be read"))
    narrow = EncoderSpec(str(make_architecture("electra", encoder_folder, tmp_path / "electra", embedding_size=8)))
    kept = [
        ("layers:0,2", teacher),
        ("static", teacher),
        ("teacher", teacher),
        ("layers:2,3", qwen3),
        ("layers:2", narrow),
    ]
    for student, spec in kept:
        tokens = tokens_artifact(corpus.text, spec, store)
        assert skipped_layers_artifact(student, spec, "mean", tokens, corpus.train, store) is None
    assert InputEmbeddings.of(qwen3.load("cpu")[0].model) is None
