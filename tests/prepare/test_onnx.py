"""Encoding on ONNX Runtime: PyTorch's vectors, from a graph that is exported once, or one clear error."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling

from distilbench.data.sentences import CorpusText
from distilbench.encoders.encoder import EncoderSpec, encode, token_ids
from distilbench.errors import InputError
from distilbench.prepare import encode as encode_module
from distilbench.prepare import onnx as module
from distilbench.prepare.onnx import GRAPH, load_onnx, onnx_artifact
from distilbench.storage.store import ArtifactStore

for package in ("onnxruntime", "onnxscript", "onnx"):
    pytest.importorskip(package, reason=f"the extra onnx is not installed: no {package}")

WORDS = "the dog runs in a park today how do i open big red door ? quickly".split()
# 1 to 64 tokens of words, in a mixed order; with the special tokens the last two are cut at the encoder's limit of 64.
SENTENCES = tuple(" ".join((WORDS * 5)[i % 7 :][:i]) for i in np.random.default_rng(0).permutation(np.arange(1, 65)))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, encoder_folder: Path) -> Path:
    """A store that holds the graph of the tiny encoder; copy it before changing it."""
    root = tmp_path_factory.mktemp("onnx") / "store"
    onnx_artifact(EncoderSpec(str(encoder_folder)), ArtifactStore(root))
    return root


@pytest.fixture
def store(made: Path, tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(Path(shutil.copytree(made, tmp_path / "store")))


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The graphs exported so far in this test."""
    done: list[Path] = []
    export = module._export

    def counted(spec: EncoderSpec, path: Path) -> None:
        done.append(path)
        export(spec, path)

    monkeypatch.setattr(module, "_export", counted)
    return done


@pytest.fixture
def cls_folder(encoder_folder: Path, tmp_path: Path) -> Path:
    """The tiny encoder with the first token's vector instead of the mean, and without normalisation."""
    transformer = SentenceTransformer(str(encoder_folder), device="cpu")[0]
    other = SentenceTransformer(modules=[transformer, Pooling(32, pooling_mode="cls")], device="cpu")
    other.save(str(tmp_path / "cls"), create_model_card=False)
    return tmp_path / "cls"


@pytest.mark.parametrize("budget", [None, 1, 4096])  # 1: no padding anywhere
def test_vectors_are_those_of_pytorch(store: ArtifactStore, encoder_folder: Path, budget: int | None) -> None:
    spec = EncoderSpec(str(encoder_folder))
    torch_model, model = spec.load(), load_onnx(spec, onnx_artifact(spec, store))
    lengths = sorted(len(ids) for ids in token_ids(model, SENTENCES))
    assert lengths == [*range(3, 64), 64, 64, 64]
    expected = encode(torch_model, SENTENCES)
    vectors = encode(model, SENTENCES, tokens_per_batch=budget)
    assert vectors.dtype == np.float32 and np.ptp(expected, axis=0).min() > 0.01
    np.testing.assert_allclose(vectors, expected, atol=1e-5, rtol=0)
    np.testing.assert_allclose(model.encode(list(SENTENCES)), expected, atol=1e-5, rtol=0)  # and its own encode


@pytest.mark.slow
def test_pooling_and_normalisation_are_the_encoders_own(cls_folder: Path, store: ArtifactStore) -> None:
    spec = EncoderSpec(str(cls_folder))
    expected = encode(spec.load(), SENTENCES)
    assert np.linalg.norm(expected, axis=1).min() > 2
    vectors = encode(load_onnx(spec, onnx_artifact(spec, store)), SENTENCES)
    np.testing.assert_allclose(vectors, expected, atol=1e-5, rtol=1e-5)


def test_prompt_and_limit_are_respected_and_share_the_graph(
    store: ArtifactStore, encoder_folder: Path, exports: list[Path]
) -> None:
    spec = EncoderSpec(str(encoder_folder), prompt="how do i ", max_tokens=12)
    model = load_onnx(spec, onnx_artifact(spec, store))
    vectors = encode(model, SENTENCES, prompt=spec.prompt)
    np.testing.assert_allclose(vectors, encode(spec.load(), SENTENCES, prompt=spec.prompt), atol=1e-5, rtol=0)
    assert np.abs(vectors - encode(model, SENTENCES)).max(axis=1).min() > 1e-3
    assert not exports


@pytest.mark.slow
def test_other_vectors_than_pytorchs_are_an_error_and_no_artifact(
    tmp_path: Path, encoder_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = module._Graph.forward

    def wrong(self: Any, **given: Any) -> Any:
        return {"last_hidden_state": forward(self, **given)["last_hidden_state"] + 1e-3}

    monkeypatch.setattr(module._Graph, "forward", wrong)
    with pytest.raises(InputError, match=r"cannot run it: its vectors differ .* by .*e-0[345]; use the torch backend"):
        onnx_artifact(EncoderSpec(str(encoder_folder)), ArtifactStore(tmp_path))
    assert not list(tmp_path.glob("*/manifest.json")) and not list(tmp_path.glob(f"*/{GRAPH}"))


def test_a_failing_export_is_one_clear_error(
    tmp_path: Path, encoder_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("no operator for this\nand a long story")

    monkeypatch.setattr(torch.onnx, "export", fails)
    with pytest.raises(InputError, match=r"cannot run it: no operator for this; use the torch backend"):
        onnx_artifact(EncoderSpec(str(encoder_folder)), ArtifactStore(tmp_path))


@pytest.mark.parametrize("package", ["onnxruntime", "onnxscript", "onnx"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    made: Path, encoder_folder: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # import raises ImportError
    with pytest.raises(InputError, match=rf"package {package}, .*pip install 'distilbench\[onnx\]'"):
        onnx_artifact(EncoderSpec(str(encoder_folder)), ArtifactStore(made))


@pytest.mark.slow
def test_a_corpus_is_encoded_with_it_and_kept_apart_from_pytorchs_vectors(
    store: ArtifactStore, encoder_folder: Path, cluster: None
) -> None:
    spec = EncoderSpec(str(encoder_folder), prompt="how ")

    def vectors(backend: encode_module.Backend) -> tuple[Any, int]:
        return encode_module.CorpusEncoding(spec, store, "test", "float32", backend).vectors(CorpusText(SENTENCES, "k"))

    ours, count = vectors("onnx")
    assert count == 64 and vectors("onnx")[1] == 0
    plain, count = vectors("torch")
    assert count == 64 and plain.folder != ours.folder
    rows = np.arange(64)
    np.testing.assert_allclose(ours.take(rows), plain.take(rows), atol=1e-5, rtol=0)
    assert np.abs(ours.take(rows) - plain.take(rows)).max() > 0  # not computed by the same code


def test_the_graph_has_no_paths_of_this_machine(made: Path) -> None:
    import onnx

    (path,) = made.glob(f"onnx-*/{GRAPH}")
    operators = [node.op_type for node in onnx.load(path).graph.node]
    assert operators.count("Attention") == 4
    assert b'File "' not in path.read_bytes() and str(Path(module.__file__).parent).encode() not in path.read_bytes()
