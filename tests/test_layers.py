"""The layers of every architecture: a student has the right ones, loads as it was saved, and is what a ranking tries."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from architectures import CHAINS, make_architecture, make_static
from sentence_transformers import SentenceTransformer

from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import encode
from distilbench.encoders.layers import LayerList
from distilbench.encoders.student import check_student, count_layers, load_student, student_pooling
from distilbench.errors import InputError

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
    """One model that keeps choice after choice, the student, and the saved student give the same vectors."""
    pooling = student_pooling("half", teacher)
    assert pooling == CHAINS[Path(teacher.name).name][2] and count_layers("half", teacher) == 4
    whole = teacher.load()
    expected, vectors = encode(whole, SENTENCES), {}
    layers = LayerList(whole[0].model, "--student x")
    for choice in EVERY:
        check_student(student_of(choice), teacher)
        model = load_student(student_of(choice), teacher, "cpu", pooling)
        assert model[0].model.config.num_hidden_layers == len(choice)
        vectors[choice] = encode(model, SENTENCES)
        layers.keep(choice)
        np.testing.assert_array_equal(encode(whole, SENTENCES), vectors[choice])
        model.save(str(tmp_path / "saved"), create_model_card=False)
        again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
        np.testing.assert_allclose(encode(again, SENTENCES), vectors[choice], atol=1e-5)
    np.testing.assert_allclose(vectors[0, 1, 2, 3], expected, atol=1e-5)
    apart = [np.abs(vectors[a] - vectors[b]).max() for a, b in combinations(EVERY, 2)]
    assert min(apart) > 1e-3


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
