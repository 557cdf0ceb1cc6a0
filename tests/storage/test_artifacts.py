"""Artifacts through storage: two machines are two local stores and one prefix."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from distilbench.storage.arrays import MANIFEST, save_array
from distilbench.storage.remote import Remote
from distilbench.storage.store import ArtifactStore

SHARDS = ["shard-00000.npy", "shard-00001.npy", "shard-00002.npy"]


class Maker:
    """Makes shards that hold their number, and notes which."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.made: list[str] = []
        self.fail_at = fail_at

    def __call__(self, folder: Path, missing: list[str]) -> None:
        for name in missing:
            if self.fail_at == int(name[6:11]):
                raise KeyboardInterrupt
            self.made.append(name)
            save_array(folder / name, np.full(100, int(name[6:11])))


@pytest.fixture
def stores(storage: Remote, tmp_path: Path) -> tuple[ArtifactStore, ArtifactStore]:
    """Of two machines."""
    return ArtifactStore(tmp_path / "one", storage), ArtifactStore(tmp_path / "two", storage)


def build(store: ArtifactStore, make: Maker) -> Path:
    return store.build("thing", {"of": 1}, SHARDS, make)


def test_what_one_machine_made_another_fetches(stores: tuple[ArtifactStore, ArtifactStore]) -> None:
    one, two = stores
    made = build(one, Maker())
    again = Maker()
    found = build(two, again)
    assert again.made == [] and found.parent != made.parent
    assert {p.name: p.read_bytes() for p in found.iterdir()} == {p.name: p.read_bytes() for p in made.iterdir()}


def test_what_was_made_without_a_storage_goes_there_when_it_is_found(
    stores: tuple[ArtifactStore, ArtifactStore],
) -> None:
    one, two = stores
    build(ArtifactStore(one.root), Maker())
    build(one, Maker())
    again = Maker()
    build(two, again)
    assert again.made == []


def test_a_damaged_shard_in_storage_is_named_and_alone_made_again(
    stores: tuple[ArtifactStore, ArtifactStore], storage: Remote, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = stores
    name = build(one, Maker()).name
    there = storage / name
    content = bytearray(there.read(SHARDS[1]) or b"")
    content[-3] ^= 1
    there.write(SHARDS[1], bytes(content))
    again = Maker()
    found = build(two, again)
    assert again.made == [SHARDS[1]]
    assert f"{name}/{SHARDS[1]}: not what was written" in "".join(capsys.readouterr().out.split("\n"))
    assert np.load(found / SHARDS[1])[0] == 1
    assert there.read(SHARDS[1]) == (found / SHARDS[1]).read_bytes()  # and the storage is whole again
    assert there.read(MANIFEST) is not None


@pytest.mark.parametrize("content", [b"", b"[]", b'{"shards": {"../../up": "0"}}'])
def test_a_broken_manifest_in_storage_is_an_unfinished_artifact(
    stores: tuple[ArtifactStore, ArtifactStore], storage: Remote, content: bytes
) -> None:
    one, two = stores
    name = build(one, Maker()).name
    (storage / name).write(MANIFEST, content)
    again = Maker()
    found = build(two, again)
    assert again.made == [] and (found / MANIFEST).exists()  # its shards were taken from the storage


def test_finished_shards_of_a_lost_machine_are_found_again(
    stores: tuple[ArtifactStore, ArtifactStore], storage: Remote
) -> None:
    one, two = stores
    with pytest.raises(KeyboardInterrupt):
        build(one, Maker(fail_at=2))
    [partial] = one.root.glob("*.partial")
    there = storage / partial.name.removesuffix(".partial")
    for name in SHARDS[:2]:  # as a worker does
        there.put(partial / name, name)
    again = Maker()
    build(two, again)
    assert again.made == SHARDS[2:]


def test_a_local_leftover_does_not_spoil_what_is_in_storage(stores: tuple[ArtifactStore, ArtifactStore]) -> None:
    one, two = stores
    made = build(one, Maker())
    partial = two.path("thing", {"of": 1}).with_name(f"{made.name}.partial")
    partial.mkdir(parents=True)
    save_array(partial / SHARDS[0], np.full(100, 9))  # of another version, or damaged
    again = Maker()
    found = build(two, again)
    assert again.made == [] and np.load(found / SHARDS[0])[0] == 0


def test_a_folder_goes_under_a_name_of_its_content(storage: Remote, tmp_path: Path) -> None:
    for where in ("a", "b"):
        (tmp_path / where / "encoder" / "inner").mkdir(parents=True)
        (tmp_path / where / "encoder" / "inner" / "weights").write_text("1")
    store = ArtifactStore(tmp_path / "store", storage)
    name = store.push_folder(tmp_path / "a" / "encoder")
    assert store.push_folder(tmp_path / "b" / "encoder") == name
    found = store.fetch(name)
    assert found is not None and (found / "encoder" / "inner" / "weights").read_text() == "1"
