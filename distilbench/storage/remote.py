"""A prefix of an object storage (S3, Google, Azure, a folder), by pyarrow: whole files; while it is away it is waited for."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

from distilbench.errors import InputError
from distilbench.heartbeat import beat
from distilbench.storage.files import atomic_path
from distilbench.storage.retry import KEPT, StorageGone, retry_io

LIMIT_S = 600.0
"""Seconds that storage may be away: a server that is replaced, or a network between two providers, is back within minutes."""
AT_ONCE = 8
"""Files on their way at a time."""
CHUNK = 8 << 20
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs", "file")
"""Those of pyarrow's file systems."""
ASCII = "".join(map(chr, range(0x21, 0x7F)))
"""These characters of a URI stay as they are."""
REFUSED = re.compile(
    "NO_SUCH_BUCKET|ACCESS_DENIED|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID|SIGNATURE_DOES_NOT_MATCH"
    "|UNRECOGNIZED_CLIENT|EXPIRED_TOKEN|MISSING_AUTHENTICATION_TOKEN|PermanentRedirect|HTTP response code 40[13]"
    "|PERMISSION_DENIED|UNAUTHENTICATED|AuthorizationFailure|AuthenticationFailed|ContainerNotFound"
)
"""Signs in pyarrow's errors that trying again does not help, for S3, Google and Azure."""

T = TypeVar("T")


class Absent(Exception):
    """There is no such file in the storage."""


class Entry(NamedTuple):
    """A file in the storage; `changed` is the storage's own time, ns since the epoch, None where it does not say."""

    size: int
    changed: int | None


def is_uri(text: str) -> bool:
    """Whether `text` names something in a storage, and no local path."""
    return SCHEME.match(text) is not None


def check_uri(uri: str, option: str = "--storage") -> str:
    """The URI of a prefix, without a slash at its end; nothing is asked there. An InputError repeats no credentials."""
    expected, prefix = "expected such as s3://bucket/project", f"{option} ".lstrip()
    if not is_uri(uri):
        raise InputError(f"{prefix}{uri}: not a URI; {expected}")
    parts = urlsplit(uri)
    if parts.scheme not in SCHEMES:
        raise InputError(
            f"{prefix}{parts.scheme}://...: expected one of {', '.join(SCHEMES)}; such as s3://bucket/project"
        )
    cloud = not parts.scheme.startswith("abfs")  # which writes CONTAINER@ACCOUNT
    secret = ":" in parts.netloc.rpartition("@")[0] or (cloud and ("@" in parts.netloc or ":" in parts.netloc))
    if secret or parts.fragment or "?" in uri:
        raise InputError(
            f"{prefix}{parts.scheme}://...: credentials, or what does not belong there, in the URI; {expected}. Credentials, "
            "region and address come from the environment (AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL) or "
            "the machine's role"
        )
    if parts.scheme != "file" and not parts.netloc:
        raise InputError(f"{prefix}{uri}: no bucket in it; {expected}")
    return uri.rstrip("/")


@dataclass(frozen=True)
class Remote:
    """A prefix. `endpoint`, the address of an S3-compatible server ("" for Amazon's own), goes with it to machines whose
    environment does not say it.

    Every method waits where the storage is away, for LIMIT_S; then it raises StorageGone. It does so at once where the
    storage says no: there is no such bucket, or access is denied.
    """

    uri: str
    endpoint: str = field(
        default_factory=lambda: os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
    )

    def __truediv__(self, part: str) -> Remote:
        """The prefix `part` below this one."""
        return Remote(f"{self.uri}/{part}", self.endpoint)

    def __str__(self) -> str:
        return self.uri

    @property
    def name(self) -> str:
        """The last part of the prefix."""
        return self.uri.rpartition("/")[2]

    def _open(self) -> tuple[Any, str]:
        try:
            return _filesystem(self.uri, self.endpoint)
        except (ValueError, OSError, NotImplementedError) as error:  # an ArrowInvalid is a ValueError
            reason = " ".join(str(error).split())
            raise InputError(f"{self}: pyarrow cannot use it: {reason:.200}") from None

    def _retried(self, action: Callable[[Any, str], T], name: str = "") -> T:
        """`action` with the file system and the path of the file `name` in it; Absent where it is not there."""
        filesystem, base = self._open()

        def act() -> T:
            try:
                return action(filesystem, f"{base}/{name}" if name else base)
            except (FileNotFoundError, NotADirectoryError) as error:
                raise Absent(str(error)) from None
            except OSError as error:
                message = " ".join(str(error).split())
                if isinstance(error, PermissionError) or REFUSED.search(message):
                    raise StorageGone(f"{self}: {message:.300}; {KEPT}") from None
                raise

        return retry_io(act, LIMIT_S, what=str(self))

    def check(self) -> None:
        """Write and delete a file: whether this can be used at all."""
        name = f".check-{uuid.uuid4().hex}"
        self.write(name, b"")
        self.delete(name)

    def put(self, path: Path, name: str) -> None:
        """Copy a local file to `name`, where it appears whole."""

        def act(filesystem: Any, target: str) -> None:
            with path.open("rb") as source:
                _write(filesystem, target, iter(functools.partial(source.read, CHUNK), b""))

        if not path.is_file():  # an error of ours, for which storage is not waited for
            raise FileNotFoundError(f"{path}: no such file to copy")
        self._retried(act, name)

    def write(self, name: str, content: bytes) -> None:
        """Write a small file."""
        self._retried(lambda filesystem, target: _write(filesystem, target, iter([content])), name)

    def read(self, name: str) -> bytes | None:
        """A small file; None where it is not there."""

        def act(filesystem: Any, path: str) -> bytes:
            with filesystem.open_input_stream(path, compression=None) as source:
                return bytes(source.read())

        with contextlib.suppress(Absent):
            return self._retried(act, name)
        return None

    def list(self) -> dict[str, Entry]:
        """Every file below the prefix by its name from there; a file that has the prefix itself as its name is ""."""

        def act(filesystem: Any, base: str) -> dict[str, Entry]:
            from pyarrow.fs import FileSelector

            single = filesystem.get_file_info(base)
            if single.is_file:
                return {"": Entry(single.size, single.mtime_ns)}
            infos = filesystem.get_file_info(FileSelector(base, recursive=True, allow_not_found=True))
            entries = {info.path[len(base) :].lstrip("/"): info for info in infos if info.is_file}
            return {name: Entry(i.size, i.mtime_ns) for name, i in sorted(entries.items()) if ".tmp-" not in name}

        return self._retried(act)

    def fetch(self, name: str, path: Path) -> None:
        """Copy the file `name` to a local path, whole or not at all; Absent where it is not there."""

        def act(filesystem: Any, source_path: str) -> None:
            with filesystem.open_input_stream(source_path, compression=None) as source, atomic_path(path) as temporary:
                with temporary.open("wb") as file:
                    while chunk := source.read(CHUNK):
                        file.write(chunk)
                        beat()

        self._retried(act, name)

    def delete(self, *names: str) -> None:
        """Delete files; those that are not there are no error."""

        def one(name: str) -> None:
            with contextlib.suppress(Absent):
                self._retried(lambda filesystem, path: filesystem.delete_file(path), name)

        in_parallel(one, names)

    def delete_all(self) -> None:
        """Delete everything below the prefix."""
        with contextlib.suppress(Absent):
            self._retried(lambda filesystem, base: filesystem.delete_dir(base))

    def put_all(self, paths: Mapping[str, Path], last: str = "") -> None:
        """Copy local files to these names, `last` when the others are there."""
        in_parallel(lambda name: self.put(paths[name], name), [name for name in paths if name != last])
        if last in paths:
            self.put(paths[last], last)

    def fetch_all(self, folder: Path, names: Iterable[str]) -> None:
        """Copy files into a local folder, each whole; Absent where one is not there."""
        in_parallel(lambda name: self.fetch(name, folder / local_name(name)), names)


def local_name(name: str) -> str:
    """A file's name in the storage as one below a local folder; an InputError where it would be outside of the folder."""
    if name.startswith("/") or ".." in name.split("/"):
        raise InputError(f"{name!r}: a name in the storage that leads out of its folder")
    return name


def files_in(folder: Path) -> dict[str, Path]:
    """The files of a folder that are whole, by their names from there."""
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    return {
        n: path
        for n, path in paths.items()
        if path.is_file() and not (path.name.startswith(".") and path.suffix == ".tmp")
    }


def in_parallel(act: Callable[[str], None], names: Iterable[str]) -> None:
    """Call `act` with each name, several at a time; the first error ends it."""
    names = list(names)
    with ThreadPoolExecutor(max(1, min(AT_ONCE, len(names)))) as pool:
        try:
            for done in [pool.submit(copy_context().run, act, name) for name in names]:
                done.result()
        finally:
            pool.shutdown(cancel_futures=True)


@functools.lru_cache(maxsize=64)
def _filesystem(uri: str, endpoint: str) -> tuple[Any, str]:
    from pyarrow.fs import FileSystem

    if endpoint:
        os.environ.setdefault("AWS_ENDPOINT_URL", endpoint)  # which Arrow reads
    filesystem, base = FileSystem.from_uri(quote(uri, safe=ASCII))  # a run may have a name in any script
    return filesystem, str(base).rstrip("/")


def _write(filesystem: Any, path: str, chunks: Iterator[bytes]) -> None:
    """An object appears when its stream is closed. A file of a folder is renamed, and a stream that fails is deleted."""
    from pyarrow.fs import LocalFileSystem

    local = isinstance(filesystem, LocalFileSystem)
    target = f"{path}.tmp-{uuid.uuid4().hex}" if local else path
    if local:
        filesystem.create_dir(path.rpartition("/")[0], recursive=True)
    try:
        with filesystem.open_output_stream(target, compression=None) as sink:
            for chunk in chunks:
                sink.write(chunk)
    except BaseException:
        with contextlib.suppress(OSError):
            filesystem.delete_file(target)  # closing it may have made an object of the first part
        raise
    if local:
        filesystem.move(target, path)
