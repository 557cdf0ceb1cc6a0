"""Teacher encoding: the vectors of a direct encoding, in order, made once, and never of something else."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from distilbench.data.roles import DOCUMENT, PLAIN, QUERY
from distilbench.data.sentences import CorpusText, SentenceFile, sentences_artifact
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import encode
from distilbench.errors import InputError
from distilbench.prepare import encode as module
from distilbench.prepare.encode import BF16_INSTRUCTIONS as INSTRUCTIONS
from distilbench.prepare.encode import READ, CorpusEncoding
from distilbench.settings.place import PoolSize
from distilbench.storage.arrays import ShardedArray, shard_name
from distilbench.storage.store import ArtifactStore

# Of every length, and long and short ones mixed, so that batches by length would show a wrong order.
SENTENCES = tuple(" ".join(["the dog runs in a park today"] * (1 + 7 * i % 5))[: 5 + 3 * i] for i in range(40))


Run = Callable[..., None]
run_on_ray = module.run_pool


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch, run_in_process: Run) -> None:
    """Three shards: 16, 16 and 8 sentences; without Ray, but where a test puts it back."""
    monkeypatch.setitem(module.SHARD_ROWS, "cpu", 16)
    monkeypatch.setattr(module, "run_pool", run_in_process)


def encoded(
    root: Path, spec: EncoderSpec, sentences: tuple[str, ...] = SENTENCES, workers: int | None = None
) -> tuple[ShardedArray, int]:
    key = hashlib.sha256("\n".join(sentences).encode()).hexdigest()
    encoding = CorpusEncoding(spec, ArtifactStore(root), "test", size=PoolSize(workers))
    return encoding.vectors(CorpusText(sentences, key))


def whole(vectors: ShardedArray) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return vectors.take(np.arange(vectors.rows))


@pytest.fixture(scope="module")
def spec(encoder_folder: Path) -> EncoderSpec:
    return EncoderSpec(str(encoder_folder), prompt="how ", max_tokens=24)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, spec: EncoderSpec, run_in_process: Run) -> Path:
    """A store that holds the vectors of `SENTENCES`; copy it before changing it."""
    root = tmp_path_factory.mktemp("made") / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(module.SHARD_ROWS, "cpu", 16)
        patch.setattr(module, "run_pool", run_in_process)
        vectors, count = encoded(root, spec)
    assert count == 40 and vectors.shard_rows == 16
    return root


@pytest.fixture
def store(tmp_path: Path, made: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "store"))


def test_vectors_are_those_of_a_direct_encoding_in_the_order_of_the_rows(made: Path, spec: EncoderSpec) -> None:
    vectors, _ = encoded(made, spec)
    direct = encode(spec.load(), SENTENCES, prompt=spec.prompt)
    assert (vectors.rows, vectors.width) == direct.shape
    # float16 keeps 11 bits; batches of another composition differ in the last bits of float32.
    np.testing.assert_allclose(whole(vectors), direct, rtol=2**-11, atol=1e-5)
    order = np.random.default_rng(0).permutation(40)
    np.testing.assert_array_equal(vectors.take(order), whole(vectors)[order])


def test_a_second_run_encodes_nothing_and_needs_no_cluster(
    made: Path, spec: EncoderSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "run_pool", lambda *_, **__: pytest.fail("encoding was started"))
    assert encoded(made, spec)[1] == 0


@pytest.mark.parametrize("change", ["prompt", "max_tokens", "weights"])
def test_vectors_of_anything_else_are_never_reused(store: Path, spec: EncoderSpec, tmp_path: Path, change: str) -> None:
    before, _ = encoded(store, spec)
    other = spec
    if change == "prompt":
        other = replace(spec, prompt="what ")
    elif change == "max_tokens":
        other = replace(spec, max_tokens=6)
    else:
        folder = Path(shutil.copytree(spec.name, tmp_path / "other"))
        (path,) = folder.rglob("model.safetensors")
        tensors = {name: 1.01 * tensor for name, tensor in load_file(path).items()}
        save_file(tensors, path, metadata={"format": "pt"})
        other = replace(spec, name=str(folder))
    after, count = encoded(store, other)
    assert count == 40
    assert after.folder != before.folder
    direct = encode(other.load(), SENTENCES, prompt=other.prompt)
    np.testing.assert_allclose(whole(after), direct, rtol=2**-11, atol=1e-5)
    assert np.abs(whole(after) - whole(before)).max() > 1e-3
    assert encoded(store, spec)[1] == 0  # and the first ones are still there


@pytest.mark.parametrize(("index", "count"), [(1, 16), (2, 8)])
@pytest.mark.parametrize("damage", ["deleted", "flipped"])
def test_a_damaged_shard_alone_is_encoded_again(
    store: Path, spec: EncoderSpec, capsys: pytest.CaptureFixture[str], damage: str, index: int, count: int
) -> None:
    vectors, _ = encoded(store, spec)
    before = whole(vectors)
    path = vectors.folder / shard_name(index)
    times = {p.name: p.stat().st_mtime_ns for p in vectors.folder.glob("*.npy") if p != path}
    if damage == "deleted":
        path.unlink()
    else:
        data = bytearray(path.read_bytes())
        data[-1] ^= 0x40
        path.write_bytes(data)
    capsys.readouterr()
    again, encoded_now = encoded(store, spec)
    assert encoded_now == count
    said = "".join(capsys.readouterr().out.split())
    assert f"{40 - count}of40sentenceswereencodedbefore" in said
    assert f"{path}:notwhatwaswritten" in said
    np.testing.assert_array_equal(whole(again), before)
    assert {name: (vectors.folder / name).stat().st_mtime_ns for name in times} == times


def test_an_interrupted_encoding_goes_on(store: Path, spec: EncoderSpec) -> None:
    vectors, _ = encoded(store, spec)
    before = whole(vectors)
    # As a killed driver leaves it: one shard, no manifest, no final name.
    partial = vectors.folder.with_name(vectors.folder.name + ".partial")
    vectors.folder.rename(partial)
    for name in ("manifest.json", shard_name(0), shard_name(2)):
        (partial / name).unlink()
    again, count = encoded(store, spec)
    assert count == 24
    np.testing.assert_array_equal(whole(again), before)


@pytest.mark.slow
def test_workers_of_ray_data_give_the_same_and_a_teacher_that_none_can_load_is_bad_input(
    tmp_path: Path, made: Path, spec: EncoderSpec, monkeypatch: pytest.MonkeyPatch, cluster: None
) -> None:
    monkeypatch.setattr(module, "run_pool", run_on_ray)
    vectors, count = encoded(tmp_path / "workers", spec, workers=2)
    assert count == 40 and vectors.shard_rows == 16
    np.testing.assert_array_equal(whole(vectors), whole(encoded(made, spec)[0]))
    folder = Path(shutil.copytree(spec.name, tmp_path / "torn"))
    path = next(folder.rglob("model.safetensors"))
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"torn'.*cannot be loaded"):
        encoded(tmp_path / "store", EncoderSpec(str(folder)), workers=2)
    assert not list((tmp_path / "store").glob("embeddings-*/manifest.json"))


def test_a_teacher_with_a_broken_weight_is_found_at_the_sentence(tmp_path: Path, spec: EncoderSpec) -> None:
    folder = Path(shutil.copytree(spec.name, tmp_path / "nan"))
    path = next(folder.rglob("model.safetensors"))
    tensors = {n: np.full_like(t, np.nan) if "word_embeddings" in n else t for n, t in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"nan': .*vector is not finite for 'the dog'"):
        encoded(tmp_path / "store", EncoderSpec(str(folder)), ("the dog",))
    assert not list((tmp_path / "store").glob("embeddings-*/manifest.json"))


def test_a_vector_that_float16_cannot_hold_is_an_error(
    tmp_path: Path, encoder_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    model = EncoderSpec(str(encoder_folder)).load()
    model.append(torch.nn.Identity())
    model[-1].forward = lambda features: {"sentence_embedding": features["sentence_embedding"] * 1e6}
    monkeypatch.setattr(EncoderSpec, "load", lambda *_: model)
    with pytest.raises(InputError, match="overflow"):
        encoded(tmp_path, EncoderSpec(str(encoder_folder)), ("the dog runs",))
    assert not list(tmp_path.glob("embeddings-*/*.npy"))


@pytest.mark.parametrize(("stored", "tolerance"), [("float16", 1e-3), ("float32", 1e-6)])
def test_the_precision_on_disk_is_a_choice_and_part_of_the_name(
    tmp_path: Path, encoder_folder: Path, stored: module.Stored, tolerance: float
) -> None:
    spec, store = EncoderSpec(str(encoder_folder)), ArtifactStore(tmp_path)
    kept, count = CorpusEncoding(spec, store, "test", stored).vectors(CorpusText(SENTENCES, "k"))
    assert count == len(SENTENCES)
    assert np.load(kept.folder / shard_name(0)).dtype == stored
    assert kept.take(np.arange(len(SENTENCES))) == pytest.approx(encode(spec.load(), SENTENCES), abs=tolerance)
    other = "float32" if stored == "float16" else "float16"
    assert CorpusEncoding(spec, store, "test", other).vectors(CorpusText(SENTENCES, "k"))[1] == len(SENTENCES)


@pytest.fixture
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has the instructions that a test names, and no other."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(INSTRUCTIONS, False) | request.param)


@pytest.mark.parametrize("processor", [{name: True} for name in INSTRUCTIONS], indirect=True)
def test_vectors_of_bfloat16_are_others_and_nearly_the_same(store: Path, spec: EncoderSpec, processor: None) -> None:
    full, half = (
        whole(
            CorpusEncoding(spec, ArtifactStore(store), "test", backend=backend).vectors(CorpusText(SENTENCES, "k"))[0]
        )
        for backend in ("torch", "bf16")
    )
    cosines = (full * half).sum(1) / np.linalg.norm(full, axis=1) / np.linalg.norm(half, axis=1)
    assert 0.999 < cosines.min() and not np.array_equal(full, half)
    direct = encode(spec.load(), SENTENCES, prompt=spec.prompt, bf16=True)
    np.testing.assert_allclose(half, direct, rtol=2**-7, atol=2**-6)


@pytest.mark.parametrize("processor", [{}, {"avx512_f": True}], indirect=True)
def test_a_processor_without_bfloat16_is_refused(tmp_path: Path, spec: EncoderSpec, processor: None) -> None:
    with pytest.raises(InputError, match=r"--backend bf16: this processor has no instructions .* expected torch"):
        CorpusEncoding(spec, ArtifactStore(tmp_path), "test", backend="bf16").vectors(CorpusText(SENTENCES, "k"))


def test_a_corpus_that_grows_is_not_encoded_anew(store: Path, spec: EncoderSpec) -> None:
    before = whole(encoded(store, spec)[0])
    moved = (SENTENCES[i] for i in np.random.default_rng(1).permutation(40))
    grown = (*moved, "a new one", "another new one")
    vectors, count = encoded(store, spec, grown)
    assert count == 2
    np.testing.assert_array_equal(whole(vectors)[:40], before[[SENTENCES.index(s) for s in grown[:40]]])
    np.testing.assert_allclose(
        whole(vectors)[40:], encode(spec.load(), grown[40:], prompt=spec.prompt), rtol=2**-11, atol=1e-5
    )
    assert encoded(store, spec, grown[::-1])[1] == 0


def test_what_was_read_in_the_same_role_is_not_encoded_anew(tmp_path: Path, spec: EncoderSpec) -> None:
    asking = replace(spec, query_prompt="query: ", document_prompt="passage: ")
    encoding, roles_N = CorpusEncoding(asking, ArtifactStore(tmp_path), "test"), np.arange(40, dtype=np.int8) % 3
    before = whole(encoding.vectors(CorpusText(SENTENCES, "before", roles_N))[0])
    order = np.random.default_rng(1).permutation(40)
    grown = (*(SENTENCES[i] for i in order), "a new one", SENTENCES[0])
    text = CorpusText(grown, "grown", np.array([*roles_N[order], QUERY, DOCUMENT], dtype=np.int8))
    assert roles_N[0] == PLAIN and encoding.unknown(text) == 2
    vectors, count = encoding.vectors(text)
    assert count == 2
    np.testing.assert_array_equal(whole(vectors)[:40], before[order])
    direct = encode(spec.load(), grown[40:], prompt=["query: ", "passage: "])
    np.testing.assert_allclose(whole(vectors)[40:], direct, rtol=2**-11, atol=1e-5)


def test_the_text_of_several_files_is_not_encoded_anew(tmp_path: Path, spec: EncoderSpec) -> None:
    """A corpus with --text is its own sentences' file and the text's."""
    store = ArtifactStore(tmp_path)
    parts = [sentences_artifact(part, key, store) for part, key in ((SENTENCES[:10], "a"), (SENTENCES[10:], "b"))]
    both = SentenceFile(*(path for part in parts for path in part.paths))
    first, _ = CorpusEncoding(spec, store, "test").vectors(CorpusText(both, "both"))
    vectors, count = encoded(tmp_path, spec, (*SENTENCES[::-1], "a new one"))
    assert count == 1
    np.testing.assert_array_equal(whole(vectors)[:40], whole(first)[::-1])


def test_a_damaged_list_of_files_alone_is_written_again(tmp_path: Path, spec: EncoderSpec) -> None:
    before = whole(encoded(tmp_path, spec)[0])
    (folder,) = tmp_path.glob("embeddings-*/")
    whole_list = (folder / READ).read_bytes()
    (folder / READ).write_text("[]")
    again, count = encoded(tmp_path, spec)
    assert count == 0 and (folder / READ).read_bytes() == whole_list
    np.testing.assert_array_equal(whole(again), before)


def test_where_most_sentences_are_new_all_are_encoded(store: Path, spec: EncoderSpec) -> None:
    other = tuple(f"{s} again" for s in SENTENCES[:31]) + SENTENCES[:9]
    assert encoded(store, spec, other)[1] == 40


@pytest.mark.parametrize("change", [{"prompt": "what "}, {"max_tokens": 20}, {"query_prompt": "find "}])
def test_another_reading_is_not_taken_for_the_same(store: Path, spec: EncoderSpec, change: dict[str, Any]) -> None:
    assert encoded(store, replace(spec, **change), SENTENCES[::-1])[1] == 40


def test_a_damaged_source_is_named_and_not_taken(
    store: Path, spec: EncoderSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder,) = store.glob("embeddings-*/")
    with (folder / shard_name(1)).open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x7f")
    assert encoded(store, spec, SENTENCES[::-1])[1] == 40
    assert "its checksum differs" in " ".join(capsys.readouterr().out.split())
