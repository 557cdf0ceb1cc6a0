"""A full disk, a real one of a megabyte: one clear message, nothing damaged, and the same command goes on after."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import subprocess, sys
from pathlib import Path
import numpy as np
from distilbench.errors import InputError
from distilbench.storage.arrays import save_array, shard_name
from distilbench.storage.files import write_json
from distilbench.storage.store import ArtifactStore

disk = sys.argv[1]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=True)
store, names, asked = ArtifactStore(Path(disk) / "store"), [shard_name(i) for i in range(5)], []

def make(folder, missing):
    asked.append(missing)
    for name in missing:
        save_array(folder / name, np.full(35_000, names.index(name)))  # 280 kB

def build():
    return store.build("vectors", {}, names, make)

def tmp_files():
    return [p.name for p in Path(disk).rglob("*.tmp")]

try:
    build()
except InputError as error:
    print(error)
assert store.find("vectors", {}) is None and not tmp_files(), tmp_files()
try:
    build()  # still full: no harm
except InputError as error:
    print(error)
subprocess.run(["mount", "-o", "remount,size=4m", disk], check=True)
path = build()
assert [np.load(path / name)[0] for name in names] == [0, 1, 2, 3, 4]
assert asked == [names, names[3:], names[3:]], asked
try:
    with (Path(disk) / "fill").open("wb") as file:
        file.write(bytes(10_000_000))
except OSError:
    pass
try:
    write_json(path / "late.json", "x" * 100_000)
except InputError as error:
    print(error)
assert store.find("vectors", {}) == path
"""


def test_a_full_disk(tmp_path: Path) -> None:
    private = ["unshare", "--user", "--map-root-user", "--mount"]
    try:
        possible = subprocess.run([*private, "mount", "-t", "tmpfs", "tmpfs", str(tmp_path)], capture_output=True)
    except FileNotFoundError:
        pytest.skip("no `unshare` here to mount a small disk with")
    if possible.returncode:
        pytest.skip(f"no small disk can be mounted here: {possible.stderr.decode().strip()}")
    out = subprocess.run(
        [*private, sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert out.returncode == 0, out.stderr
    lines = out.stdout.splitlines()
    assert len(lines) == 3
    for line, file in zip(lines, ("shard-00003.npy", "shard-00003.npy", "late.json"), strict=True):
        assert file in line and "No space left on device; what is finished is kept: make room" in line
