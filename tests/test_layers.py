"""The layers of every architecture: a student has the right ones, loads as it was saved, and the walk gives its vectors."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from architectures import CHAINS, OTHERS, make_architecture, make_static
from sentence_transformers import SentenceTransformer

from distilbench.encoders.encoder import EncoderSpec, encode, padded, token_ids
from distilbench.encoders.student import check_student, count_layers, load_student, resolved_student, student_pooling
from distilbench.errors import InputError
from distilbench.prepare.layer_walk import LayerWalk, evaluations

SENTENCES = ["the dog runs in the park", "a cat", "how do i open the red door quickly today and what is this"]
EVERY = [choice for size in (1, 2, 3, 4) for choice in combinations(range(4), size)]


def student_of(choice: tuple[int, ...]) -> str:
    return f"layers:{','.join(map(str, choice))}"


@pytest.fixture(scope="module", params=list(CHAINS))
def teacher(
    request: pytest.FixtureRequest, encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> EncoderSpec:
    folder = tmp_path_factory.mktemp("architectures") / request.param
    return EncoderSpec(str(make_architecture(request.param, encoder_folder, folder)))


@pytest.mark.slow
def test_every_choice_of_layers(teacher: EncoderSpec, tmp_path: Path) -> None:
    """The walk, the student and the student that was saved and loaded give the same vectors; all layers are the teacher."""
    pooling = student_pooling("half", teacher)
    assert pooling == CHAINS[Path(teacher.name).name][2] and count_layers("half", teacher) == 4
    whole = teacher.load()
    ids = token_ids(whole, SENTENCES)
    expected = encode(whole, SENTENCES)
    walked = LayerWalk(teacher.load(), "--student x").pooled(padded(ids, 0, "cpu"), EVERY)
    assert walked.keys() == set(EVERY)
    vectors = {}
    for choice in EVERY:
        check_student(student_of(choice), teacher)
        model = load_student(student_of(choice), teacher, "cpu", pooling)
        assert model[0].model.config.num_hidden_layers == len(choice)
        vectors[choice] = encode(model, SENTENCES)
        np.testing.assert_allclose(walked[choice], vectors[choice], atol=1e-5)
        model.save(str(tmp_path / "saved"), create_model_card=False)
        again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
        np.testing.assert_allclose(encode(again, SENTENCES), vectors[choice], atol=1e-5)
    np.testing.assert_allclose(vectors[0, 1, 2, 3], expected, atol=1e-5)
    apart = [np.abs(vectors[a] - vectors[b]).max() for a, b in combinations(EVERY, 2)]
    assert min(apart) > 1e-3


def test_threads_do_not_disturb_each_other(teacher: EncoderSpec) -> None:
    from concurrent.futures import ThreadPoolExecutor

    walk = LayerWalk(teacher.load(), "--student x")
    batches = [padded(token_ids(teacher.load(), [s]), 0, "cpu") for s in SENTENCES] * 4
    alone = [walk.pooled(batch, EVERY) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda batch: walk.pooled(batch, EVERY), batches))
    for one, other in zip(alone, together, strict=True):
        for choice in EVERY:
            np.testing.assert_allclose(one[choice], other[choice], atol=1e-6)


def test_shared_prefixes_are_run_once(encoder_folder: Path) -> None:
    walk = LayerWalk(EncoderSpec(str(encoder_folder)).load(), "--student x")
    runs: list[int] = []
    for number, layer in enumerate(walk.layer_list.layers):
        layer.register_forward_hook(lambda *_, number=number: runs.append(number))
    choices = list(combinations(range(4), 2))
    walk.pooled(padded([[5, 6, 7]], 0, "cpu"), choices)
    assert sorted(runs) == [0, 1, 1, 2, 2, 2, 3, 3, 3] and evaluations(choices) == len(runs)


@pytest.mark.parametrize("kind", ["t5", "albert"])
def test_layers_that_cannot_be_told_apart(kind: str, encoder_folder: Path, tmp_path: Path) -> None:
    teacher = EncoderSpec(str(make_architecture(kind, encoder_folder, tmp_path / kind)))
    for student in ("auto:2", "half", "layers:0,2"):
        with pytest.raises(
            InputError, match=rf"--student {student}: the encoder is a \w+, whose layers cannot be told apart"
        ):
            check_student(student, teacher)
    with pytest.raises(InputError, match=r"--student layers:0,2: .* cannot be told apart"):
        load_student("layers:0,2", teacher, "cpu")


def test_a_static_encoder_has_no_layers(encoder_folder: Path, tmp_path: Path) -> None:
    teacher = EncoderSpec(str(make_static(encoder_folder, tmp_path / "static")))
    with pytest.raises(InputError, match=r"--student auto:1: encoder '.*static' has no layers: it is no transformer"):
        check_student("auto:1", teacher)


def test_layers_that_are_more_than_a_chain_can_be_named_but_not_ranked(encoder_folder: Path, tmp_path: Path) -> None:
    assert "deberta" in OTHERS
    teacher = EncoderSpec(str(make_architecture("deberta", encoder_folder, tmp_path / "deberta")))
    check_student("layers:0,2", teacher)
    assert load_student("layers:0,2", teacher, "cpu")[0].model.config.num_hidden_layers == 2
    with pytest.raises(
        InputError, match=r"--student auto: a DebertaV2Model does not run its layers one after the other"
    ):
        LayerWalk(teacher.load(), "--student auto")


def test_a_decoder_keeps_nothing_from_one_sentence_to_the_next(encoder_folder: Path, tmp_path: Path) -> None:
    teacher = EncoderSpec(str(make_architecture("qwen3", encoder_folder, tmp_path / "qwen3")))
    walk = LayerWalk(teacher.load(), "--student x")
    batch = padded(token_ids(teacher.load(), SENTENCES), 0, "cpu")
    first, second = (walk.pooled(batch, [(0, 3)])[0, 3] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    # Sentences of other lengths beside it, padded on the right, do not move its last token.
    alone = walk.pooled({name: part[1:2, :4] for name, part in batch.items()}, [(0, 3)])[0, 3]
    assert int(batch["attention_mask"][1].sum()) <= 4
    np.testing.assert_allclose(alone[0], first[1], atol=1e-5)


def test_a_student_of_a_decoder_trains(encoder_folder: Path, tmp_path: Path) -> None:
    teacher = EncoderSpec(str(make_architecture("qwen3", encoder_folder, tmp_path / "qwen3")))
    model = load_student(resolved_student("half", teacher), teacher, "cpu", "lasttoken")
    batch = padded(token_ids(model, SENTENCES), 0, "cpu")
    model(batch)["sentence_embedding"].square().sum().backward()
    kept = model[0].model.layers
    assert len(kept) == 2 and all(torch.isfinite(p.grad).all() for layer in kept for p in layer.parameters())
