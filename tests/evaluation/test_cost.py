"""Cost: what is counted on disk and in memory, what is timed and for how long. The clock is a fake one throughout."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from samples import random_sentences
from sentence_transformers import SentenceTransformer

from distilbench.encoders.encoder import EncoderSpec, encode, token_ids
from distilbench.errors import InputError
from distilbench.evaluation import cost as module
from distilbench.evaluation.cost import Cost, embedding_parameters, encoder_cost, needed_files
from distilbench.trials.scoring import count_parameters

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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`clock(seconds)`: a run takes `seconds`, or the following one of several."""

    def tell(*seconds: float) -> None:
        lengths = iter(seconds)
        now = 0.0

        def ticks() -> Iterator[float]:
            nonlocal now
            length = seconds[0]
            while True:
                yield now
                length = next(lengths, length)
                now += length
                yield now

        each = ticks()
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: next(each)))

    return tell


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    """What the model read: the ids of each call, and its forward passes."""
    seen: list[SimpleNamespace] = []
    encode_ids = module.encode_ids

    def spy(model: Any, ids: list[list[int]], budget: int) -> Any:
        shapes: list[tuple[int, ...]] = []
        hook = model.register_forward_pre_hook(lambda _, given: shapes.append(tuple(given[0]["input_ids"].shape)))
        try:
            return encode_ids(model, ids, budget)
        finally:
            hook.remove()
            seen.append(SimpleNamespace(ids=ids, passes=shapes))

    monkeypatch.setattr(module, "encode_ids", spy)
    return seen


def cost(spec: EncoderSpec, model: SentenceTransformer, sentences: list[str] = TEXT, **given: Any) -> Cost:
    return encoder_cost(spec, model, sentences, **{"threads": 1, "device": "cpu", **given})


# Size


def test_parameters_with_and_without_embeddings(spec: EncoderSpec, model: SentenceTransformer, clock: Any) -> None:
    clock(0.01)
    found = cost(spec, model)
    tables = {name: p.numel() for name, p in model.named_parameters() if "embeddings.weight" in name}
    assert len(tables) == 3  # words, positions, segments
    assert found.parameters == count_parameters(Path(spec.name))  # the same as in the files
    assert found.parameters_without_embeddings == found.parameters - sum(tables.values())
    assert found.bytes_per_vector == 4 * 32


def test_a_shared_table_is_counted_once() -> None:
    one, other = torch.nn.Embedding(10, 4), torch.nn.Embedding(10, 4)
    other.weight = one.weight
    net = torch.nn.ModuleList([one, other, torch.nn.EmbeddingBag(3, 4), torch.nn.Linear(4, 2)])
    assert sum(p.numel() for p in net.parameters()) == 40 + 12 + 10
    assert embedding_parameters(net) == 40 + 12


def test_a_copy_of_the_files_that_are_counted_is_the_encoder(
    copied: Path, model: SentenceTransformer, tmp_path: Path, clock: Any
) -> None:
    clock(0.01)
    before = cost(EncoderSpec(str(copied)), model).bytes_on_disk
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
    clock(0.01)
    assert cost(EncoderSpec(str(copied)), model).bytes_on_disk == before


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


def test_a_vocabulary_counts_where_there_is_no_tokenizer_file(copied: Path, model: SentenceTransformer) -> None:
    (copied / "vocab.txt").write_text("a\nb")
    assert copied / "vocab.txt" not in needed_files(copied, model.tokenizer)
    (copied / "tokenizer.json").unlink()
    assert copied / "vocab.txt" in needed_files(copied, model.tokenizer)


def test_an_encoder_of_the_hub_is_found_in_its_cache(
    copied: Path, model: SentenceTransformer, tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock(0.01)
    wanted = cost(EncoderSpec(str(copied)), model)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    clock(0.01)
    with pytest.raises(InputError, match=r"'owner/name': not in the hub's cache"):
        cost(EncoderSpec("owner/name"), model)
    kept = tmp_path / "cache" / "models--owner--name"
    shutil.copytree(copied, kept / "snapshots" / "c0ffee")
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("c0ffee")
    clock(0.01)
    assert cost(EncoderSpec("owner/name"), model) == wanted


# Speed


def test_speed_and_percentiles_by_hand(spec: EncoderSpec, model: SentenceTransformer, clock: Any) -> None:
    # 60 sentences take 1 to 60 ms; then two batches, and a third that starts again, 0.5 s each.
    clock(*[i / 1000 for i in range(1, 61)], 0.5, 0.5, 0.5)
    found = cost(spec, model)
    assert (found.timed_1, found.timed_32) == (60, 96)
    assert found.p50_ms == pytest.approx(30.5)
    assert found.p95_ms == pytest.approx(1 + 0.95 * 59)
    assert found.sentences_per_second_1 == pytest.approx(60 / 1.83)
    assert found.sentences_per_second_32 == pytest.approx(64)
    assert (found.device, found.threads) == ("cpu", 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "timed_1", "timed_32"),
    [(0, 20, 96), (20.5, 21, 96 + 64), (1e9, 200, 224)],  # at least so many, as long as allowed, all of them once
)
def test_time_is_bounded(
    spec: EncoderSpec,
    model: SentenceTransformer,
    clock: Any,
    seconds: float,
    timed_1: int,
    timed_32: int,
) -> None:
    clock(*[1.0] * timed_1, *[4.5] * 7)
    found = cost(spec, model, random_sentences(200, seed=12), seconds=seconds)
    assert (found.timed_1, found.timed_32) == (timed_1, timed_32)


def test_few_sentences_are_read_again(spec: EncoderSpec, model: SentenceTransformer, clock: Any, runs: Any) -> None:
    clock(0.01)
    found = cost(spec, model, TEXT[:2])
    assert (found.timed_1, found.timed_32) == (20, 96)
    assert {len(run.ids) for run in runs} == {1, 32}


def test_what_is_read(
    spec: EncoderSpec, model: SentenceTransformer, clock: Any, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SENTENCES", 40)
    clock(0.01)
    cost(spec, model)
    first = [run.ids for run in runs]
    single, batches = first[1 + 3 : 1 + 3 + 40], first[1 + 3 + 40 + 3 :]  # the width and the warm-ups are not timed
    assert len(batches) == 3
    every = [ids[0] for ids in single]
    known = token_ids(model, TEXT)
    assert len({tuple(ids) for ids in every}) == 40 and all(ids in known for ids in every)
    # In the order drawn, whatever the lengths, and each batch in one pass, padded to its longest.
    assert [len(ids) for ids in every] != sorted(len(ids) for ids in every)
    assert [ids for batch in batches for ids in batch] == (every * 3)[:96]
    assert all(run.passes == [(len(run.ids), max(map(len, run.ids)))] for run in runs)
    runs.clear()
    clock(0.01)
    cost(spec, model)
    assert [run.ids for run in runs] == first  # the same sample each time


def test_tokenising_is_timed_and_the_prompt_is_read(
    spec: EncoderSpec, model: SentenceTransformer, clock: Any, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def tell(name: str, result: Any = None) -> Any:
        events.append(name)
        return result

    monkeypatch.setattr(module, "token_ids", lambda *given: tell("tokens", token_ids(*given)))
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: tell("clock", len(events) / 1000)))
    cost(replace(spec, prompt="how do "), model, TEXT[:1])
    timed = ["clock", "tokens", "clock"]
    assert events == ["tokens"] * 4 + timed * 20 + ["tokens"] * 3 + timed * 3
    assert runs[0].ids == token_ids(model, ["how do " + TEXT[0]])


def test_the_gpu_has_finished_when_the_clock_is_read(
    model: SentenceTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def tell(name: str) -> float:
        events.append(name)
        return len(events) / 1000

    monkeypatch.setattr(module, "read_texts", lambda *_: tell("read"))
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: tell("clock")))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: tell(f"{device} finished"))
    on_gpu: Any = SimpleNamespace(device=torch.device("cuda", 1))
    module._timed(on_gpu, TEXT, "", 1, 2, 0.0)
    run = ["cuda:1 finished", "clock", "read", "cuda:1 finished", "clock"]
    assert events == ["read"] * 3 + run * 2
    events.clear()
    module._timed(model, TEXT, "", 1, 1, 0.0)
    assert events == ["read"] * 3 + ["clock", "read", "clock"]


@pytest.mark.parametrize("setting", [None, "true"])
def test_threads_are_as_stated_and_put_back(
    spec: EncoderSpec, model: SentenceTransformer, clock: Any, monkeypatch: pytest.MonkeyPatch, setting: str | None
) -> None:
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    if setting:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", setting)
    before, seen = torch.get_num_threads(), set()

    # Nothing is encoded: threads beyond the machine's wait for each other for seconds.
    def reads(*_: Any) -> Any:
        seen.add((torch.get_num_threads(), os.environ.get("TOKENIZERS_PARALLELISM")))
        return np.zeros((1, 32))

    monkeypatch.setattr(module, "read_texts", reads)
    clock(0.01)
    assert cost(spec, model, threads=before + 1).threads == before + 1
    assert seen == {(before + 1, "false")}
    assert (torch.get_num_threads(), os.environ.get("TOKENIZERS_PARALLELISM")) == (before, setting)

    def broken(*_: Any) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(module, "read_texts", broken)
    with pytest.raises(RuntimeError, match="out of memory"):
        cost(spec, model, threads=before + 1)
    assert (torch.get_num_threads(), os.environ.get("TOKENIZERS_PARALLELISM")) == (before, setting)


def test_it_runs_by_the_real_clock(spec: EncoderSpec, model: SentenceTransformer) -> None:
    found = cost(spec, model, TEXT[:5], seconds=0)
    assert 0 < found.p50_ms <= found.p95_ms
    assert found.sentences_per_second_1 > 0 and found.sentences_per_second_32 > 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sentences": []}, "no sentences"),
        ({"threads": 0}, "threads is 0, expected at least 1"),
        ({"seconds": -1.0}, r"seconds is -1\.0, expected at least 0"),
        ({"seconds": float("nan")}, "seconds is nan"),
        ({"device": "cuda"}, "the model is on cpu, expected cuda"),
    ],
)
def test_bad_input(spec: EncoderSpec, model: SentenceTransformer, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cost(spec, model, **given)
