"""The artifact store: whole or not at all, made once, repaired shard by shard."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distilbench.errors import InputError
from distilbench.storage.arrays import MANIFEST, ShardedArray, save_array, shard_name, shard_ranges
from distilbench.storage.files import atomic_path, claim_folder, file_sha256, write_json
from distilbench.storage.store import ArtifactStore, default_store

PARTS = {"teacher": "t", "rows": 10}
NAMES = [shard_name(i) for i in range(3)]


class Maker:
    """Writes shard i as an array of i's, and remembers which shards it was asked for."""

    def __init__(self, *, die_after: int | None = None, pause: float = 0.0) -> None:
        self.calls: list[list[str]] = []
        self.die_after, self.pause = die_after, pause

    def __call__(self, folder: Path, names: list[str]) -> None:
        self.calls.append(names)
        for done, name in enumerate(names):
            if done == self.die_after:
                raise KeyboardInterrupt
            time.sleep(self.pause)
            save_array(folder / name, np.full((4, 2), NAMES.index(name), dtype=np.float16))


def build(root: Path, maker: Callable[[Path, list[str]], None]) -> Path:
    return ArtifactStore(root).build("vectors", PARTS, NAMES, maker)


def contents(path: Path) -> list[float]:
    return [float(np.load(path / name)[0, 0]) for name in NAMES]


# Files, whole or not at all


def test_atomic_path_leaves_nothing_when_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file.txt"]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_files_have_the_permissions_of_any_new_file(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_json(tmp_path / "a.json", {})
        assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o666 & ~umask
        assert os.umask(umask) == umask
    finally:
        os.umask(before)


def test_write_json_keeps_the_old_file_when_the_value_cannot_be_written(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"ü": [1, None]})
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"bad": object()})
    assert json.loads((tmp_path / "a.json").read_text()) == {"ü": [1, None]}


def test_save_array_never_pickles(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allow_pickle"):
        save_array(tmp_path / "a.npy", np.array([{}]))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({"DISTILBENCH_STORE": "/a/b", "XDG_CACHE_HOME": "/x"}, "/a/b"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/distilbench"),
        ({"XDG_CACHE_HOME": "", "DISTILBENCH_STORE": "", "HOME": "/h"}, "/h/.cache/distilbench"),  # empty is unset
    ],
)
def test_default_store(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], wanted: str) -> None:
    for name in ("DISTILBENCH_STORE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert default_store() == Path(wanted)


# Names


def test_an_artifact_is_found_under_the_same_kind_and_parts_alone(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    path = build(tmp_path, Maker())
    assert store.find("vectors", dict(reversed(PARTS.items()))) == path
    assert store.find("tokens", PARTS) is None
    for changed in ({**PARTS, "rows": 11}, {**PARTS, "prompt": ""}, {"teacher": "t"}):
        assert store.find("vectors", changed) is None


# Building


def test_build_makes_once_and_writes_what_it_depends_on(tmp_path: Path) -> None:
    maker = Maker()
    path = build(tmp_path / "store", maker)
    assert build(tmp_path / "store", maker) == path
    assert maker.calls == [NAMES]
    assert contents(path) == [0, 1, 2]
    manifest = json.loads((path / MANIFEST).read_text())
    assert manifest["kind"] == "vectors" and manifest["parts"] == PARTS
    assert manifest["shards"] == {name: file_sha256(path / name) for name in NAMES}
    assert sorted(p.name for p in path.iterdir()) == [MANIFEST, *NAMES]


def test_an_interrupted_build_is_not_found_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, Maker(die_after=2))
    store = ArtifactStore(tmp_path)
    assert store.find("vectors", PARTS) is None
    assert not store.path("vectors", PARTS).exists()
    maker = Maker()
    assert contents(build(tmp_path, maker)) == [0, 1, 2]
    assert maker.calls == [[NAMES[2]]]


KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
import numpy as np
from distilbench.storage.arrays import save_array
from distilbench.storage.files import atomic_path
from distilbench.storage.store import ArtifactStore

def make(folder, names):
    save_array(folder / names[0], np.full((4, 2), 0, dtype=np.float16))
    with atomic_path(folder / names[1]) as temporary:
        temporary.write_bytes(b"half a shard")
        os.kill(os.getpid(), signal.SIGKILL)

ArtifactStore(Path(sys.argv[1])).build("vectors", {"teacher": "t", "rows": 10}, sys.argv[2:], make)
"""


def test_a_killed_build_goes_on_where_it_stopped(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED_WRITER, str(tmp_path), *NAMES], check=False)
    assert killed.returncode == -signal.SIGKILL
    (partial,) = tmp_path.glob("*.partial")
    assert len(list(partial.iterdir())) == 2  # one shard, and half of one under a temporary name
    maker = Maker()
    path = build(tmp_path, maker)
    assert maker.calls == [NAMES[1:]]
    assert sorted(p.name for p in path.iterdir()) == [MANIFEST, *NAMES]
    assert contents(path) == [0, 1, 2]


def test_a_maker_that_leaves_a_shard_out_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"1 of 3 shards were not made: \['shard-00002.npy'\]"):
        build(tmp_path, lambda folder, names: Maker()(folder, names[:2]))
    assert ArtifactStore(tmp_path).find("vectors", PARTS) is None


# Damage


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # the same length, still a readable array
    path.write_bytes(data)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 3)


def empty(path: Path) -> None:
    os.truncate(path, 0)


@pytest.mark.parametrize("damage", [flip_a_bit, truncate, empty, Path.unlink])
@pytest.mark.parametrize("index", [0, 2])
def test_a_damaged_shard_is_found_and_alone_made_again(
    tmp_path: Path, damage: Callable[[Path], None], index: int
) -> None:
    path = build(tmp_path, Maker())
    others = {name: (path / name).stat().st_mtime_ns for name in NAMES if name != NAMES[index]}
    damage(path / NAMES[index])
    assert ArtifactStore(tmp_path).find("vectors", PARTS) is None
    maker = Maker()
    assert build(tmp_path, maker) == path
    assert maker.calls == [[NAMES[index]]]
    assert contents(path) == [0, 1, 2]
    assert {name: (path / name).stat().st_mtime_ns for name in others} == others
    assert ArtifactStore(tmp_path).find("vectors", PARTS) == path


@pytest.mark.parametrize("text", ["", '{"kind": "vec', "[]", "{}", '{"shards": 3}', None])
def test_without_a_readable_manifest_no_shard_can_be_trusted(tmp_path: Path, text: str | None) -> None:
    path = build(tmp_path, Maker())
    flip_a_bit(path / NAMES[1])
    if text is None:
        (path / MANIFEST).unlink()
    else:
        (path / MANIFEST).write_text(text)
    maker = Maker()
    assert build(tmp_path, maker) == path
    assert maker.calls == [NAMES]
    assert contents(path) == [0, 1, 2]


def test_a_kill_while_an_artifact_is_demoted_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build(tmp_path, Maker())
    flip_a_bit(path / NAMES[1])

    def killed(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "rename", killed)
        ArtifactStore(tmp_path).find("vectors", PARTS)
    maker = Maker()
    assert build(tmp_path, maker) == path
    assert maker.calls == [[NAMES[1]]]


# Several writers


SLOW_WRITER = """
import sys, time
from pathlib import Path
import numpy as np
from distilbench.storage.arrays import save_array
from distilbench.storage.store import ArtifactStore

root, *names = sys.argv[1:]
def make(folder, missing):
    with open(root + ".log", "a") as log:
        log.write(",".join(missing) + "\\n")
    for name in missing:
        time.sleep(0.2)
        save_array(folder / name, np.zeros((4, 2), dtype=np.float16))

print(ArtifactStore(Path(root)).build("vectors", {"teacher": "t", "rows": 10}, names, make))
"""


def test_of_two_processes_one_makes_and_the_other_waits(tmp_path: Path) -> None:
    root = tmp_path / "store"
    command = [sys.executable, "-c", SLOW_WRITER, str(root), *NAMES]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert [out.splitlines()[-1] for out in outputs] == [str(ArtifactStore(root).path("vectors", PARTS))] * 2
    assert Path(f"{root}.log").read_text() == ",".join(NAMES) + "\n"


# Reading


@pytest.fixture
def sharded(tmp_path: Path) -> tuple[ShardedArray, np.ndarray[Any, Any]]:
    whole = np.arange(22, dtype=np.float16).reshape(11, 2)
    for i, (start, stop) in enumerate(shard_ranges(11, 4)):
        save_array(tmp_path / shard_name(i), whole[start:stop])
    return ShardedArray(tmp_path, 11, 2, 4), whole.astype(np.float32)


@pytest.mark.parametrize(
    "index",
    [
        list(range(11)),
        list(range(10, -1, -1)),
        [3, 4, 7, 8],  # the borders of the shards
        [10, 0, 10, 10, 5, 0],  # repeats
        [6],
        [],
    ],
)
def test_take_gives_the_rows_asked_for_in_their_order(
    sharded: tuple[ShardedArray, np.ndarray[Any, Any]], index: list[int]
) -> None:
    array, whole = sharded
    rows = np.array(index, dtype=np.int64)
    taken = array.take(rows)
    assert taken.dtype == np.float32 and taken.shape == (len(index), 2)
    np.testing.assert_array_equal(taken, whole[rows])


# Results folders

CONFIG = {"method": "mcr2", "seed": 0, "parameters": {"lr": [0.1, 0.2]}, "trials": 8}
GROWS = frozenset({"trials"})


def test_a_new_or_empty_folder_is_claimed(tmp_path: Path) -> None:
    for name in ("new", "empty"):
        if name == "empty":
            (tmp_path / name).mkdir()
        claim_folder(tmp_path / name, CONFIG, may_change=GROWS)
        assert json.loads((tmp_path / name / "config.json").read_text()) == CONFIG


def test_another_configuration_is_refused_with_every_difference(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    claim_folder(folder, CONFIG, may_change=GROWS)
    before = (folder / "config.json").read_bytes()
    other = {"method": "hpd", "parameters": {"lr": [0.1, 0.2]}, "trials": 16, "student": "half"}
    with pytest.raises(InputError) as error:
        claim_folder(folder, other, may_change=GROWS)
    message = str(error.value)
    assert str(folder) in message and "--name" in message
    assert "method: 'mcr2' there, 'hpd' now" in message
    assert "seed: 0 there, nothing now" in message  # a key that is gone
    assert "student: nothing there, 'half' now" in message  # a key that is new
    assert "trials" not in message and "parameters" not in message
    assert (folder / "config.json").read_bytes() == before


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(InputError, match=r"not empty and holds no config\.json"):
        claim_folder(tmp_path, CONFIG, may_change=GROWS)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_folder_whose_first_claim_was_killed_can_be_claimed(tmp_path: Path) -> None:
    (tmp_path / ".config.json.k2x9.tmp").write_text('{"met')
    claim_folder(tmp_path, CONFIG, may_change=GROWS)
    assert json.loads((tmp_path / "config.json").read_text()) == CONFIG


@pytest.mark.parametrize("content", [b"{\n half", b"", b"[]", b"3", b"\xff\xfe"])
def test_a_config_that_is_none_of_ours_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(InputError, match=r"config\.json.*not a results folder of ours"):
        claim_folder(tmp_path, CONFIG, may_change=GROWS)
    assert (tmp_path / "config.json").read_bytes() == content
