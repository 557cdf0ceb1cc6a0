"""Files that are written whole or not at all, their checksums, and folders that belong to one configuration."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distilbench.errors import InputError

FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a full disk, and of a user's full share of it."""


def fingerprint(parts: Any) -> str:
    """SHA-256 (64 hex digits) of JSON-able `parts` in canonical form."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; renamed to `path` when the block ends well, deleted otherwise."""
    temporary = path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        # mkstemp makes files for the owner alone; an artifact has the permissions of any new file.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    except OSError as error:
        if error.errno in FULL or "requested and" in str(error):  # NumPy's, which has no number
            raise disk_full(path, error) from None
        raise
    finally:
        if temporary != path:
            temporary.unlink(missing_ok=True)


def write_changed(path: Path, text: str) -> bool:
    """Write `text`, whole or not at all; nothing and False where it is there already."""
    payload = text.encode()
    if path.is_file() and path.stat().st_size == len(payload) and path.read_bytes() == payload:
        return False
    with atomic_path(path) as temporary:
        temporary.write_bytes(payload)
    return True


class DiskFull(InputError):
    """A file could not be written whole."""


def disk_full(path: Path, error: OSError) -> DiskFull:
    """The error for a `path` that could not be written whole."""
    return DiskFull(
        f"{path}: {error.strerror or 'No space left on device'}; what is finished is kept: make room, then repeat the command"
    )


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def claim_folder(folder: Path, config: dict[str, Any], *, may_change: frozenset[str], hint: str = "") -> None:
    """Bind `folder` to `config` (written as `config.json` on first use), or check that it is bound to the same.

    Keys in `may_change` may differ between visits (they do not alter what the numbers mean); the file keeps the latest.
    `hint` is what else the user can do about a difference.
    """
    bound = bound_config(folder)
    if bound is not None:
        differences = [f"  {line}" for key, line in config_differences(bound, config) if key not in may_change]
        if differences:
            raise InputError(
                f"{folder}: these results belong to another configuration:\n"
                + "\n".join(differences)
                + f"\nChoose another --name, or repeat the command that made them{hint}."
            )
    elif folder.exists() and any(not p.name.startswith(".config.json.") for p in folder.iterdir()):
        raise InputError(
            f"{folder}: the folder is not empty and holds no config.json, so it is not a results folder of ours"
        )
    write_json(folder / "config.json", config)


def bound_config(folder: Path) -> dict[str, Any] | None:
    """The configuration that `folder` is bound to; None if it is bound to none."""
    path = folder / "config.json"
    if not path.exists():
        return None
    return read_json_object(path, "so it is not a results folder of ours")


def read_json_object(path: Path, told: str) -> dict[str, Any]:
    """The JSON object in a file; `told` ends the message where there is none."""
    try:
        value = json.loads(path.read_text())
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error}), {told}") from None
    if not isinstance(value, dict):
        raise InputError(f"{path}: {value!r:.80} is not a JSON object, {told}")
    return value


def config_differences(bound: dict[str, Any], config: dict[str, Any]) -> list[tuple[str, str]]:
    """(top-level key, line to read) of every value that differs; of nested ones only the parts that do."""
    bound_leaves, config_leaves = flat(bound), flat(json.loads(json.dumps(config)))
    return [
        (path[0], f"{'.'.join(path)}: {_shown(bound_leaves, path)} there, {_shown(config_leaves, path)} now")
        for path in sorted(bound_leaves.keys() | config_leaves.keys())
        if bound_leaves.get(path) != config_leaves.get(path)
    ]


def flat(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """The leaves of nested dictionaries by their keys, outermost first."""
    if not isinstance(value, dict) or not value:
        return {path: value} if path else {}
    return {at: leaf for key, part in value.items() for at, leaf in flat(part, (*path, str(key))).items()}


def _shown(values: dict[tuple[str, ...], Any], path: tuple[str, ...]) -> str:
    return repr(values[path]) if values.get(path) is not None else "nothing"


def remove_folder(folder: Path) -> None:
    """Delete a folder and what is in it; nothing when it does not exist."""
    shutil.rmtree(folder, ignore_errors=True)
