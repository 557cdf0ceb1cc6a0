from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bucket import Bucket, make_bucket

from distilbench.storage import remote as remote_module
from distilbench.storage.remote import Remote


@pytest.fixture(scope="session")
def server() -> Iterator[Bucket]:
    bucket = make_bucket()
    yield bucket
    bucket.stop()


@pytest.fixture
def bucket(server: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bucket:
    """The server, in this process's environment, with a store of the test's own."""
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DISTILBENCH_STORE", str(tmp_path / "own store"))
    if server.server is None:
        server.start()
    else:
        server.make()
    return server


@pytest.fixture(params=["s3", "file"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Remote:
    """An empty prefix, of S3 and of a folder."""
    if request.param == "file":
        return Remote(f"file://{tmp_path}/storage")
    request.getfixturevalue("bucket")
    return Remote(f"s3://bench/{tmp_path.name}-{time.time_ns()}")


@pytest.fixture
def s3(bucket: Bucket, tmp_path: Path) -> Remote:
    """An empty prefix of S3."""
    return Remote(f"s3://bench/{tmp_path.name}-{time.time_ns()}")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Storage is waited for for a second only."""
    monkeypatch.setattr(remote_module, "LIMIT_S", 1.0)
