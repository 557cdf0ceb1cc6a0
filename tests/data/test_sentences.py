"""Sentences on disk: the same as in memory, wherever they are asked for."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from distilbench.data import sentences as module
from distilbench.data.sentences import FILE, SentenceFile, sentences_artifact
from distilbench.storage.files import fingerprint
from distilbench.storage.store import ArtifactStore

TEXT = [f"sentence {i} with é, 你好 and \n a line" for i in range(25)]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 4)


def made(root: Path, text: list[str]) -> SentenceFile:
    return sentences_artifact(tuple(text), fingerprint(text), ArtifactStore(root))


def test_a_file_reads_like_a_tuple(tmp_path: Path) -> None:
    kept = made(tmp_path, TEXT)
    assert len(kept) == 25 and list(kept) == TEXT and tuple(kept[3:11]) == tuple(TEXT[3:11])
    assert kept[0] == TEXT[0] and kept[24] == TEXT[24] == kept[-1] and kept[22:99] == TEXT[22:]
    rows = np.random.default_rng(0).permutation(25)
    assert kept.take(rows) == [TEXT[i] for i in rows]
    for outside in (25, -26):
        with pytest.raises(IndexError):
            kept[outside]


def test_several_files_are_one_sequence_and_travel_as_paths(tmp_path: Path) -> None:
    one, two = made(tmp_path, TEXT[:9]), made(tmp_path, TEXT[9:])
    both = SentenceFile(*one.paths, *two.paths)
    assert list(both) == TEXT and both[7:12] == TEXT[7:12] and len(both) == 25
    packed = pickle.dumps(both)
    assert len(packed) < 500 + 2 * len(str(tmp_path)) and list(pickle.loads(packed)) == TEXT  # noqa: S301
    assert sentences_artifact(both, "any", ArtifactStore(tmp_path)) is both


def test_a_sentence_file_is_an_artifact_like_the_others(tmp_path: Path) -> None:
    kept = made(tmp_path, TEXT)
    (path,) = kept.paths
    assert path.name == FILE and made(tmp_path, TEXT).paths == kept.paths
    written = path.stat().st_mtime_ns
    path.write_bytes(path.read_bytes()[:-200])
    assert list(made(tmp_path, TEXT)) == TEXT and path.stat().st_mtime_ns != written
