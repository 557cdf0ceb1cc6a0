"""Cost: what is counted on disk and in memory, and latency, which a busy machine does not decide."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from samples import random_sentences
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import encode, token_ids
from distilbench.errors import InputError
from distilbench.evaluation import cost
from distilbench.evaluation.cost import (
    REFERENCE_WIDTH,
    calm_references_s,
    embedding_parameters,
    encoder_size,
    needed_files,
    read_texts,
    reference_of,
    time_encoder,
)

TEXT = random_sentences(60, seed=11)
SPOKEN = ["One sentence.", "Another one, of more words than the first.", "A third."] * 30


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
    before = encoder_size(EncoderSpec(str(copied)), model)["bytes_on_disk"]
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
    assert encoder_size(EncoderSpec(str(copied)), model)["bytes_on_disk"] == before


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
    index.unlink()
    with pytest.raises(InputError, match="no weights in it"):
        needed_files(copied, model.tokenizer)


def test_an_encoder_of_the_hub_is_found_in_its_cache(
    copied: Path, model: SentenceTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = encoder_size(EncoderSpec(str(copied)), model)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    kept = tmp_path / "cache" / "models--owner--name"
    shutil.copytree(copied, kept / "snapshots" / "c0ffee")
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("c0ffee")
    assert encoder_size(EncoderSpec("owner/name"), model) == wanted


# Latency


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], float]], None]:
    """`clock(slow)`: a sentence takes 2 ms and the reference 1 ms, times `slow(n)` at the n-th reading of the clock."""

    def tell(slow: Callable[[int], float]) -> None:
        now, readings = [0.0], [0]

        def take(ms: float) -> None:
            now[0] += ms / 1000 * slow(readings[0])
            readings[0] += 1

        def read(model: Any, batch: Any, prompt: str) -> None:
            take(2.0 * len(batch))

        monkeypatch.setattr(cost, "ENOUGH_S", 10.0)  # of a clock that runs up to five times as fast
        monkeypatch.setattr(cost, "read_texts", read)
        monkeypatch.setattr(cost, "tokenise", lambda model, batch, prompt: None)
        monkeypatch.setitem(cost.REFERENCES, "products", lambda: lambda: take(1.0))
        fake = SimpleNamespace(thread_time=lambda: now[0], perf_counter=lambda: now[0])
        monkeypatch.setattr(cost, "time", fake)

    return tell


@pytest.mark.parametrize(
    "slow", [lambda n: 1.0, lambda n: 3.0, lambda n: 1.0 + n / 40, lambda n: 1.0 if n < 80 else 5.0]
)
def test_what_slows_both_changes_nothing(
    clock: Callable[[Callable[[int], float]], None], model: SentenceTransformer, slow: Callable[[int], float]
) -> None:
    clock(slow)
    took = time_encoder(model, None, SPOKEN, reference_s=0.001)
    assert took["sentences_per_second_32"] == pytest.approx(500, rel=0.05)
    assert took["sentences_per_second_1"] == pytest.approx(1000 / took["p50_ms"])
    assert took["p50_ms"] == pytest.approx(2.0, rel=0.1) and took["p95_ms"] >= took["p50_ms"]
    assert took["timed_32"] >= 3 * 90 and took["timed_1"] >= 3 * 32 and took["spread"] < 0.05


def test_rounds_are_repeated_while_the_ratio_is_not_known(
    clock: Callable[[Callable[[int], float]], None], model: SentenceTransformer
) -> None:
    """The encoder alone is slowed in two of three rounds; then the width is told."""
    read = [0]

    def uneven(number: int) -> float:
        read[0] += number % 2 == 0  # the encoder's readings, beside the reference's
        return 1.0 + 3 * (read[0] // 3 % 3) if number % 2 == 0 else 1.0

    clock(uneven)
    took = time_encoder(model, None, SPOKEN, reference_s=0.001)
    assert took["timed_32"] > 3 * 90 and took["spread"] > 0


def test_no_texts(model: SentenceTransformer) -> None:
    with pytest.raises(ValueError, match="no sentences"):
        time_encoder(model, None, [], 0.001)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_the_reference_is_real_and_threads_are_put_back(two_threads: None) -> None:
    for made in cost.REFERENCES.values():
        out = made()()
        assert isinstance(out, torch.Tensor) and out.shape[1] == REFERENCE_WIDTH
    calm = calm_references_s()
    assert calm.keys() == cost.REFERENCES.keys() and min(calm.values()) > 0 and torch.get_num_threads() == 2


def test_a_static_encoder_is_timed_beside_lookups_and_its_tokenizer_is_told_apart(
    model: SentenceTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokenizer's share is of the same batches; both kinds of encoder are really tokenised."""
    words = sorted({word for text in SPOKEN for word in text.lower().split()})
    tokenizer = Tokenizer(WordPiece({word: i for i, word in enumerate(["[UNK]", *words])}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    static = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)], device="cpu")
    assert (reference_of(model), reference_of(static)) == ("products", "lookups")
    for encoder in (model, static):
        took = time_encoder(encoder, None, SPOKEN, reference_s=0.001)
        assert 0 < took["tokenising"] <= 1
    used = list[str]()
    for name in cost.REFERENCES:
        monkeypatch.setitem(cost.REFERENCES, name, lambda name=name: lambda: used.append(name))
    monkeypatch.setattr(cost, "_seconds", lambda run: [run(), 1.0][1])
    assert time_encoder(static, None, SPOKEN, reference_s=0.001)["tokenising"] == 1 and set(used) == {"lookups"}


def test_what_is_read(model: SentenceTransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch in one pass, padded to its longest, in the order given, the prompt before every sentence."""
    passes: list[tuple[int, ...]] = []
    model.register_forward_pre_hook(lambda _, given: passes.append(tuple(given[0]["input_ids"].shape)))
    ids = token_ids(model, SPOKEN[:3], "how do ")
    found = read_texts(model, SPOKEN[:3], "how do ")
    assert passes == [(3, max(map(len, ids)))] and found.shape[0] == 3
    seen = list[str]()
    monkeypatch.setattr(cost, "read_texts", lambda model, batch, prompt: seen.extend([prompt, *batch]))
    time_encoder(model, "how do ", SPOKEN[:2], reference_s=0.001)
    assert seen[:3] == ["how do ", *SPOKEN[:2]]
