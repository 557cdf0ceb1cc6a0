"""Shards made in this process, and how far they are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from distilbench.cluster.nodes import Node
from distilbench.data.sentences import CorpusText
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import encode
from distilbench.errors import InputError
from distilbench.prepare import pool as module
from distilbench.prepare.encode import CorpusEncoding, TeacherEncoding
from distilbench.prepare.pool import ShardTask, progress, run_in_process, run_pool
from distilbench.settings.place import PoolSize
from distilbench.storage.store import ArtifactStore

SHARDS = [(i, 10 * i, 10 * i + 10) for i in range(20)]


@dataclass(frozen=True)
class Noted(ShardTask):
    """Notes which shards are made by which thread; shard `bad` cannot be made."""

    folder: Path
    made: list[tuple[int, int, int, int]]
    bad: int = -1

    def load(self) -> Callable[[int, int, int], None]:
        def make(shard: int, start: int, stop: int) -> None:
            if shard == self.bad:
                raise InputError(f"shard {shard} cannot be made")
            time.sleep(0.01)
            self.made.append((shard, start, stop, threading.get_ident()))

        return make


@pytest.fixture
def two_threads():  # type: ignore[no-untyped-def]
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2  # each worker set its own alone
    torch.set_num_threads(before)


@pytest.mark.parametrize(("asked", "threads"), [(None, 2), (1, 1), (3, 3)])
def test_every_shard_is_made_once(two_threads: None, asked: int | None, threads: int) -> None:
    task = Noted(Path(), [])
    run_in_process(task, SHARDS, "test", threads=asked)
    assert sorted(made[:3] for made in task.made) == SHARDS
    assert len({thread for *_, thread in task.made}) == threads


def test_an_error_ends_it_and_what_is_made_stays(two_threads: None) -> None:
    task = Noted(Path(), [], bad=7)
    with pytest.raises(InputError, match="shard 7 cannot be made"):
        run_in_process(task, SHARDS, "test")
    assert {0, 1, 2, 3, 4, 5} <= {made[0] for made in task.made} and len(task.made) < 12


@pytest.mark.parametrize(
    ("nodes", "workers", "device", "sentences", "here"),
    [
        ([Node(16, 1)], None, "cuda", 5000, True),
        ([Node(16, 1)], 4, "cuda", 1, False),
        ([Node(16, 2)], None, "cuda", 1, False),
        ([Node(16, 0)], None, "cuda", 1, False),
        ([Node(16, 1), Node(4)], None, "cuda", 1, False),
        ([Node(16)], None, "cpu", 2048, True),
        ([Node(16)], 2, "cpu", 2048, False),
        ([Node(16)], None, "cpu", 2049, False),
        ([Node(16), Node(4)], None, "cpu", 1, False),
    ],
)
def test_on_one_machine_no_worker_is_started_for_one_gpu_or_for_little(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    nodes: list[Node],
    workers: int | None,
    device: str,
    sentences: int,
    here: bool,
) -> None:
    task, asked = TeacherEncoding(EncoderSpec("x"), ["a"] * sentences, tmp_path, device, "float16"), []
    monkeypatch.setattr(module, "possible_nodes", lambda grow_to: nodes)
    monkeypatch.setattr(module, "run_in_process", lambda *_, **__: asked.append("here"))
    monkeypatch.setattr(module, "_results", lambda *_: asked.append("workers") or [])
    monkeypatch.setattr(module, "waiting_told", lambda *_: nullcontext())
    run_pool(task, [(0, 0, 1)], "test", size=PoolSize(workers), gpu=True)
    assert asked == ["here" if here else "workers"]


def test_an_interrupted_task_makes_what_is_missing(tmp_path: Path) -> None:
    task = Noted(tmp_path, [])
    for name in ("shard-00000.npy", "shard-00002.npy"):
        (tmp_path / name).touch()
    assert task.missing(35, 10) == [(1, 10, 20), (3, 30, 35)]


def test_vectors_are_those_of_the_encoder(tmp_path: Path, encoder_folder: Path, two_threads: None) -> None:
    words = "the man walks in a park and sees one red dog".split()
    sentences = [f"{a} {b} {c}" for a in words for b in words for c in words]
    spec = EncoderSpec(str(encoder_folder))
    encoding = CorpusEncoding(spec, ArtifactStore(tmp_path), "test", "float32", in_process=True)
    found, encoded = encoding.vectors(CorpusText(sentences, "k"))
    assert encoded == len(sentences) > 512
    wanted = encode(spec.load(), sentences)
    np.testing.assert_allclose(found.take(np.arange(len(sentences))), wanted, atol=1e-5)


def test_a_log_gets_lines_with_rate_and_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "LINE_EVERY_S", 0.01)
    with progress("Teacher encoding", 400, "sentences") as advance:
        time.sleep(0.4)  # workers start
        advance(100)
        time.sleep(0.1)
        advance(100)
    out = " ".join(capsys.readouterr().out.split())
    assert "Teacher encoding: 100 of 400 sentences, " in out and "Teacher encoding: 200 of 400 sentences, " in out
    rate, left = out.split("200 of 400 sentences, ")[1].split(" s left")[0].split("/s, ")
    assert 500 < float(rate.replace(",", "")) < 1050 and abs(float(left)) <= 1
    assert "200/400" in out
