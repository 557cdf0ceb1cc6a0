"""Cost: what is counted on disk and in memory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from samples import random_sentences
from sentence_transformers import SentenceTransformer

from distilbench.encoders.encoder import EncoderSpec, encode
from distilbench.errors import InputError
from distilbench.evaluation.cost import embedding_parameters, encoder_size, needed_files

TEXT = random_sentences(60, seed=11)


@pytest.fixture(scope="module")
def spec(encoder_folder: Path) -> EncoderSpec:
    return EncoderSpec(str(encoder_folder))


@pytest.fixture(scope="module")
def model(spec: EncoderSpec) -> SentenceTransformer:
    return spec.load()


@pytest.fixture
def copied(tmp_path: Path, encoder_folder: Path) -> Path:
    return Path(shutil.copytree(encoder_folder, tmp_path / "tiny"))


# Size


def test_a_shared_table_is_counted_once() -> None:
    one, other = torch.nn.Embedding(10, 4), torch.nn.Embedding(10, 4)
    other.weight = one.weight
    net = torch.nn.ModuleList([one, other, torch.nn.EmbeddingBag(3, 4), torch.nn.Linear(4, 2)])
    assert sum(p.numel() for p in net.parameters()) == 40 + 12 + 10
    assert embedding_parameters(net) == 40 + 12


def test_a_copy_of_the_files_that_are_counted_is_the_encoder(
    copied: Path, model: SentenceTransformer, tmp_path: Path
) -> None:
    before = encoder_size(EncoderSpec(str(copied)), model).bytes_on_disk
    strangers = ["README.md", ".gitattributes", ".git/objects/pack", "onnx/model.onnx", "openvino/openvino_model.bin"]
    strangers += ["onnx/config.json", "pytorch_model.bin", "tf_model.h5", "vocab.txt", "data_config.json", "train.py"]
    strangers += ["quantisation-int8.safetensors", "quantisation-int8.json", "pair_head.json", "d8/quantisation-x.json"]
    for name in strangers:
        (copied / name).parent.mkdir(parents=True, exist_ok=True)
        (copied / name).write_bytes(b"{}" * 500)
    files = needed_files(copied, model.tokenizer)
    assert {p.relative_to(copied).as_posix() for p in files}.isdisjoint(strangers)
    for path in files:
        to = tmp_path / "only" / path.relative_to(copied)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)
    assert sum(p.stat().st_size for p in (tmp_path / "only").rglob("*") if p.is_file()) == before
    np.testing.assert_array_equal(encode(EncoderSpec(str(tmp_path / "only")).load(), TEXT), encode(model, TEXT))
    assert encoder_size(EncoderSpec(str(copied)), model).bytes_on_disk == before


def test_a_dense_layer_counts_and_so_do_the_folders_of_a_router(copied: Path, model: SentenceTransformer) -> None:
    modules = json.loads((copied / "modules.json").read_text())
    modules.append({"idx": 3, "name": "3", "path": "3_Dense", "type": "Dense"})
    (copied / "modules.json").write_text(json.dumps(modules))
    before = needed_files(copied, model.tokenizer)
    for name in ("3_Dense/config.json", "3_Dense/model.safetensors", "3_Dense/inner/pytorch_model.bin"):
        (copied / name).parent.mkdir(parents=True, exist_ok=True)
        (copied / name).write_bytes(b"1234")
    more = set(needed_files(copied, model.tokenizer)) - set(before)
    assert {p.name for p in more} == {"config.json", "model.safetensors", "pytorch_model.bin"}


def test_weights_in_parts(copied: Path, model: SentenceTransformer) -> None:
    (copied / "model.safetensors").rename(copied / "model-1-of-2.safetensors")
    (copied / "model-2-of-2.safetensors").write_bytes(b"12")
    (copied / "model-3-of-2.safetensors").write_bytes(b"in no index")
    index = copied / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}))
    names = {p.name for p in needed_files(copied, model.tokenizer)}
    assert names >= {index.name, "model-1-of-2.safetensors", "model-2-of-2.safetensors"}
    assert "model-3-of-2.safetensors" not in names
    (copied / "model-2-of-2.safetensors").unlink()
    with pytest.raises(InputError, match=r"index\.json: names model-2-of-2\.safetensors, which is not there"):
        needed_files(copied, model.tokenizer)
    index.unlink()
    with pytest.raises(InputError, match="no weights in it"):
        needed_files(copied, model.tokenizer)


def test_an_encoder_of_the_hub_is_found_in_its_cache(
    copied: Path, model: SentenceTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = encoder_size(EncoderSpec(str(copied)), model)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(InputError, match=r"'owner/name': not in the hub's cache"):
        encoder_size(EncoderSpec("owner/name"), model)
    kept = tmp_path / "cache" / "models--owner--name"
    shutil.copytree(copied, kept / "snapshots" / "c0ffee")
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("c0ffee")
    assert encoder_size(EncoderSpec("owner/name"), model) == wanted
